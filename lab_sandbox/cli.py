"""The command line `lab-sandbox`."""

from pathlib import Path
from typing import Annotated

import typer

from lab_sandbox.config import ConfigError, SandboxConfig, load_config, read_config
from lab_sandbox.demo.cli import add_commands
from lab_sandbox.faults.plan import FaultPlanError
from lab_sandbox.order_command import order
from lab_sandbox.resource_store import ResourceStoreError
from lab_sandbox.server import AddressInUseError, serve

app = typer.Typer(no_args_is_help=True, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def sandbox() -> None:
    """A sandbox of the exchange service, for laboratories, partners and tests."""


@app.command()
def run(
    config: Annotated[
        Path | None, typer.Option(help="TOML file with the settings; without it, a built-in demo configuration.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Base address in code systems; `auto` follows host and port.")] = None,
    faults: Annotated[Path | None, typer.Option(help="TOML file with a fault plan.")] = None,
    strict: Annotated[bool | None, typer.Option(help="Refuse and do what an STU3 server does; see docs/sandbox.md.")] = None,
    fault_admin: Annotated[bool | None, typer.Option(help="Allow fault plans over HTTP at /sandbox/faults.")] = None,
    log_requests: Annotated[bool | None, typer.Option(help="Log each request.")] = None,
) -> None:
    """Run the service until it is stopped; prints its address once it listens."""
    try:
        options = {
            "host": host,
            "port": port,
            "base_url": base_url,
            "faults": str(faults) if faults else None,
            "strict": strict,
            "fault_admin": fault_admin,
            "log_requests": log_requests,
        }
        settings = _apply_options(load_config(config), {key: value for key, value in options.items() if value is not None})
        serve(settings, lambda address: typer.echo(f"listening on {address}"))
    except (ConfigError, FaultPlanError, ResourceStoreError, AddressInUseError) as exc:
        typer.echo(str(exc), err=True)
        raise typer.Exit(2) from exc


def _apply_options(settings: SandboxConfig, options: dict[str, object]) -> SandboxConfig:
    return read_config({**settings.model_dump(), **options}, "options")


app.command()(order)
add_commands(app)


def main() -> None:
    """The entry point of the console script."""
    app()

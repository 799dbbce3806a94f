"""`lab-sandbox …`: parses, calls, prints."""

from pathlib import Path
from typing import Annotated

import typer

from lab_sandbox.config import ConfigError, SandboxConfig, load_config, read_config
from lab_sandbox.demo.cli import add_commands
from lab_sandbox.faults.plan import FaultPlanError
from lab_sandbox.resource_store import ResourceStoreError
from lab_sandbox.server import AddressInUseError, serve

app = typer.Typer(no_args_is_help=True, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def sandbox() -> None:
    """The exchange service in a box, for laboratories, partners and tests."""


@app.command()
def run(
    config: Annotated[Path | None, typer.Option(help="A TOML file; without it, a built-in demo world.")] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = None,
    base_url: Annotated[str | None, typer.Option(help="The base address in code systems; `auto` follows the port.")] = None,
    faults: Annotated[Path | None, typer.Option(help="A TOML file of faults to play.")] = None,
    fault_admin: Annotated[bool | None, typer.Option(help="Whether faults can be set over HTTP at /sandbox/faults.")] = None,
    log_requests: Annotated[bool | None, typer.Option(help="Whether each request is logged.")] = None,
) -> None:
    """Run the service until it is stopped; prints one line with its address when it listens."""
    try:
        given = {
            "host": host,
            "port": port,
            "base_url": base_url,
            "faults": str(faults) if faults else None,
            "fault_admin": fault_admin,
            "log_requests": log_requests,
        }
        settings = _apply_options(load_config(config), {key: value for key, value in given.items() if value is not None})
        serve(settings, lambda address: typer.echo(f"listening on {address}"))
    except (ConfigError, FaultPlanError, ResourceStoreError, AddressInUseError) as exc:
        typer.echo(str(exc), err=True)
        raise typer.Exit(2) from exc


def _apply_options(settings: SandboxConfig, options: dict[str, object]) -> SandboxConfig:
    return read_config({**settings.model_dump(), **options}, "options")


add_commands(app)


def main() -> None:
    """The entry point of the console script."""
    app()

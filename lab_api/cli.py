"""`lab-api`: serve the laboratory's API, check its catalogue, and make hashes for its clients."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lab_agent import exact_json, logs
from lab_agent.catalogue import basket as baskets
from lab_agent.catalogue import explain as explanation
from lab_agent.catalogue import preanalytics
from lab_agent.catalogue.load import load
from lab_agent.crypto import Passwords, hash_token, new_token
from lab_agent.errors import DataInvalidError, LabAgentError, Problem
from lab_agent.settings.root import load_settings
from lab_api.app import create_app
from lab_api.served import Shelf
from lab_api.server import Server, listen

app = typer.Typer(name="lab-api", help="The laboratory's public API.", no_args_is_help=True, pretty_exceptions_enable=False)
Config = Annotated[Path, typer.Option("--config", "-c", envvar="LAB_AGENT_CONFIG", help="Settings file (TOML).")]
_errors = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)


@app.command()
def run(config: Config) -> None:
    """Serve until SIGTERM; SIGHUP reads the catalogue again."""
    settings = load_settings(config)
    logs.configure(settings.logging)
    shelf = Shelf(settings.api.catalogue, lambda: datetime.now(UTC))
    if not settings.api.tokens and not settings.api.basic:
        logs.get_logger(__name__).warning("no client may call: set api.tokens or api.basic", action="api.no_clients")
    Server(create_app(settings.api, shelf), shelf, settings.api).run([listen(settings.api)])


@app.command()
def check(config: Config) -> None:
    """Check the settings and the catalogue, without serving."""
    catalogue = load(load_settings(config).api.catalogue)
    offers = ", ".join(f"{code} ({len(contract.items)} items)" for code, contract in catalogue.contracts.items())
    typer.echo(f"catalogue {catalogue.version}: {offers}")
    bare = {item.id for contract in catalogue.contracts.values() for item in contract.items.values() if not item.requirements}
    if bare:
        typer.echo(f"note: no biomaterial, and so no tube, for {', '.join(sorted(bare))}")


@app.command()
def explain(config: Config, basket: Annotated[Path, typer.Argument(help="A pre-analytics request, as JSON.")]) -> None:
    """Say how the tubes of a basket come about."""
    settings = load_settings(config).api
    catalogue = load(settings.catalogue)
    try:
        body = exact_json.loads(basket.read_bytes())
    except OSError as exc:
        raise DataInvalidError(
            (Problem(str(basket), f"cannot be read: {exc.strerror}", "name a file with the request"),)
        ) from exc
    asked = baskets.read(body, catalogue.contracts, settings.max_basket)
    for line in explanation.explain(preanalytics.calculate(catalogue, asked.lines)):
        typer.echo(line)


@app.command("new-token")
def token() -> None:
    """Make a bearer token: the client gets the token, the settings get the hash."""
    fresh = new_token()
    typer.echo(f"token:  {fresh}\nsha256: {hash_token(fresh)}")


@app.command()
def hash_password(password: Annotated[str, typer.Option(prompt=True, hide_input=True, confirmation_prompt=True)]) -> None:
    """Make the hash of a password for [[api.basic]]."""
    typer.echo(Passwords().hash(password))


def main() -> None:
    """Run the command line; an error of ours is one clear sentence (or one for each problem) and exit code 1."""
    try:
        app()
    except LabAgentError as exc:
        _errors.print(str(exc))
        raise SystemExit(1) from exc

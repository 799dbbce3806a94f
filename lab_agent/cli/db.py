"""`lab-agent db …`: the database's schema."""

from __future__ import annotations

import typer

from lab_agent.cli.options import Config
from lab_agent.cli.shown import say
from lab_agent.settings.masked import mask_address
from lab_agent.settings.root import load_settings
from lab_agent.store.migrate import upgrade as upgrade_schema

app = typer.Typer(help="The database.", no_args_is_help=True)


@app.callback()
def db() -> None:
    """The database."""


@app.command()
def upgrade(config: Config = None) -> None:
    """Make the database, or bring it to this program's schema. Harmless when repeated; nothing is lost."""
    settings = load_settings(config)
    upgrade_schema(settings.store.url)
    say(f"{mask_address(settings.store.url)} has the schema of this program.")

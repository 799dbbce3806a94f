"""`lab-agent db …`: the database's schema."""

from __future__ import annotations

import typer

from lab_agent.cli.options import ConfigOption
from lab_agent.cli.shown import print_line
from lab_agent.settings.masked import mask_url_password
from lab_agent.settings.root import load_settings
from lab_agent.store.migrate import upgrade as upgrade_schema

db_app = typer.Typer(help="The database.", no_args_is_help=True)


@db_app.callback()
def db_callback() -> None:
    """The database."""


@db_app.command()
def upgrade(config: ConfigOption = None) -> None:
    """Make the database, or bring it to this program's schema. Harmless when repeated; nothing is lost."""
    settings = load_settings(config)
    upgrade_schema(settings.store.url)
    print_line(f"{mask_url_password(settings.store.url)} has the schema of this program.")

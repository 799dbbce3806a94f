"""`lab-agent adapter sql …`: the staging tables that the sql adapter needs in the laboratory's database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab_agent import bootstrap
from lab_agent.cli.adapter_try import try_messages
from lab_agent.cli.context import ConfigOption
from lab_agent.lis.sql import SqlSettings
from lab_agent.lis.sql.staging_tables import DIALECTS, create_statements, dialect_name
from lab_agent.settings.root import load_settings
from lab_agent.shared.errors import Problem, SettingsError

sql_app = typer.Typer(help="Tables of the sql adapter, and what it reads.", no_args_is_help=True)
sql_app.command("try", hidden=True)(try_messages)


@sql_app.command("ddl")
def sql_ddl(
    config: ConfigOption = None,
    table: Annotated[str, typer.Option(help="Name of the laboratory system: the table lis.NAME in the settings.")] = "sql",
    dialect: Annotated[str | None, typer.Option(help=f"Dialect, without settings: {', '.join(DIALECTS)}.")] = None,
) -> None:
    """Print the SQL that creates the staging tables in the laboratory's database."""
    if dialect is not None:
        typer.echo(create_statements(dialect, "lab_"), nl=False)
        return
    settings = _sql_settings(config, table)
    typer.echo(
        create_statements(dialect_name(settings.url.get_secret_value()), settings.table_prefix, settings.table_schema), nl=False
    )


def _sql_settings(config: Path | None, table: str) -> SqlSettings:
    """The settings of the adapter, loaded as `lab-agent adapter list` does, so that mistakes are reported alike."""
    settings = load_settings(config)
    status = next((each for each in bootstrap.build_adapters(settings).statuses if each.name == table), None)
    if status is None:
        problem = Problem(f"lis.{table}", "does not exist", "name the table with --table, or the dialect with --dialect")
        raise SettingsError((problem,))
    if not status.is_loaded:
        raise SettingsError(status.problems)
    own = {key: value for key, value in settings.lis.tables[table].items() if key != "adapter"}
    return SqlSettings.model_validate(own)

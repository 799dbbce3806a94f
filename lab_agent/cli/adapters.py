"""`lab-agent adapters`: the laboratory systems of the settings, and the kinds of adapter that are installed.

`lab-agent adapter …`: a new adapter's project, and what the built-in ones need at the laboratory's end.

`lab-agent schema …`: what laboratory systems are given and what they give, as JSON Schema.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from lab_agent import bootstrap
from lab_agent.cli.context import ConfigOption, JsonOption
from lab_agent.cli.output import print_error, print_json, print_list
from lab_agent.errors import Problem, SettingsError
from lab_agent.lis.adapter_template import create_project
from lab_agent.lis.registry import ENTRY_POINT_GROUP
from lab_agent.lis.sql import SqlSettings
from lab_agent.lis.sql.staging_tables import DIALECTS, create_statements, dialect_name
from lab_agent.serialization import message_schema, order_schema
from lab_agent.settings.root import load_settings

adapter_app = typer.Typer(
    help="Write an adapter of your own, or prepare the laboratory's end of a built-in one.", no_args_is_help=True
)
sql_app = typer.Typer(help="What the sql adapter needs.", no_args_is_help=True)
adapter_app.add_typer(sql_app, name="sql")


@adapter_app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the adapter, such as my-lis.")],
    parent: Annotated[Path, typer.Option("--in", help="Folder that the project's folder is made in.")] = Path(),
) -> None:
    """Write a small installable project that passes the contract suite, to be changed into an adapter of your own."""
    for path in create_project(name, parent):
        typer.echo(path)
    print_error(f"Next: pip install -e {parent / name}, and pytest in it.")


@sql_app.command("ddl")
def sql_ddl(
    config: ConfigOption = None,
    table: Annotated[str, typer.Option(help="Name of the laboratory system: the table lis.NAME of the settings.")] = "sql",
    dialect: Annotated[str | None, typer.Option(help=f"Dialect, without any settings: {', '.join(DIALECTS)}.")] = None,
) -> None:
    """Print the statements that make the staging tables in the laboratory's own database."""
    if dialect is not None:
        typer.echo(create_statements(dialect, "lab_"), nl=False)
        return
    settings = _sql_settings(config, table)
    typer.echo(
        create_statements(dialect_name(settings.url.get_secret_value()), settings.table_prefix, settings.table_schema), nl=False
    )


def _sql_settings(config: Path | None, table: str) -> SqlSettings:
    """Read the adapter's table, by way of loading it: what is wrong is said as `lab-agent adapters` says it."""
    settings = load_settings(config)
    status = next((each for each in bootstrap.build_adapters(settings).statuses if each.name == table), None)
    if status is None:
        problem = Problem(f"lis.{table}", "is not there", "name the table with --table, or the dialect with --dialect")
        raise SettingsError((problem,))
    if not status.is_loaded:
        raise SettingsError(status.problems)
    own = {key: value for key, value in settings.lis.tables[table].items() if key != "adapter"}
    return SqlSettings.model_validate(own)


def list_adapters(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the laboratory systems that the settings name, and whether their adapters could be loaded."""
    settings = load_settings(config)
    statuses = bootstrap.build_adapters(settings).statuses
    rows = [
        {
            "name": status.name,
            "adapter": status.kind,
            "default": status.name == settings.lis.default,
            "loaded": status.is_loaded,
            "package": status.source,
            "repeats_are_harmless": status.idempotent,
            "reason": status.reason,
        }
        for status in statuses
    ]
    print_list(rows, as_json=as_json, empty_text="The settings name no laboratory system.")
    if not as_json:
        kinds = sorted({door.name for door in entry_points(group=ENTRY_POINT_GROUP)})
        print_error(f"Installed kinds: {', '.join(kinds) or 'none'}.")
    if not all(status.is_loaded for status in statuses):
        raise typer.Exit(1)


schema_app = typer.Typer(help="JSON Schemas of what goes to a laboratory system and comes from it.", no_args_is_help=True)


@schema_app.command()
def order() -> None:
    """Print the JSON Schema of an order, as an adapter gets it."""
    print_json(order_schema())


@schema_app.command()
def result() -> None:
    """Print the JSON Schema of a result or a refusal, as an adapter gives it."""
    print_json(message_schema())

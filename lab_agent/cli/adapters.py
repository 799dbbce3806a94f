"""`lab-agent adapters` and `adapter …`: configured and installed adapters, a project for a new one, and what the
built-in ones need in the laboratory.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from lab_agent import bootstrap
from lab_agent.cli.adapter_try import try_messages
from lab_agent.cli.context import ConfigOption, JsonOption
from lab_agent.cli.output import print_error, print_list
from lab_agent.errors import Problem, SettingsError
from lab_agent.lis.adapter_template import create_project
from lab_agent.lis.registry import ENTRY_POINT_GROUP
from lab_agent.lis.sql import SqlSettings
from lab_agent.lis.sql.staging_tables import DIALECTS, create_statements, dialect_name
from lab_agent.settings.root import load_settings

_NAME = "NAME"
"""How help and docs/commands.md call any laboratory system."""


class _AdapterGroup(TyperGroup):
    """`adapter NAME try`: a name that is no command of this group is that of a laboratory system."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), _NAME]

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or self._named_group()

    @property
    def documented_commands(self) -> Mapping[str, Any]:
        """All commands, for the page of commands."""
        return {**self.commands, _NAME: self._named_group()}

    def _named_group(self) -> Any:
        found = typer.main.get_command(named_app)
        found.name = _NAME
        return found


named_app = typer.Typer(
    help="What the laboratory system NAME sends (a table lis.NAME, or a kind of adapter).", no_args_is_help=True
)
named_app.command("try")(try_messages)


@named_app.callback()
def _named_callback() -> None:
    """Keep `try` a command of a group."""


adapter_app = typer.Typer(
    help="Try captured messages, create your own adapter, or prepare the laboratory system for a built-in one.",
    no_args_is_help=True,
    cls=_AdapterGroup,
)
sql_app = typer.Typer(help="Tables of the sql adapter, and what it reads.", no_args_is_help=True)
sql_app.command("try", hidden=True)(try_messages)
adapter_app.add_typer(sql_app, name="sql")


@adapter_app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the adapter, such as my-lis.")],
    parent: Annotated[Path, typer.Option("--in", help="Folder in which to create the project.")] = Path(),
) -> None:
    """Create a small installable project that passes the contract suite, as a starting point for your own adapter."""
    for path in create_project(name, parent):
        typer.echo(path)
    print_error(f"Next: run `pip install -e {parent / name}`, then pytest in that folder.")


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
    """The settings of the adapter, loaded as `lab-agent adapters` does, so that mistakes are reported alike."""
    settings = load_settings(config)
    status = next((each for each in bootstrap.build_adapters(settings).statuses if each.name == table), None)
    if status is None:
        problem = Problem(f"lis.{table}", "does not exist", "name the table with --table, or the dialect with --dialect")
        raise SettingsError((problem,))
    if not status.is_loaded:
        raise SettingsError(status.problems)
    own = {key: value for key, value in settings.lis.tables[table].items() if key != "adapter"}
    return SqlSettings.model_validate(own)


def list_adapters(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the configured laboratory systems, and whether their adapters were loaded."""
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
    print_list(rows, as_json=as_json, empty_text="No laboratory system is configured.")
    if not as_json:
        kinds = sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})
        print_error(f"Installed adapters: {', '.join(kinds) or 'none'}.")
    if not all(status.is_loaded for status in statuses):
        raise typer.Exit(1)

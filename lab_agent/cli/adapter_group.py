"""`lab-agent adapter …`: laboratory systems listed, tried and paused, and a project for a new adapter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from lab_agent.cli.adapter_try import try_messages
from lab_agent.cli.lazy_commands import CommandSource, LazyCommand
from lab_agent.cli.output import print_error
from lab_agent.lis.adapter_template import create_project

_NAME = "NAME"
"""How help and docs/commands.md call any laboratory system."""


_LAZY = {
    "list": CommandSource(
        "lab_agent.cli.adapters:list_adapters", "List the configured laboratory systems, and whether their adapters were loaded."
    ),
    "pause": CommandSource(
        "lab_agent.cli.adapter_pause:pause",
        "Hand over, cancel and verify nothing at a laboratory system until it is resumed; its results are still taken in.",
    ),
    "resume": CommandSource("lab_agent.cli.adapter_pause:resume", "Let a paused laboratory system go on where it stopped."),
    "sql": CommandSource("lab_agent.cli.sql_tables:sql_app", "Tables of the sql adapter, and what it reads."),
}


class _AdapterGroup(TyperGroup):
    """`adapter NAME try`: a name that is no command of this group is that of a laboratory system."""

    def __init__(self, *, commands: Mapping[str, Any], **attributes: Any) -> None:
        lazy = {name: LazyCommand(name, source) for name, source in _LAZY.items()}
        super().__init__(commands={**commands, **lazy}, **attributes)

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
    help="Laboratory systems: list them, try captured messages, pause one, create your own adapter.",
    no_args_is_help=True,
    cls=_AdapterGroup,
)


@adapter_app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the adapter, such as my-lis.")],
    parent: Annotated[Path, typer.Option("--in", help="Folder in which to create the project.")] = Path(),
) -> None:
    """Create a small installable project that passes the contract suite, as a starting point for your own adapter."""
    for path in create_project(name, parent):
        typer.echo(path)
    print_error(f"Next: run `pip install -e {parent / name}`, then pytest in that folder.")

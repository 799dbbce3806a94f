"""Commands whose modules are imported when they are called, so that a command pays for nothing but what it does.

Help lists and shell completion need a command's name and its line of help alone. Both stand in a table here, and a test holds
the lines against the commands' own.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

from lab_agent.cli import command_log

COMPLETION_VARIABLE = "_LAB_AGENT_COMPLETE"
"""Set by the script of a shell's completion, which asks the program what may follow."""
ALL_OPTION = "--all"
_LISTS_ALL = "lab_agent.lists_all"


@dataclass(frozen=True, slots=True)
class CommandSource:
    """Where a command is: `module:name` of a function or of a `typer.Typer`; and its line in the list of commands."""

    target: str
    help: str


class LazyCommand(TyperCommand):
    """A command, or a group of commands, that is imported when it is called."""

    def __init__(self, name: str, source: CommandSource) -> None:
        super().__init__(name, help=source.help)
        self._target = source.target

    def load(self) -> Any:
        """Import the command; it takes the place of this one in everything that follows."""
        module, _, attribute = self._target.partition(":")
        with paused_garbage_collection():
            command = _build_command(getattr(import_module(module), attribute))
        command_log.configure_if_imported()
        command.name = self.name
        return command

    @override
    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments with the command itself: its context, which knows it, is what runs or completes."""
        return self.load().make_context(info_name, args, parent, **extra)


def lazy_group(sources: Mapping[str, CommandSource], brief: Collection[str] = ()) -> type[TyperGroup]:
    """Make a class of groups: after a group's own commands come these, in this order.

    Where `brief` names commands, help lists them alone, until it is asked for with `--all`. Completion knows every command.
    """

    class LazyGroup(TyperGroup):
        def __init__(self, *, commands: Mapping[str, Any], **attributes: Any) -> None:
            lazy = {name: LazyCommand(name, source) for name, source in sources.items()}
            super().__init__(commands={**commands, **lazy}, **attributes)

        @override
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            ctx.meta[_LISTS_ALL] = not brief or ALL_OPTION in args  # help is printed while the arguments are parsed
            return super().parse_args(ctx, args)

        @override
        def format_help(self, ctx: Any, formatter: Any) -> None:
            listed = self.commands
            if not ctx.meta.get(_LISTS_ALL, True):
                self.commands = {name: listed[name] for name in brief}
            try:
                super().format_help(ctx, formatter)
            finally:
                self.commands = listed

    return LazyGroup


def load_command(command: Any) -> Any:
    """Give the command itself, where it is one that is imported when it is called; else the command as it is."""
    return command.load() if isinstance(command, LazyCommand) else command


def prepare_completion() -> None:
    """Make the shells known, if one of them asks; nothing else pays for that."""
    if COMPLETION_VARIABLE in os.environ:
        from typer._completion_classes import completion_init  # noqa: PLC0415 - only where a shell asks

        completion_init()


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Importing makes very many objects and leaves no garbage: looking for it again and again is a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _build_command(found: Any) -> Any:
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    single = typer.Typer(add_completion=False)
    single.command()(found)
    return typer.main.get_command(single)

"""What commands do to all that waits for one cause: say first what will be done, ask, do it, and say what was left as it is."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

import typer

from lab_agent.cli.output import print_json, print_line
from lab_agent.orders.group_actions import ActionOutcome, ActionPreview, LeftOut
from lab_agent.shared.errors import InputError

T = TypeVar("T")
CauseOption = Annotated[
    str | None, typer.Option("--cause", help="All that wait for this cause, instead of one. See `lab-agent status`.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True, slots=True)
class AllOf:
    """All that wait for this cause, instead of one thing."""

    cause: str


def choose(one: T | None, cause: str | None, name: str) -> T | AllOf:
    """What a command is about: one thing, or all of a cause. Raises `InputError` unless exactly one of the two was named."""
    if one is not None and cause is None:
        return one
    if cause is not None and one is None:
        return AllOf(cause)
    raise InputError(f"Give either {name} or --cause. Nothing was changed.")


@dataclass(frozen=True, slots=True)
class GroupCommand:
    """The options of a command about all of a cause: whether to ask first, and how to print."""

    yes: bool
    as_json: bool

    async def decide(
        self, preview: Awaitable[ActionPreview], act: Callable[[], Awaitable[ActionOutcome]]
    ) -> ActionOutcome | None:
        """Say what will be done, ask, and do it; None where there is nothing to do. Raises `typer.Abort` for a no."""
        return await act() if _confirm(await preview, yes=self.yes, quiet=self.as_json) else None

    def print(self, outcome: ActionOutcome | None) -> None:
        """Print to how many it was done."""
        _print_outcome(outcome, as_json=self.as_json)


def _confirm(preview: ActionPreview, *, yes: bool, quiet: bool) -> bool:
    """Print what an action will do, and ask. False if there is nothing to do. Raises `typer.Abort` for a no."""
    if not quiet:
        for sentence in preview.does:
            print_line(sentence)
        _print_left_out(preview.left_out)
    if not preview.number:
        if not quiet:
            print_line("Nothing to do.")
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"this changes {preview.number} at once; add --yes if you are sure", param_hint="--yes")
    return typer.confirm(f"Do this to all {preview.number}?", abort=True)


def _print_outcome(outcome: ActionOutcome | None, *, as_json: bool) -> None:
    """Print to how many it was done; None where there was nothing to do."""
    found = outcome or ActionOutcome(0)
    if as_json:
        print_json(found)
        return
    if outcome is not None:
        print_line(f"done: {found.done}")
        _print_left_out(found.left_out)


def _print_left_out(left_out: tuple[LeftOut, ...]) -> None:
    for each in left_out:
        print_line(f"{each.number} left as they are: {each.why}")

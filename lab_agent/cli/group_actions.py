"""What commands do to all that waits for one cause: say first what will be done, ask, do it, and say what was left as it is."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lab_agent.cli.output import print_json, print_line
from lab_agent.errors import InputError
from lab_agent.workflow.operator_groups import ActionOutcome, ActionPreview, LeftOut

CauseOption = Annotated[
    str | None, typer.Option("--cause", help="All that wait for this cause, instead of one. See `lab-agent outbox causes`.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def require_one(one: object | None, cause: str | None, name: str) -> None:
    """Raise `InputError` unless either one thing or a cause was named."""
    if (one is None) is (cause is None):
        raise InputError(f"Give either {name} or --cause. Nothing was changed.")


def confirm(preview: ActionPreview, *, yes: bool, quiet: bool) -> bool:
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


def print_outcome(outcome: ActionOutcome | None, *, as_json: bool) -> None:
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

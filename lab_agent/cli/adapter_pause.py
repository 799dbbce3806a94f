"""`lab-agent adapter pause` and `resume`: a laboratory system is told nothing for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from lab_agent.cli.context import ByOption, CommandContext, ConfigOption, operator_name, run_with_store
from lab_agent.cli.output import print_line
from lab_agent.orders.job_actions import validate_note
from lab_agent.orders.pause_actions import pause_adapter, resume_adapter
from lab_agent.shared.errors import InputError, did_you_mean
from lab_agent.store.unit_of_work import UnitOfWork

_NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The laboratory system: a table lis.NAME of the settings.")]
_ReasonOption = Annotated[str, typer.Option("--reason", help="Why; it is kept in the audit.")]


def pause(name: _NameArgument, reason: _ReasonOption, config: ConfigOption = None, by: ByOption = None) -> None:
    """Hand over, cancel and verify nothing at a laboratory system until it is resumed; its results are still taken in."""
    note = validate_note(reason)

    async def work(context: CommandContext) -> None:
        known = context.settings.lis.tables
        if name not in known:
            hint = did_you_mean(name, known) or "`lab-agent adapter list` lists them"
            raise InputError(f"There is no laboratory system {name!r} in the settings; {hint}. Nothing was changed.")

        def write(uow: UnitOfWork) -> None:
            pause_adapter(uow, name, by=operator_name(by), note=note, now=context.now)

        await context.store.transact(write)

    run_with_store(config, work)
    print_line(f"{name} is paused: what is for it waits. Resume it with `lab-agent adapter resume {name} --reason …`.")


def resume(name: _NameArgument, reason: _ReasonOption, config: ConfigOption = None, by: ByOption = None) -> None:
    """Let a paused laboratory system go on where it stopped."""
    note = validate_note(reason)

    async def work(context: CommandContext) -> None:
        def write(uow: UnitOfWork) -> None:
            resume_adapter(uow, name, by=operator_name(by), note=note, now=context.now)

        await context.store.transact(write)

    run_with_store(config, work)
    print_line(f"{name} is resumed: what has waited for it goes on within seconds.")

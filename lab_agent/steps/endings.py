"""How lines end: completed by a delivered report, or cancelled with the reason that the clinic will read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from lab_agent.domain import effects
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.journal import LineRecord
from lab_agent.domain.lifecycle import ENDED_LINES, LineState
from lab_agent.domain.quoting import join_limited
from lab_agent.ports.store import UnitOfWork

_RESULT_STATES = frozenset({LineState.RESULTED, LineState.COMPLETED})


def complete_lines(uow: UnitOfWork, order: OrderKey, keys: Iterable[LineKey], now: datetime) -> None:
    """End those of the lines that are open as completed; their Tasks follow."""
    wanted = set(keys)
    for line in uow.orders.lines(order):
        if line.key in wanted and line.state not in ENDED_LINES:
            completed = line.transition_to(LineState.COMPLETED, now)
            uow.orders.save_line(completed)
            uow.jobs.add(effects.update_line_task(completed, effects.TASK_COMPLETED, now))


def cancel_lines(uow: UnitOfWork, order: OrderKey, reasons: Mapping[LineKey, str], now: datetime) -> tuple[LineKey, ...]:
    """End those of the lines that wait for a result as cancelled, each with its reason; their Tasks follow. Gives which moved.

    One that is resulted stays: a final result of it is on its way.
    """
    moved = []
    for line in uow.orders.lines(order):
        if line.key in reasons and line.state is LineState.ACCEPTED:
            cancelled = line.transition_to(LineState.CANCELLED, now, (reasons[line.key],))
            uow.orders.save_line(cancelled)
            uow.jobs.add(effects.update_line_task(cancelled, effects.TASK_CANCELLED, now))
            moved.append(line.key)
    return tuple(moved)


def lines_with_result(lines: Iterable[LineRecord], keys: Collection[LineKey]) -> tuple[LineKey, ...]:
    """Those of the lines that have a final result already, on the service or on its way there."""
    return tuple(line.key for line in lines if line.key in keys and line.state in _RESULT_STATES)


def describe_existing_result(keys: Collection[LineKey]) -> str:
    """Say of lines that a message calls not performed that they have a result, and what a person's release would do."""
    mend = "send a corrected report, or tell the clinic; released, only lines that still wait are cancelled"
    return f"{join_limited(keys)}, which has a final result already — {mend}"

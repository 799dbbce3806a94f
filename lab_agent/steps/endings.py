"""How lines end: completed by a delivered report, or cancelled with the reason that the clinic will read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from lab_agent.domain import effects
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.lifecycle import ENDED_LINES, LineState
from lab_agent.ports.store import UnitOfWork


def complete_lines(uow: UnitOfWork, order: OrderKey, keys: Iterable[LineKey], now: datetime) -> None:
    """End those of the lines that are open as completed; their Tasks follow."""
    wanted = set(keys)
    for line in uow.orders.lines(order):
        if line.key in wanted and line.state not in ENDED_LINES:
            completed = line.become(LineState.COMPLETED, now)
            uow.orders.save_line(completed)
            uow.effects.add(effects.line_task(completed, effects.COMPLETED, now))


def cancel_lines(uow: UnitOfWork, order: OrderKey, reasons: Mapping[LineKey, str], now: datetime) -> None:
    """End those of the lines that are open as cancelled, each with its reason; their Tasks follow."""
    for line in uow.orders.lines(order):
        if line.key in reasons and line.state not in ENDED_LINES:
            cancelled = line.become(LineState.CANCELLED, now, (reasons[line.key],))
            uow.orders.save_line(cancelled)
            uow.effects.add(effects.line_task(cancelled, effects.CANCELLED, now))

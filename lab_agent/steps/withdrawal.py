"""Withdrawal: the partner or the service ended a line or an order; the LIS is told, and it is closed here.

Only what is still open moves: a line that has ended before stays as it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from lab_agent.domain import effects
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.journal import Event, JobKind, LineRecord
from lab_agent.domain.lifecycle import ENDED_LINES, JobState, LineState, OrderState
from lab_agent.ports.store import UnitOfWork

_BEFORE_HANDOVER = frozenset({OrderState.SEEN, OrderState.HELD, OrderState.FETCHED})


def withdraw_line(uow: UnitOfWork, key: LineKey, now: datetime, reason: str) -> None:
    """Withdraw one line, if it is open."""
    line = uow.orders.line(key)
    if line is not None:
        withdraw_lines(uow, line.order, [line], now, reason)


def withdraw_lines(uow: UnitOfWork, key: OrderKey, lines: Sequence[LineRecord], now: datetime, reason: str) -> None:
    """Withdraw those of the lines that are open; tell the LIS if the order went there, or is on its way."""
    order = uow.orders.get_for_update(key)
    open_lines = [line for line in lines if line.state not in ENDED_LINES]
    if not open_lines:
        return
    for line in open_lines:
        uow.orders.save_line(line.transition_to(LineState.WITHDRAWN, now, (reason,)))
    names = ", ".join(line.key for line in open_lines)
    uow.events.add(Event(order=key, at=now, action="withdrawn", text=f"lines {names}: {reason}"))
    for line in open_lines:
        uow.alerts.close(late_line_alert_key(line.key), now=now)
    told = [line.key for line in open_lines if line.state is not LineState.HELD]  # a held one never went to the LIS
    if not told:
        return
    if order.state in {OrderState.HANDED_OVER, OrderState.REPORTED} or _is_submit_started(uow, key):
        uow.jobs.add(effects.cancel_at_lis(key, told, reason, now))
    elif order.state in _BEFORE_HANDOVER and all(line.state in ENDED_LINES for line in uow.orders.lines(key)):
        uow.orders.save(order.transition_to(OrderState.REJECTED, now, "every line was refused or withdrawn before the handover"))


def withdraw_order(uow: UnitOfWork, key: OrderKey, now: datetime, reason: str) -> None:
    """Withdraw an order with all its open lines."""
    withdraw_lines(uow, key, uow.orders.lines(key), now, reason)
    order = uow.orders.get_for_update(key)
    if order.state is not OrderState.CLOSED:
        uow.orders.save(order.transition_to(OrderState.WITHDRAWN, now, reason))


def _is_submit_started(uow: UnitOfWork, key: OrderKey) -> bool:
    return any(
        job.kind is JobKind.SUBMIT_ORDER and (job.started or job.state is not JobState.DUE)
        for job in uow.jobs.list_for_order(key)
    )


def late_line_alert_key(line: LineKey) -> str:
    """Name of the alert of a line that came after its order had been judged."""
    return f"line.{line}.late"

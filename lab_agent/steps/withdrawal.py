"""Withdrawal: the partner or the service ended a line or an order; the LIS is told, and it is closed here.

Only what is still open moves: a line that has ended before stays as it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from lab_agent.domain import effects
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.journal import EffectKind, Event, LineRecord
from lab_agent.domain.lifecycle import ENDED_LINES, EffectState, LineState, OrderState
from lab_agent.ports.store import UnitOfWork

_NOT_YET_HANDED_OVER = frozenset({OrderState.SEEN, OrderState.HELD, OrderState.FETCHED})


def withdraw_line(uow: UnitOfWork, key: LineKey, now: datetime, reason: str) -> None:
    """Withdraw one line, if it is open."""
    line = uow.orders.line(key)
    if line is not None:
        withdraw_lines(uow, line.order, [line], now, reason)


def withdraw_lines(uow: UnitOfWork, key: OrderKey, lines: Sequence[LineRecord], now: datetime, reason: str) -> None:
    """Withdraw those of the lines that are open; tell the LIS if the order went there, or is on its way."""
    order = uow.orders.take(key)
    open_lines = [line for line in lines if line.state not in ENDED_LINES]
    if not open_lines:
        return
    for line in open_lines:
        uow.orders.save_line(line.become(LineState.WITHDRAWN, now, (reason,)))
    names = ", ".join(line.key for line in open_lines)
    uow.book.tell(Event(order=key, at=now, action="withdrawn", text=f"lines {names}: {reason}"))
    for line in open_lines:
        uow.book.close_alert(late_alert(line.key), now=now)
    told = [line.key for line in open_lines if line.state is not LineState.HELD]  # a held one never went to the LIS
    if not told:
        return
    if order.state in {OrderState.HANDED_OVER, OrderState.REPORTED} or _handover_begun(uow, key):
        uow.effects.add(effects.lis_cancel(key, told, reason, now))
    elif order.state in _NOT_YET_HANDED_OVER and all(line.state in ENDED_LINES for line in uow.orders.lines(key)):
        uow.orders.save(order.become(OrderState.REFUSED, now, "every line was refused or withdrawn before the handover"))


def withdraw_order(uow: UnitOfWork, key: OrderKey, now: datetime, reason: str) -> None:
    """Withdraw an order with all its open lines."""
    withdraw_lines(uow, key, uow.orders.lines(key), now, reason)
    order = uow.orders.take(key)
    if order.state is not OrderState.CLOSED:
        uow.orders.save(order.become(OrderState.WITHDRAWN, now, reason))


def _handover_begun(uow: UnitOfWork, key: OrderKey) -> bool:
    return any(
        effect.kind is EffectKind.HANDOVER and (effect.begun or effect.state is not EffectState.DUE)
        for effect in uow.effects.of_order(key)
    )


def late_alert(line: LineKey) -> str:
    """Name of the alert of a line that came after its order had been judged."""
    return f"line.{line}.late"

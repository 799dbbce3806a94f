"""What follows for the order once its lines have ended: its own Task, and its end."""

from __future__ import annotations

from datetime import datetime

from lab_agent.domain import effects
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.journal import Effect, EffectKind, Event, LineRecord, OrderRecord
from lab_agent.domain.lifecycle import ENDED_LINES, LineState, OrderState
from lab_agent.ports.store import UnitOfWork

_SETTLE_FIRST = frozenset({EffectKind.LINE_TASK, EffectKind.DELIVER, EffectKind.HANDOVER, EffectKind.LIS_CANCEL})

_NOT_DECIDED = frozenset({OrderState.SEEN, OrderState.HELD})


def order_task_status(lines: tuple[LineRecord, ...]) -> str:
    """Status of the order-level Task once every line has ended: completed if at least one line was, else cancelled.

    Source: the interface does not show it; this is our one policy function for it.
    """
    return effects.COMPLETED if any(line.state is LineState.COMPLETED for line in lines) else effects.CANCELLED


def follow(uow: UnitOfWork, key: OrderKey, now: datetime, *, ending: Effect | None = None) -> None:
    """Let the order follow its lines: nothing happens until every line has ended and its effects (but `ending`) are settled."""
    order = uow.orders.take(key)
    lines = uow.orders.lines(key)
    if any(line.state not in ENDED_LINES for line in lines) or (not lines and order.state in _NOT_DECIDED):
        return
    waiting = (effect for effect in uow.effects.of_order(key) if ending is None or effect.id != ending.id)
    if any(effect.kind in _SETTLE_FIRST for effect in waiting):
        return
    if order.state is OrderState.WITHDRAWN:
        _close(uow, order, now, "withdrawn by the partner or the service")
    elif order.state in {OrderState.HANDED_OVER, OrderState.REFUSED}:
        if order.state is OrderState.HANDED_OVER:
            uow.orders.save(order.become(OrderState.REPORTED, now))
        uow.effects.add(effects.order_task(key, order_task_status(lines), now))


def close(uow: UnitOfWork, key: OrderKey, now: datetime, text: str) -> None:
    """Close an order whose Task has been settled."""
    _close(uow, uow.orders.take(key), now, text)


def _close(uow: UnitOfWork, order: OrderRecord, now: datetime, text: str) -> None:
    uow.orders.save(order.become(OrderState.CLOSED, now, text))
    uow.book.tell(Event(order=order.key, at=now, action="closed", text=text))

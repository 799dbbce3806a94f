"""What follows for the order once its lines have ended: its own Task, and its end."""

from __future__ import annotations

from datetime import datetime

from lab_agent.domain import effects
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.journal import Event, Job, JobKind, LineRecord, OrderRecord
from lab_agent.domain.lifecycle import ENDED_LINES, LineState, OrderState
from lab_agent.ports.store import UnitOfWork

_BLOCKING_JOBS = frozenset({JobKind.UPDATE_LINE_TASK, JobKind.DELIVER_REPORT, JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS})

_UNDECIDED_STATES = frozenset({OrderState.SEEN, OrderState.HELD})


def order_task_status(lines: tuple[LineRecord, ...]) -> str:
    """Status of the order-level Task once every line has ended: completed if at least one line was, else cancelled.

    Source: the interface does not show it; this is our one policy function for it.
    """
    return effects.TASK_COMPLETED if any(line.state is LineState.COMPLETED for line in lines) else effects.TASK_CANCELLED


def advance_order(uow: UnitOfWork, key: OrderKey, now: datetime, *, completing: Job | None = None) -> None:
    """Let the order follow its lines: nothing happens until every line has ended and its effects (but `ending`) are settled."""
    order = uow.orders.get_for_update(key)
    lines = uow.orders.lines(key)
    if any(line.state not in ENDED_LINES for line in lines) or (not lines and order.state in _UNDECIDED_STATES):
        return
    waiting = (job for job in uow.jobs.list_for_order(key) if completing is None or job.id != completing.id)
    if any(job.kind in _BLOCKING_JOBS for job in waiting):
        return
    if order.state is OrderState.WITHDRAWN:
        _save_closed(uow, order, now, "withdrawn by the partner or the service")
    elif order.state in {OrderState.HANDED_OVER, OrderState.REJECTED}:
        if order.state is OrderState.HANDED_OVER:
            uow.orders.save(order.transition_to(OrderState.REPORTED, now))
        uow.jobs.add(effects.update_order_task(key, order_task_status(lines), now))


def close_order(uow: UnitOfWork, key: OrderKey, now: datetime, text: str) -> None:
    """Close an order whose Task has been settled."""
    _save_closed(uow, uow.orders.get_for_update(key), now, text)


def _save_closed(uow: UnitOfWork, order: OrderRecord, now: datetime, text: str) -> None:
    uow.orders.save(order.transition_to(OrderState.CLOSED, now, text))
    uow.events.add(Event(order=order.key, at=now, action="closed", text=text))

"""What comes back to life: orders that are offered again after their end, lines that are put back or come after the end.

An order that the laboratory system never had is assessed like a new one. What was there before is never handed over a second
time by itself: a person decides about its lines, as about late ones. Nothing of this is silent (law 11).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from lab_agent.orders.group_alerts import HELD_LINES_ALERT, open_at_once
from lab_agent.orders.line_lifecycle import hold_late_line
from lab_agent.orders.order_decision import hold_order
from lab_agent.orders.records import HoldCause, LineRecord, OrderHold, OrderRecord
from lab_agent.queue import jobs
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.jobs import TASK_REQUESTED
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.state_machines import ENDED_LINES, JobState, LineState, OrderState, WorkOrderState
from lab_agent.shared.text import join_limited
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import UnitOfWork

OFFERED_AGAIN_WITHOUT_LINES = OrderHold(
    HoldCause.OFFERED_AGAIN,
    "the order is offered again, but none of its lines is requested; it goes on when the partner requests lines again",
)
OFFERED_AGAIN_AFTER_HANDOVER = OrderHold(
    HoldCause.OFFERED_AGAIN,
    "the order is open again after the laboratory had it, but none of its lines is requested. Ask the partner what is wanted; "
    "the order goes on when lines are requested again, and ends when its Task is ended",
)


def is_possibly_submitted(uow: UnitOfWork, key: OrderKey, adapter: str | None = None) -> bool:
    """Whether a laboratory system may have the order, or its part of it; with `adapter`, whether that one may.

    A part may be there without a handover: somebody entered its lines by hand.
    """
    parts = (each for each in uow.orders.work_orders(key) if adapter in {None, each.adapter})
    if any(part.state is WorkOrderState.HANDED_OVER for part in parts):
        return True
    handovers = (each for each in uow.jobs.list_for_order(key, open_only=False) if each.kind is JobKind.SUBMIT_ORDER)
    mine = (each for each in handovers if adapter in {None, jobs.adapter_of(each)})
    return any(each.started or each.state is JobState.DONE for each in mine)


def find_lines_put_back(
    lines: Iterable[LineRecord], statuses: Mapping[str, str | None], *, order_offered: bool = False
) -> tuple[LineRecord, ...]:
    """Lines that had ended and are requested now. Pure.

    A line whose own Task never ended counts only where the whole order is offered again: it was withdrawn with its order.
    """
    ended = (line for line in lines if line.state in ENDED_LINES and statuses.get(line.task_id) == TASK_REQUESTED)
    return tuple(line for line in ended if line.ended_as is not None or (order_offered and line.state is LineState.WITHDRAWN))


def offer_again(uow: UnitOfWork, key: OrderKey, now: datetime, text: str) -> None:
    """Take up an order that the laboratory system never had, as if it were new: it is fetched, assessed and decided again."""
    order = _reopen(uow.orders.get_for_update(key), OrderState.SEEN, now)
    uow.orders.save(replace(order, seen_at=now, sent_statuses=()))
    uow.events.add(Event(order=key, at=now, action="offered_again", text=text))
    uow.jobs.add(jobs.fetch_order(key, now, order.reopened))


def hold_again(uow: UnitOfWork, key: OrderKey, now: datetime, hold: OrderHold, *, retry_at: datetime | None = None) -> None:
    """Hold an order that had been decided, and fetch it again (at `retry_at`, if not at once).

    What was stored of it may not be what is wanted now.
    """
    order = uow.orders.get_for_update(key)
    reopened = order.reopened + 1
    order = replace(order, seen_lines=None, received=None, recheck_at=None, reopened=reopened, released_findings=())
    uow.orders.save(order)
    hold_order(uow, key, None, now, hold)
    uow.jobs.add(jobs.fetch_order(key, retry_at or now, reopened))


def take_back(uow: UnitOfWork, key: OrderKey, now: datetime, hold: OrderHold, *, retry_at: datetime) -> None:
    """Take an accepted order back before its handover: it waits, and is assessed again from `retry_at` on.

    Not at once: a search that is behind would have it accepted again, and so on.
    """
    uow.orders.lock(key)
    for line in uow.orders.lines(key):
        if line.state is LineState.ACCEPTED:
            uow.orders.save_line(line.transition_to(LineState.REQUESTED, now))
    for part in uow.orders.work_orders(key):
        uow.orders.save_work_order(part.transition_to(WorkOrderState.CANCELLED, now, hold.text))
    hold_again(uow, key, now, hold, retry_at=retry_at)


def hold_lines_again(
    uow: UnitOfWork, key: OrderKey, back: Collection[LineKey], late: Sequence[LineRecord], now: datetime
) -> None:
    """Hold the lines of an order that the laboratory had: those that were put back, and new ones. A person decides."""
    order = uow.orders.get_for_update(key)
    if order.state in {OrderState.CLOSED, OrderState.HELD}:
        uow.orders.save(_reopen(order, OrderState.HANDED_OVER, now))
    for line in uow.orders.lines(key):
        if line.key in back and line.state in ENDED_LINES:
            _hold_line_again(uow, line, now)
    for line in late:
        hold_late_line(uow, line, now)


def reopen_for_held_lines(uow: UnitOfWork, key: OrderKey, now: datetime, ended_as: str) -> None:
    """Leave an order open whose Task we have ended with the status `ended_as`, as lines of it are held: a person decides."""
    order = uow.orders.get_for_update(key)
    if order.state is not OrderState.HANDED_OVER:
        order = order.transition_to(OrderState.HANDED_OVER, now)
    uow.orders.save(replace(order, ended_as=ended_as, reopened=order.reopened + 1))
    text = f"its Task is {ended_as}, but a line was held meanwhile; the order ends once a person has decided about it"
    uow.events.add(Event(order=key, at=now, action="left_open", text=text))


def hold_for_lines_after_the_end(tasks: Iterable[str]) -> OrderHold:
    """Why an order is held whose Task has ended: these line Tasks of it are requested."""
    names = join_limited(f"task/{task}" for task in tasks)
    hint = "Ask the partner to request the order again, or refuse it"
    text = f"its Task has ended, and these lines of it are requested: {names}. {hint}"
    return OrderHold(HoldCause.OFFERED_AGAIN, text)


def _hold_line_again(uow: UnitOfWork, line: LineRecord, now: datetime) -> None:
    uow.orders.save_line(line.reopen(LineState.HELD, now))
    text = f"line {line.key} (Task {line.task_id}) was {line.state.value} and is requested again; it is held"
    uow.events.add(Event(order=line.order, at=now, action="line_put_back", text=text))
    open_at_once(uow, HELD_LINES_ALERT, line.order, now, now)


def _reopen(order: OrderRecord, state: OrderState, now: datetime) -> OrderRecord:
    moved = order.transition_to(state, now)
    return replace(moved, seen_lines=None, recheck_at=None, reopened=order.reopened + 1, released_findings=())

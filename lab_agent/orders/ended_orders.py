"""Checks orders that have ended: some minutes after their end, and whenever their Task is requested again.

One that we have ended, and that has a line Task which somebody has set aside, is checked again after as long again as it has been
closed, and at least once a day: that line may be requested after all, and nothing else would show it.

What is decided:

- never handed over, and requested again: assessed like a new order, whatever it says now;
- never handed over, its Task ended by us, and lines requested (from a slow index, or put back): held with an alert;
- handed over before, and lines requested (put back, or new): these lines are held, and a person decides about them; but those
  whose reports are gone from the service, which was restored then, end again with them (`restored_service`);
- handed over before, and only the order-level Task is requested, or open with a status of ours: held with an alert;
- ended by the partner: what is left open in it is the partner's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto

import structlog

from lab_agent.exchange.service import Exchange
from lab_agent.orders.fetching import NO_STATUS, raise_if_unavailable
from lab_agent.orders.line_lifecycle import RECHECK_AFTER, LateLineFinder
from lab_agent.orders.order_tasks import KnownOrder, OrderTasks, load_known_order, read_order_tasks
from lab_agent.orders.records import LineRecord, OrderRecord
from lab_agent.orders.reopening import (
    OFFERED_AGAIN_AFTER_HANDOVER,
    hold_again,
    hold_for_lines_after_the_end,
    hold_lines_again,
    offer_again,
)
from lab_agent.orders.restored_service import find_lost_reports, send_lost_reports_again
from lab_agent.queue.jobs import TASK_REQUESTED
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import LabAgentError, ServicePaused, ServiceRejected, ServiceUnavailable, StoreUnreachableError
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey
from lab_agent.shared.state_machines import LineState, OrderState
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

_BATCH = 100
_LONGEST_RECHECK = timedelta(days=1)


class Revival(Enum):
    """What becomes of an order that had ended."""

    NONE = auto()
    ASSESS_AGAIN = auto()
    HOLD_LINES = auto()
    HOLD_ORDER = auto()


def decide_revival(known: KnownOrder, tasks: OrderTasks) -> Revival:
    """Decide what becomes of an order that had ended. Pure."""
    offered = tasks.status == TASK_REQUESTED
    if not offered and tasks.status not in known.order.sent_statuses:
        return Revival.NONE
    if known.submitted and tasks.has_open_lines:
        return Revival.HOLD_LINES
    if offered and not known.submitted:
        return Revival.ASSESS_AGAIN
    return Revival.HOLD_ORDER if tasks.has_open_lines or not tasks.has_ended else Revival.NONE


def find_next_check(order: OrderRecord, tasks: OrderTasks, now: datetime) -> datetime | None:
    """When a closed order that stays closed is checked again; None if it is not. Pure."""
    if not tasks.set_aside or tasks.status not in order.sent_statuses:
        return None
    return now + min(max(now - order.changed_at, RECHECK_AFTER), _LONGEST_RECHECK)


@dataclass(frozen=True, slots=True)
class EndedOrderChecker:
    """Checks closed orders whose `recheck_at` has come."""

    exchange: Exchange
    store: Store
    clock: Clock
    late_lines: LateLineFinder

    async def run(self) -> int:
        """Check the orders that are due; how many came back to life.

        Raises `StoreUnreachableError`, and `ServiceUnavailable` where the service does not answer or asks to wait: the others
        stay due.
        """
        due = await self.store.run_read_only(lambda uow: uow.orders.orders_to_recheck(now=self.clock.now(), limit=_BATCH))
        return sum([await self._try_check(order) for order in due])

    async def _try_check(self, order: OrderRecord) -> bool:
        """Check one order; what goes wrong with it alone is logged, and the others go on (law 9)."""
        try:
            return await self._check(order.key)
        except StoreUnreachableError:
            raise
        except LabAgentError as exc:
            if isinstance(exc, ServiceUnavailable):
                await self._raise_if_unavailable(order, exc)
            gone = isinstance(exc, ServiceRejected) and exc.status != NO_STATUS
            again = None if gone else self.clock.now() + RECHECK_AFTER
            log.debug("ended order not checked", action="ended_order_not_read", order=order.key, reason=str(exc))
            await self.store.transact(lambda uow: _set_next_check(uow, order.key, again))
            return False

    async def _raise_if_unavailable(self, order: OrderRecord, failure: ServiceUnavailable) -> None:
        """Raise unless it is about this order alone. One that makes the service ask everybody to wait goes after the others."""
        if failure.retry_after and not isinstance(failure, ServicePaused):
            again = self.clock.now() + timedelta(seconds=failure.retry_after) + RECHECK_AFTER
            await self.store.transact(lambda uow: _set_next_check(uow, order.key, again))
        await raise_if_unavailable(self.exchange, failure)

    async def _check(self, key: OrderKey) -> bool:
        known = await self.store.run_read_only(lambda uow: load_known_order(uow, key))
        tasks = await read_order_tasks(self.exchange, known, self.late_lines.line_codes, strict=False)
        revival = Revival.NONE if tasks is None else decide_revival(known, tasks)
        if tasks is None or revival is Revival.NONE:
            again = None if tasks is None else find_next_check(known.order, tasks, self.clock.now())
            await self.store.transact(lambda uow: _set_next_check(uow, key, again))
            return False
        late = await self.late_lines.find_in(key, tasks.new) if revival is Revival.HOLD_LINES else ()
        lost = await self._find_lost(known, tasks) if revival is Revival.HOLD_LINES else frozenset()
        return await self.store.transact(lambda uow: self._apply(uow, known, tasks, revival, late, lost))

    async def _find_lost(self, known: KnownOrder, tasks: OrderTasks) -> frozenset[ReportKey]:
        """Reports that are gone from the service, where lines that they may have completed were put back."""
        has_result = any(line.state is LineState.COMPLETED for line in tasks.back)
        return await find_lost_reports(self.exchange, self.store, known.order.key, tasks.back) if has_result else frozenset()

    def _apply(
        self,
        uow: UnitOfWork,
        known: KnownOrder,
        tasks: OrderTasks,
        revival: Revival,
        late: tuple[LineRecord, ...],
        lost: frozenset[ReportKey],
    ) -> bool:
        key, now = known.order.key, self.clock.now()
        if uow.orders.get_for_update(key) != known.order:  # another worker was faster
            return False
        back: tuple[LineKey, ...] = tuple(line.key for line in tasks.back)
        if revival is Revival.ASSESS_AGAIN:
            offer_again(uow, key, now, f"its Task was {known.order.ended_as} and is requested again")
        elif revival is Revival.HOLD_LINES:
            ending = send_lost_reports_again(uow, key, back, lost, now) if lost else frozenset()
            hold_lines_again(uow, key, [each for each in back if each not in ending], late, now)
        else:
            hold = OFFERED_AGAIN_AFTER_HANDOVER if known.submitted else hold_for_lines_after_the_end(tasks.open_lines)
            hold_again(uow, key, now, hold)
        log.warning("ended order came back", action="order_came_back", order=key, decision=revival.name.lower())
        return True


def recheck_now(uow: UnitOfWork, key: OrderKey, now: datetime) -> None:
    """Let a closed order be checked now."""
    order = uow.orders.get_for_update(key)
    if is_recheck_needed(order, now):
        uow.orders.save(replace(order, recheck_at=now))


def is_recheck_needed(order: OrderRecord, now: datetime) -> bool:
    """Whether an order that is to be checked now is closed, and not due for that already."""
    return order.state is OrderState.CLOSED and (order.recheck_at is None or order.recheck_at > now)


def _set_next_check(uow: UnitOfWork, key: OrderKey, at: datetime | None) -> None:
    order = uow.orders.get_for_update(key)
    if order.state is OrderState.CLOSED:
        uow.orders.save(replace(order, recheck_at=at))

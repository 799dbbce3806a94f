"""Intake, first half: ask the exchange service for requested orders and record the new ones (interface: Daily flow 7)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from lab_agent.exchange.service import Exchange
from lab_agent.orders.ended_orders import is_recheck_needed, recheck_now
from lab_agent.orders.records import OrderRecord
from lab_agent.queue import jobs
from lab_agent.shared.clock import Clock
from lab_agent.shared.ids import OrderKey, ResourceId, order_key
from lab_agent.store.event_records import Event
from lab_agent.store.read_models import LAST_POLL_KEY
from lab_agent.store.unit_of_work import Store, UnitOfWork

INDEX_LAG = timedelta(minutes=2)
"""How long after its end an order may still be found in status requested: search indexes are slow."""
BATCH = 100
"""How many new orders are written in one unit of work: few transactions for many orders, and none that others wait for long."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KnownTasks:
    """What is stored of the order-level Tasks that a poll found."""

    stored: frozenset[str]
    put_back: tuple[OrderKey, ...]
    """Orders that ended some time ago, and whose Tasks are requested all the same."""


@dataclass(frozen=True, slots=True)
class OrderPoller:
    """Searches order-level Tasks in status requested; known ones are dropped before anything else is read.

    One whose order has ended is left to the check of ended orders. Order keys are derived from `base_url`.
    """

    exchange: Exchange
    store: Store
    clock: Clock
    base_url: str

    async def run(self) -> int:
        """Poll once; the number of orders that are new. Raises what the exchange port raises.

        The new ones are written batch by batch, and the success of the poll with the last of them.
        """
        found = await self._find_tasks()
        known = await self.store.run_read_only(lambda uow: self._load_known(uow, found))
        new = [ResourceId(task) for task in found if task not in known.stored]
        *others, last = [*_batches(new)] or [()]
        return sum([await self._add_orders(batch) for batch in others]) + await self._add_orders(last, known)

    async def _find_tasks(self) -> tuple[str, ...]:
        tasks = await self.exchange.requested_order_tasks()
        return tuple(dict.fromkeys(task["id"] for task in tasks if isinstance(task.get("id"), str)))

    def _load_known(self, uow: UnitOfWork, found: Collection[str]) -> KnownTasks:
        now, stored = self.clock.now(), uow.orders.existing(found)
        ended = [order for order in uow.orders.ended_orders(stored) if now - order.changed_at >= INDEX_LAG]
        return KnownTasks(stored, tuple(order.key for order in ended if is_recheck_needed(order, now)))

    async def _add_orders(self, tasks: Sequence[ResourceId], known: KnownTasks | None = None) -> int:
        """Write new orders in one unit of work, and with `known` the poll's success; how many were new.

        Those that another worker has written since our look are left to it.
        """
        new = await self.store.transact(lambda uow: self._write(uow, tasks, known))
        for key in new:
            log.info("order seen", action="order_seen", order=key)
        return len(new)

    def _write(self, uow: UnitOfWork, tasks: Sequence[ResourceId], known: KnownTasks | None) -> Collection[OrderKey]:
        now, keys = self.clock.now(), {order_key(self.base_url, task): task for task in tasks}
        new = uow.orders.add_new([OrderRecord(key=key, task_id=keys[key], seen_at=now, changed_at=now) for key in keys])
        uow.jobs.add_all([jobs.fetch_order(key, now) for key in keys if key in new])
        for key in [each for each in keys if each in new]:
            uow.events.add(Event(order=key, at=now, action="seen", text=f"Task {keys[key]} found in status requested"))
        if known is not None:
            uow.key_values.set(LAST_POLL_KEY, now.isoformat())
            for order in known.put_back:
                recheck_now(uow, order, now)
        return new


def _batches(tasks: Sequence[ResourceId]) -> Iterator[Sequence[ResourceId]]:
    """Each batch sorted: two workers that write the same orders at once then wait for each other in one direction only."""
    return (sorted(tasks[start : start + BATCH]) for start in range(0, len(tasks), BATCH))

"""Intake, first half: ask the exchange service for requested orders and record the new ones (interface: Daily flow 7)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

import structlog

from lab_agent.domain import jobs
from lab_agent.domain.ids import ResourceId, order_key
from lab_agent.domain.records import Event, OrderRecord
from lab_agent.errors import AlreadyExistsError
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.queries import LAST_POLL_KEY
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.workflow.ended_orders import recheck_now

INDEX_LAG = timedelta(minutes=2)
"""How long after its end an order may still be found in status requested: search indexes are slow."""

log = structlog.get_logger(__name__)


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
        """Poll once; the number of orders that are new. Raises what the exchange port raises."""
        tasks = await self.exchange.requested_order_tasks()
        found = list(dict.fromkeys(task["id"] for task in tasks if isinstance(task.get("id"), str)))
        known = await self.store.run(lambda uow: uow.orders.existing(found))
        new = [ResourceId(task_id) for task_id in found if task_id not in known]
        written = sum([await self._add_order(task_id) for task_id in new])
        await self.store.run(lambda uow: self._record_success(uow, known))
        return written

    async def _add_order(self, task_id: ResourceId) -> bool:
        now = self.clock.now()
        key = order_key(self.base_url, task_id)

        def write(uow: UnitOfWork) -> None:
            uow.orders.add(OrderRecord(key=key, task_id=task_id, seen_at=now, changed_at=now))
            uow.jobs.add(jobs.fetch_order(key, now))
            uow.events.add(Event(order=key, at=now, action="seen", text=f"Task {task_id} found in status requested"))
            uow.commit()

        try:
            await self.store.run(write)
        except AlreadyExistsError:  # another worker was faster: a success
            return False
        log.info("order seen", action="order_seen", order=key)
        return True

    def _record_success(self, uow: UnitOfWork, requested: Collection[str]) -> None:
        now = self.clock.now()
        uow.key_values.set(LAST_POLL_KEY, now.isoformat())
        for order in uow.orders.ended_orders(requested):
            if now - order.changed_at >= INDEX_LAG:
                recheck_now(uow, order.key, now)
        uow.commit()

"""Cancels withdrawn lines at the laboratory system that may have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lab_agent.lis.laboratory_system import AdapterSource
from lab_agent.orders.line_lifecycle import advance_order
from lab_agent.orders.reopening import is_possibly_submitted
from lab_agent.queue import jobs
from lab_agent.queue.job_handler import Lease
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import LisRejected
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class CancelOutcome:
    """What came of a cancellation, for the timeline. `is_without_order`: the laboratory system never got the order."""

    text: str
    is_without_order: bool = False


@dataclass(frozen=True, slots=True)
class CancelOrderHandler:
    """Cancels withdrawn lines at the laboratory system. Harmless when repeated, so nothing needs verification."""

    clock: Clock
    adapters: AdapterSource

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.CANCEL_AT_LIS})

    def load(self, uow: UnitOfWork, job: Job) -> CancelOutcome | None:
        """Load why the laboratory system is not told; None if it is."""
        name = jobs.adapter_of(job)
        if not is_possibly_submitted(uow, OrderKey(job.target), name):
            text = f"the laboratory system {name} never got the order, so nothing is cancelled there"
            return CancelOutcome(text, is_without_order=True)
        return None

    async def perform(self, lease: Lease, loaded: CancelOutcome | None) -> CancelOutcome:
        """Cancel the lines at the laboratory system, if it is to be told."""
        if loaded is not None:
            return loaded
        job = lease.job
        key, name = OrderKey(job.target), jobs.adapter_of(job)
        lines = tuple(LineKey(line) for line in job.payload["lines"])
        await lease.mark_started()
        try:
            await self.adapters.get(name).cancel(key, lines, job.payload["reason"])
        except LisRejected as rejection:
            return CancelOutcome(f"the laboratory system {name} did not cancel: {rejection}")
        return CancelOutcome(f"the laboratory system {name} was informed of the withdrawal")

    verify = perform

    def complete(self, uow: UnitOfWork, job: Job, result: CancelOutcome) -> Job:
        """Record what came of it."""
        now, key = self.clock.now(), OrderKey(job.target)
        uow.orders.get_for_update(key)
        if result.is_without_order and is_possibly_submitted(uow, key, jobs.adapter_of(job)):
            return job.reschedule(now, now, "the laboratory system may have got the order meanwhile")
        uow.events.add(Event(order=key, at=now, action="cancel_at_lis", text=result.text))
        advance_order(uow, key, now, completing=job)
        return job.complete(now, result.text)

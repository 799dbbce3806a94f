"""Handover: give a checked order to the laboratory system, once (law 2, law 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

import structlog

from lab_agent.domain import jobs
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.lab_order import LabOrder
from lab_agent.domain.records import Event, Job, JobKind, OrderRecord
from lab_agent.domain.state_machines import JobState, LineState, OrderState
from lab_agent.errors import LisRejected, PermanentFailure
from lab_agent.ports.clock import Clock
from lab_agent.ports.jobs import Completion, Lease
from lab_agent.ports.lis import AdapterSource, Lis, SubmitResult
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.serialization import join_identity
from lab_agent.serialization.identity import unpack_lab_patient
from lab_agent.workflow.accession_numbers import rematch_waiting_reports, save_submit_accessions
from lab_agent.workflow.line_lifecycle import advance_order

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SubmitOrderHandler:
    """Prepare, commit *prepared*, submit, commit *done*; after a crash, ask before anything is done again."""

    store: Store
    clock: Clock
    adapters: AdapterSource
    acknowledge_status: str | None = None
    """Task status that tells the partner of the handover; None: Tasks stay `requested` until they end."""

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.SUBMIT_ORDER})

    async def perform(self, lease: Lease) -> Completion:
        """Hand the order over, unless it was withdrawn meanwhile."""
        key = OrderKey(lease.job.target)
        record, order = await self.store.run(lambda uow: _load_order(uow, key))
        if record.state is not OrderState.FETCHED:
            return self._complete_not_needed(f"the order is {record.state.value}")
        if order is not None and not order.lines:
            return self._complete_not_needed("every line was withdrawn before the handover")
        if order is None:
            raise PermanentFailure("the identification data of this order was purged; it cannot be handed over any more")
        adapter = self.adapters.get(record.adapter)
        if not lease.job.started:
            await adapter.prepare(order)
            await lease.mark_started()
        receipt = await adapter.submit(order)
        log.info("order handed over", action="order_handed_over", order=key, adapter=record.adapter)
        return self._complete_submitted(receipt)

    async def verify(self, lease: Lease) -> Completion:
        """Ask the laboratory system whether it has the order; where nobody can tell, a person decides."""
        key = OrderKey(lease.job.target)
        record, _ = await self.store.run(lambda uow: _load_order(uow, key))
        adapter = self.adapters.get(record.adapter)
        match await adapter.was_received(key):
            case True:
                return self._complete_submitted(SubmitResult())
            case False:
                return lambda _, job: job.reschedule(self.clock.now(), self.clock.now(), "the laboratory system does not have it")
            case None if record.state is OrderState.FETCHED:
                return self._complete_unverifiable(adapter)
            case None:
                return self._complete_not_needed(
                    f"the order is {record.state.value}; the laboratory system is told so in any case"
                )

    def _complete_not_needed(self, reason: str) -> Completion:
        """Hand nothing over. An order whose lines were all withdrawn one by one is refused here, so that it comes to its end."""
        now = self.clock.now()

        def write(uow: UnitOfWork, job: Job) -> Job:
            key = OrderKey(job.target)
            order = uow.orders.get_for_update(key)
            lines = uow.orders.lines(key)
            if order.state is OrderState.FETCHED and any(line.state is LineState.ACCEPTED for line in lines):
                return job.reschedule(now, now, "the order changed meanwhile")
            if order.state is OrderState.FETCHED:
                uow.orders.save(order.transition_to(OrderState.REJECTED, now, reason))
            advance_order(uow, key, now, completing=job)
            return job.mark_obsolete(now, reason)

        return write

    def _complete_unverifiable(self, adapter: Lis) -> Completion:
        now = self.clock.now()
        if adapter.idempotent:
            return lambda _, job: job.reschedule(now, now, "the laboratory system tells repeats by the order's key")
        return lambda _, job: job.needs_review(
            now, "nobody can tell whether the laboratory system has this order: ask there, then retry it or mark it done"
        )

    def _complete_submitted(self, submit_result: SubmitResult) -> Completion:
        now = self.clock.now()

        def write(uow: UnitOfWork, job: Job) -> Job:
            key = OrderKey(job.target)
            order = uow.orders.get_for_update(key)
            uow.orders.save(_to_handed_over(order, now))
            save_submit_accessions(uow, key, submit_result)
            rematch_waiting_reports(uow, key, submit_result, now)
            self._add_acknowledgements(uow, key, now)
            uow.events.add(Event(order=key, at=now, action="handed_over", text=f"handed to {order.adapter}"))
            advance_order(uow, key, now, completing=job)
            return job.complete(now)

        return write

    def _add_acknowledgements(self, uow: UnitOfWork, key: OrderKey, now: datetime) -> None:
        if self.acknowledge_status is None or uow.orders.get_for_update(key).state is not OrderState.HANDED_OVER:
            return
        uow.jobs.add(jobs.update_order_task(key, self.acknowledge_status, now))
        for line in uow.orders.lines(key):
            if line.state is LineState.ACCEPTED:
                uow.jobs.add(jobs.update_line_task(line, self.acknowledge_status, now))


@dataclass(frozen=True, slots=True)
class CancelOrderHandler:
    """Tell the laboratory system that lines were withdrawn. Harmless when repeated, so nothing needs a look."""

    store: Store
    clock: Clock
    adapters: AdapterSource

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.CANCEL_AT_LIS})

    async def perform(self, lease: Lease) -> Completion:
        """Tell it."""
        job = lease.job
        key = OrderKey(job.target)
        record, went_there = await self.store.run(lambda uow: (uow.orders.get_for_update(key), _is_possibly_submitted(uow, key)))
        if not went_there:
            return self._complete("the laboratory system never got the order, and need not be told")
        lines = tuple(LineKey(line) for line in job.payload["lines"])
        await lease.mark_started()
        try:
            await self.adapters.get(record.adapter).cancel(key, lines, job.payload["reason"])
        except LisRejected as refusal:
            return self._complete(f"the laboratory system did not cancel: {refusal}")
        return self._complete("the laboratory system was told of the withdrawal")

    verify = perform

    def _complete(self, text: str) -> Completion:
        at = self.clock.now()

        def write(uow: UnitOfWork, job: Job) -> Job:
            key = OrderKey(job.target)
            uow.events.add(Event(order=key, at=at, action="cancel_at_lis", text=text))
            advance_order(uow, key, at, completing=job)
            return job.complete(at, text)

        return write


def _is_possibly_submitted(uow: UnitOfWork, key: OrderKey) -> bool:
    """Whether the laboratory system may have the order."""
    handovers = (each for each in uow.jobs.list_for_order(key, open_only=False) if each.kind is JobKind.SUBMIT_ORDER)
    return any(each.started or each.state is JobState.DONE for each in handovers)


def _load_order(uow: UnitOfWork, key: OrderKey) -> tuple[OrderRecord, LabOrder | None]:
    record = uow.orders.get_for_update(key)
    identity = uow.vault.identity(key)
    if record.lab_order is None or identity is None:
        return record, None
    patient = unpack_lab_patient(identity)
    if patient is None:
        return record, None
    order = join_identity(record.lab_order, patient)
    accepted = {line.key for line in uow.orders.lines(key) if line.state is LineState.ACCEPTED}
    return record, replace(order, lines=tuple(line for line in order.lines if line.key in accepted))


def mark_handed_over(uow: UnitOfWork, key: OrderKey, now: datetime) -> None:
    """Write that the laboratory system has the order, as a person found out."""
    uow.orders.save(_to_handed_over(uow.orders.get_for_update(key), now))


def _to_handed_over(order: OrderRecord, now: datetime) -> OrderRecord:
    """The order as the laboratory has it; one that was withdrawn meanwhile stays withdrawn."""
    return order.transition_to(OrderState.HANDED_OVER, now) if order.state is OrderState.FETCHED else order

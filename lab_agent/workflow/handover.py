"""Handover: submit an accepted order to the laboratory system once, and cancel withdrawn lines there (laws 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

import structlog

from lab_agent.domain import jobs
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.lab_order import LabOrder
from lab_agent.domain.records import Event, Job, JobKind, OrderRecord
from lab_agent.domain.state_machines import LineState, OrderState
from lab_agent.errors import LisRejected, PermanentFailure, TemporaryFailure
from lab_agent.ports.clock import Clock
from lab_agent.ports.job_handler import Lease
from lab_agent.ports.lis import AdapterSource, SubmitResult
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.serialization import join_identity
from lab_agent.serialization.identity import unpack_lab_patient
from lab_agent.settings.groups import WorkerSettings
from lab_agent.workflow.accession_numbers import rematch_waiting_reports, save_submit_accessions
from lab_agent.workflow.line_lifecycle import advance_order, withdraw_line, withdraw_order
from lab_agent.workflow.reopening import is_possibly_submitted, take_back
from lab_agent.workflow.task_standing import Standing, TaskInspector

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The laboratory system has the order, and has answered this."""

    answer: SubmitResult


@dataclass(frozen=True, slots=True)
class NotReceived:
    """The laboratory system does not have the order, or would recognise it: it is submitted again.

    `certain`: it does not have it, so that this handover begins anew, with the check of the Tasks.
    """

    reason: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class NotNeeded:
    """Nothing is handed over."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unverifiable:
    """It cannot be found out here whether the laboratory system has the order."""


@dataclass(frozen=True, slots=True)
class NotRequested:
    """Right before the handover, its Tasks were not all requested any more."""

    standing: Standing


SubmitOutcome = Submitted | NotReceived | NotNeeded | NotRequested | Unverifiable


@dataclass(frozen=True, slots=True)
class SubmitOrderHandler:
    """Read the Tasks once more, prepare, commit *started*, submit, commit *done*; after a crash, ask first."""

    store: Store
    clock: Clock
    adapters: AdapterSource
    inspector: TaskInspector
    settings: WorkerSettings

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.SUBMIT_ORDER})

    async def perform(self, lease: Lease) -> SubmitOutcome:
        """Hand the order over, unless it was withdrawn meanwhile."""
        key = OrderKey(lease.job.target)
        record, order = await self.store.run(lambda uow: _load_order(uow, key))
        if record.state is not OrderState.FETCHED:
            return NotNeeded(f"the order is {record.state.value}")
        if order is None:
            raise PermanentFailure("the identification data of this order was purged; it cannot be handed over any more")
        if not order.lines:
            return NotNeeded("every line was withdrawn before the handover")
        adapter = self.adapters.get(record.adapter)
        if not lease.job.started:
            if (standing := await self._inspect(record, lease.job)) != Standing():
                return NotRequested(standing)
            await adapter.prepare(order)
            await lease.mark_started()
        answer = await adapter.submit(order)
        log.info("order handed over", action="order_handed_over", order=key, adapter=record.adapter)
        return Submitted(answer)

    async def _inspect(self, order: OrderRecord, job: Job) -> Standing:
        """Inspect the Tasks. Raises `TemporaryFailure` for a while if only a read fails: a lost right or copy may come back."""
        lines = await self.store.run(lambda uow: uow.orders.lines(order.key))
        standing = await self.inspector.inspect(order, [line for line in lines if line.state is LineState.ACCEPTED])
        if standing.unreadable is None or standing.ended or standing.ended_lines or standing.waiting:
            return replace(standing, unreadable=None)
        since = job.failing_since if job.failure_cause is FailureCause.OTHER else None
        if since is None or self.clock.now() < since + timedelta(seconds=self.settings.unreadable_after):
            raise TemporaryFailure(standing.unreadable)
        return standing

    async def verify(self, lease: Lease) -> SubmitOutcome:
        """Ask the laboratory system whether it has the order; if it cannot say, a person decides."""
        key = OrderKey(lease.job.target)
        record = await self.store.run(lambda uow: uow.orders.get_for_update(key))
        adapter = self.adapters.get(record.adapter)
        match await adapter.was_received(key):
            case True:
                return Submitted(SubmitResult())
            case False:
                return NotReceived("the laboratory system does not have it")
            case None if record.state is not OrderState.FETCHED:
                return NotNeeded(f"the order is {record.state.value}; the laboratory system is informed of that in any case")
            case None:
                return (
                    NotReceived("the laboratory system recognises repeats by the order's key", certain=False)
                    if adapter.idempotent
                    else Unverifiable()
                )

    def complete(self, uow: UnitOfWork, job: Job, result: SubmitOutcome) -> Job:
        """Apply the outcome."""
        now = self.clock.now()
        match result:
            case Submitted(answer):
                return self._complete_submitted(uow, job, answer, now)
            case NotReceived(reason, certain):
                return replace(job.reschedule(now, now, reason), started=job.started and not certain)
            case NotNeeded(reason):
                return self._complete_not_needed(uow, job, reason, now)
            case NotRequested(standing):
                return self._complete_not_requested(uow, job, standing, now)
            case Unverifiable():
                return job.needs_review(
                    now, "it is not known whether the laboratory system has this order: ask there, then retry it or mark it done"
                )

    def _complete_submitted(self, uow: UnitOfWork, job: Job, answer: SubmitResult, now: datetime) -> Job:
        key = OrderKey(job.target)
        order = uow.orders.get_for_update(key)
        uow.orders.save(_to_handed_over(order, now))
        save_submit_accessions(uow, key, answer)
        rematch_waiting_reports(uow, key, answer, now)
        self._add_acknowledgements(uow, key, now)
        uow.events.add(Event(order=key, at=now, action="handed_over", text=f"handed to {order.adapter}"))
        if answer.unnamed_lines:
            text = (
                f"the laboratory system accepted the order, but its answer does not name {', '.join(answer.unnamed_lines)}: "
                "ask whether it has them"
            )
            uow.events.add(Event(order=key, at=now, action="lines_not_named", text=text))
        advance_order(uow, key, now, completing=job)
        return job.complete(now)

    def _complete_not_needed(self, uow: UnitOfWork, job: Job, reason: str, now: datetime) -> Job:
        """Hand nothing over. An order whose lines were withdrawn one by one is rejected here, so that it comes to its end."""
        key = OrderKey(job.target)
        order = uow.orders.get_for_update(key)
        if order.state is OrderState.FETCHED and any(line.state is LineState.ACCEPTED for line in uow.orders.lines(key)):
            return job.reschedule(now, now, "the order changed meanwhile")
        if order.state is OrderState.FETCHED:
            uow.orders.save(order.transition_to(OrderState.REJECTED, now, reason))
        advance_order(uow, key, now, completing=job)
        return job.mark_obsolete(now, reason)

    def _complete_not_requested(self, uow: UnitOfWork, job: Job, standing: Standing, now: datetime) -> Job:
        """Hand nothing over: what was ended is withdrawn, and what waits elsewhere waits here."""
        key = OrderKey(job.target)
        if uow.orders.get_for_update(key).state is not OrderState.FETCHED:
            return job.reschedule(now, now, "the order changed meanwhile")
        if standing.ended is not None:
            withdraw_order(uow, key, now, f"the order-level Task was set to {standing.ended} by somebody else", standing.ended)
        for line, status in standing.ended_lines:
            withdraw_line(uow, line, now, f"its Task was set to {status} by somebody else", status)
        if uow.orders.get_for_update(key).state is not OrderState.FETCHED:
            advance_order(uow, key, now, completing=job)
            return job.mark_obsolete(now, "it was withdrawn before the handover")
        reason = standing.waiting or standing.unreadable
        if reason is None:
            return job.reschedule(now, now, "lines were withdrawn before the handover")
        take_back(uow, key, now, reason, retry_at=now + timedelta(seconds=self.settings.hold_retry))
        log.warning("order held", action="order_held", order=key, rules=[])
        return job.mark_obsolete(now, reason)

    def _add_acknowledgements(self, uow: UnitOfWork, key: OrderKey, now: datetime) -> None:
        status = self.settings.acknowledge_status
        if status is None or uow.orders.get_for_update(key).state is not OrderState.HANDED_OVER:
            return
        uow.jobs.add(jobs.update_order_task(key, status, now, uow.orders.get_for_update(key).reopened))
        for line in uow.orders.lines(key):
            if line.state is LineState.ACCEPTED:
                uow.jobs.add(jobs.update_line_task(line, status, now))


@dataclass(frozen=True, slots=True)
class CancelOutcome:
    """What came of the cancellation, for the timeline."""

    text: str


@dataclass(frozen=True, slots=True)
class CancelOrderHandler:
    """Cancels withdrawn lines at the laboratory system. Harmless when repeated, so nothing needs verification."""

    store: Store
    clock: Clock
    adapters: AdapterSource

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.CANCEL_AT_LIS})

    async def perform(self, lease: Lease) -> CancelOutcome:
        """Cancel the lines at the laboratory system, if it may have them."""
        job = lease.job
        key = OrderKey(job.target)
        record, submitted = await self.store.run(lambda uow: (uow.orders.get_for_update(key), is_possibly_submitted(uow, key)))
        if not submitted:
            return CancelOutcome("the laboratory system never got the order, so nothing is cancelled there")
        lines = tuple(LineKey(line) for line in job.payload["lines"])
        await lease.mark_started()
        try:
            await self.adapters.get(record.adapter).cancel(key, lines, job.payload["reason"])
        except LisRejected as rejection:
            return CancelOutcome(f"the laboratory system did not cancel: {rejection}")
        return CancelOutcome("the laboratory system was informed of the withdrawal")

    verify = perform

    def complete(self, uow: UnitOfWork, job: Job, result: CancelOutcome) -> Job:
        """Record what came of it."""
        now, key = self.clock.now(), OrderKey(job.target)
        uow.events.add(Event(order=key, at=now, action="cancel_at_lis", text=result.text))
        advance_order(uow, key, now, completing=job)
        return job.complete(now, result.text)


def mark_handed_over(uow: UnitOfWork, key: OrderKey, now: datetime) -> None:
    """Record that the laboratory system has the order, as a person found out."""
    uow.orders.save(_to_handed_over(uow.orders.get_for_update(key), now))


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


def _to_handed_over(order: OrderRecord, now: datetime) -> OrderRecord:
    """The order as the laboratory has it; one that was withdrawn meanwhile stays withdrawn."""
    return order.transition_to(OrderState.HANDED_OVER, now) if order.state is OrderState.FETCHED else order

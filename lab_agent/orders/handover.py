"""Handover: submit the parts of an accepted order, each to its laboratory system, once (laws 2 and 3).

What one laboratory system does with its part holds back no other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

import structlog

from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import AdapterSource, SubmitResult
from lab_agent.lis.serialization import join_identity
from lab_agent.orders.accession_numbers import rematch_waiting_reports, save_submit_accessions
from lab_agent.orders.group_alerts import open_at_once, waiting_parts_alert_key
from lab_agent.orders.line_lifecycle import (
    advance_order,
    find_work_order,
    leave_line_out,
    settle_handover,
    withdraw_line,
    withdraw_order,
)
from lab_agent.orders.patient_data import unpack_lab_patient
from lab_agent.orders.records import HoldCause, LineRecord, OrderHold, OrderRecord
from lab_agent.orders.reopening import take_back
from lab_agent.orders.restored_store import load_restoration, note_second_agent
from lab_agent.orders.task_standing import Standing, TaskInspector
from lab_agent.queue import jobs
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_handler import Lease
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.queue.jobs import TASK_COMPLETED
from lab_agent.results.own_reports import OwnReports, find_report, last_change
from lab_agent.settings.groups import WorkerSettings
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import ForeignLink, InvalidResponse, PermanentFailure, ServiceRejected, TaskUnreadable
from lab_agent.shared.ids import OrderKey, WorkOrderKey
from lab_agent.shared.state_machines import JobState, LineState, OrderState, WorkOrderState
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import UnitOfWork

log = structlog.get_logger(__name__)

_NOT_BEGUN = frozenset({JobState.DUE, JobState.OBSOLETE, JobState.DISMISSED})
_RELEASE_RETRY = timedelta(seconds=10)  # as long as nobody has released the database
_WITHDRAWN = "it was withdrawn before the handover"
_AT_LABORATORY = frozenset({OrderState.FETCHED, OrderState.HANDED_OVER})
"""Orders of which a part was just handed over: others may still be on their way."""


@dataclass(frozen=True, slots=True)
class KnownPart:
    """A part of an order as it was stored when its job was claimed. Before it is submitted, that is checked again."""

    not_needed: str | None
    """Why it is not handed over any more."""
    order: OrderRecord
    lab_order: LabOrder | None
    """None where the identification data was purged."""
    lines: tuple[LineRecord, ...]
    """The lines that are to be handed over."""
    is_unsure: bool = False
    """Whether the laboratory system may have it although nothing says so: the database was restored from a backup."""
    others: tuple[LineRecord, ...] = ()
    """The lines of the order that were completed, though not by us as far as we know."""
    parts: tuple[WorkOrderKey, ...] = ()
    is_held: bool = False
    """Whether an operator has to release the database first."""


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


@dataclass(frozen=True, slots=True)
class Withheld:
    """Nothing is handed over before an operator has released the database. `found` shows that another agent has worked on it."""

    found: str = ""


SubmitOutcome = Submitted | NotReceived | NotNeeded | NotRequested | Withheld | Unverifiable


class _PartChangedError(Exception):
    """The part is not to be submitted as it was loaded; nothing was written or sent."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class SubmitOrderHandler:
    """Read the Tasks once more, prepare, commit *started*, submit, commit *done*; after a crash, ask first.

    A job is about one part of an order: the lines that go to one laboratory system.
    """

    clock: Clock
    adapters: AdapterSource
    inspector: TaskInspector
    own_reports: OwnReports
    settings: WorkerSettings

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.SUBMIT_ORDER})

    def load(self, uow: UnitOfWork, job: Job) -> KnownPart:
        """Load the part of the order, and why it is not handed over any more."""
        order = uow.orders.get(OrderKey(job.target))
        every = uow.orders.lines(order.key)
        lines = tuple(line for line in every if line.adapter == jobs.adapter_of(job))
        accepted = tuple(line for line in lines if line.state is LineState.ACCEPTED)
        restored = load_restoration(uow)
        is_unsure = restored is not None and restored.concerns(order.seen_at)
        others = tuple(each for each in every if each.ended_as == TASK_COMPLETED and TASK_COMPLETED not in each.sent_statuses)
        parts = tuple(each.key for each in uow.orders.work_orders(order.key))
        lab_order = _load_lab_order(uow, order, lines)
        is_held = restored is not None and restored.is_open
        return KnownPart(_not_needed_reason(uow, job, order), order, lab_order, accepted, is_unsure, others, parts, is_held)

    async def perform(self, lease: Lease, loaded: KnownPart) -> SubmitOutcome:
        """Hand the part over, unless it was withdrawn meanwhile."""
        key, name, order = OrderKey(lease.job.target), jobs.adapter_of(lease.job), loaded.lab_order
        if loaded.not_needed is not None:
            return NotNeeded(loaded.not_needed)
        if order is None:
            raise PermanentFailure("the identification data of this order was purged; it cannot be handed over any more")
        if not order.lines:
            return NotNeeded("every line was withdrawn before the handover")
        adapter = self.adapters.get(name)
        if not lease.job.started:
            if (obstacle := await self._find_obstacle(lease, loaded)) is not None:
                return obstacle
            await adapter.prepare(order)
            try:
                await lease.mark_started(lambda uow: _check_part(uow, lease.job, loaded))
            except _PartChangedError as changed:
                return NotNeeded(changed.reason)
        answer = await adapter.submit(order)
        log.info("order handed over", action="order_handed_over", order=key, adapter=name)
        return Submitted(answer)

    async def _find_obstacle(self, lease: Lease, loaded: KnownPart) -> SubmitOutcome | None:
        """Why the part is not to be handed over now, or not any more; None if nothing is in the way."""
        if loaded.is_held:  # its queue is held, too, but not in the very moment in which that is noticed
            return Withheld()
        if loaded.is_unsure and not isinstance(outcome := await self.verify(lease, loaded), NotReceived):
            await lease.mark_started()  # so that an operator who retries it has it submitted
            return outcome
        standing = await self._inspect(loaded, lease.job)
        if not loaded.is_unsure and (found := await self._find_other_maker(loaded, standing)):
            return Withheld(found)
        return None if standing == Standing() else NotRequested(standing)

    async def _inspect(self, part: KnownPart, job: Job) -> Standing:
        """Inspect the Tasks. Raises `TaskUnreadable` for a while if only a read fails: a lost right or copy may come back."""
        standing = await self.inspector.inspect(part.order, part.lines)
        if standing.unreadable is None or standing != Standing(unreadable=standing.unreadable):
            return replace(standing, unreadable=None)
        since = job.failing_since if job.failure_cause is FailureCause.TASK_UNREADABLE else None
        if since is None or self.clock.now() < since + timedelta(seconds=self.settings.unreadable_after):
            raise TaskUnreadable(standing.unreadable)
        return standing

    async def _find_other_maker(self, part: KnownPart, standing: Standing) -> str:
        """What shows that another agent of ours has worked on the order: a line that we never completed has a report of ours."""
        ended = {key for key, status in standing.ended_lines if status == TASK_COMPLETED}
        lines = [*part.others, *(each for each in part.lines if standing.ended == TASK_COMPLETED or each.key in ended)]
        if not lines:
            return ""
        try:
            reported = await self.own_reports.find_reported_by_others(part.parts)
        except (ServiceRejected, InvalidResponse, ForeignLink):  # then nobody can tell
            return ""
        found = ((each.task_id, find_report(reported, each.procedure_request_id)) for each in lines)
        done = next(((task, report) for task, report in found if report is not None), None)
        return "" if done is None else f"Task {done[0]} has a report of ours, {last_change(done[1])}"

    async def verify(self, lease: Lease, loaded: KnownPart) -> SubmitOutcome:
        """Ask the laboratory system whether it has the order; if it cannot say, a person decides."""
        key, reason = OrderKey(lease.job.target), loaded.not_needed
        adapter = self.adapters.get(jobs.adapter_of(lease.job))
        match await adapter.was_received(key):
            case True:
                return Submitted(SubmitResult())
            case False:
                return NotReceived("the laboratory system does not have it")
            case None if reason is not None:
                return NotNeeded(f"{reason}; the laboratory system is informed of that in any case")
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
            case Withheld(found):
                if found:
                    note_second_agent(uow, now, found, before=uow.orders.get(OrderKey(job.target)).seen_at)
                return job.reschedule(now, now + _RELEASE_RETRY, "the database waits for its release by an operator")
            case Unverifiable():
                doubt = f"it is not known whether the laboratory system {jobs.adapter_of(job)} has this order"
                reason = f"{doubt}: ask there, then retry it or mark it done"
                return job.needs_review(now, reason, FailureCause.LIS_OUTCOME_UNKNOWN)

    def _complete_submitted(self, uow: UnitOfWork, job: Job, answer: SubmitResult, now: datetime) -> Job:
        key, adapter = OrderKey(job.target), jobs.adapter_of(job)
        mark_handed_over(uow, key, adapter, now)
        if answer.accession or answer.tube_accessions or answer.line_accessions:
            save_submit_accessions(uow, key, adapter, answer)
        rematch_waiting_reports(uow, key, adapter, answer, now)
        self._add_acknowledgements(uow, key, adapter, now)
        uow.events.add(Event(order=key, at=now, action="handed_over", text=f"handed to {adapter}"))
        if answer.unnamed_lines:
            text = (
                f"the laboratory system accepted the order, but its answer does not name {', '.join(answer.unnamed_lines)}: "
                "ask whether it has them"
            )
            uow.events.add(Event(order=key, at=now, action="lines_not_named", text=text))
        advance_order(uow, key, now, completing=job)
        return job.complete(now)

    def _complete_not_needed(self, uow: UnitOfWork, job: Job, reason: str, now: datetime) -> Job:
        """Hand nothing over. A part whose lines were withdrawn one by one is cancelled here, so that the order can end."""
        key, adapter = OrderKey(job.target), jobs.adapter_of(job)
        order = uow.orders.get_for_update(key)
        if _not_needed_reason(uow, job, order) is None and _accepted_lines(uow, key, adapter):
            return job.reschedule(now, now, "the order changed meanwhile")
        if not is_of_earlier_decision(job, order):
            cancel_unsubmitted_part(uow, key, adapter, now, reason)
            self._acknowledge_order(uow, key, now)
        advance_order(uow, key, now, completing=job)
        return job.mark_obsolete(now, reason)

    def _complete_not_requested(self, uow: UnitOfWork, job: Job, standing: Standing, now: datetime) -> Job:
        """Hand nothing over yet: lines that were ended are withdrawn, those set aside are left out, and what waits waits here."""
        key, adapter = OrderKey(job.target), jobs.adapter_of(job)
        if _not_needed_reason(uow, job, uow.orders.get_for_update(key)) is not None:
            return job.reschedule(now, now, "the order changed meanwhile")
        if standing.ended is not None:
            withdraw_order(uow, key, now, f"the order-level Task was set to {standing.ended} by somebody else", standing.ended)
        for line, status in standing.set_aside:
            leave_line_out(uow, line, now, status)
        for line, status in standing.ended_lines:
            withdraw_line(uow, line, now, f"its Task was set to {status} by somebody else", status)
        if uow.orders.get_for_update(key).state is not OrderState.FETCHED:
            cancel_unsubmitted_part(uow, key, adapter, now, _WITHDRAWN)
            advance_order(uow, key, now, completing=job)
            return job.mark_obsolete(now, _WITHDRAWN)
        reason, retry_at = standing.waiting or standing.unreadable, now + timedelta(seconds=self.settings.hold_retry)
        if reason is None:
            return job.reschedule(now, now, "lines were withdrawn before the handover")
        if _is_sibling_started(uow, job):  # the order is at another laboratory system: only this part of it waits
            part = find_work_order(uow, key, adapter)
            since = part.waits_since or now
            uow.orders.save_work_order(replace(part, waits_since=since))
            open_at_once(uow, waiting_parts_alert_key(adapter), key, since, now)
            return job.reschedule(now, retry_at, reason)
        cause = HoldCause.UNREADABLE if standing.waiting is None else HoldCause.NOT_REQUESTED
        take_back(uow, key, now, OrderHold(cause, reason), retry_at=retry_at)
        log.warning("order held", action="order_held", order=key, rules=[])
        return job.mark_obsolete(now, reason)

    def _add_acknowledgements(self, uow: UnitOfWork, key: OrderKey, adapter: str, now: datetime) -> None:
        """Acknowledge the lines that the laboratory system has now, and the order once all of its parts are handed over."""
        status = self.settings.acknowledge_status
        if status is None or uow.orders.get_for_update(key).state not in _AT_LABORATORY:
            return
        self._acknowledge_order(uow, key, now)
        for line in _accepted_lines(uow, key, adapter):
            uow.jobs.add(jobs.update_line_task(line, status, now))

    def _acknowledge_order(self, uow: UnitOfWork, key: OrderKey, now: datetime) -> None:
        order, status = uow.orders.get_for_update(key), self.settings.acknowledge_status
        if status is not None and order.state is OrderState.HANDED_OVER:
            uow.jobs.add(jobs.update_order_task(key, status, now, order.reopened))


def mark_handed_over(uow: UnitOfWork, key: OrderKey, adapter: str, now: datetime) -> None:
    """Record that the laboratory system has its part of the order; one that was withdrawn meanwhile stays withdrawn."""
    uow.orders.save_work_order(find_work_order(uow, key, adapter).transition_to(WorkOrderState.HANDED_OVER, now))
    settle_handover(uow, key, now)


def cancel_unsubmitted_part(uow: UnitOfWork, key: OrderKey, adapter: str, now: datetime, reason: str) -> None:
    """Record that a laboratory system does not get its part of the order; the other parts go on."""
    part = find_work_order(uow, key, adapter)
    if part.state is WorkOrderState.ACCEPTED:
        uow.orders.save_work_order(part.transition_to(WorkOrderState.CANCELLED, now, reason))
    settle_handover(uow, key, now, reason)


def _accepted_lines(uow: UnitOfWork, key: OrderKey, adapter: str) -> tuple[LineRecord, ...]:
    lines = uow.orders.lines(key)
    return tuple(line for line in lines if line.adapter == adapter and line.state is LineState.ACCEPTED)


def _check_part(uow: UnitOfWork, job: Job, loaded: KnownPart) -> None:
    """Compare a part with what was loaded of it, under the lock of its order. Raises `_PartChangedError`.

    It may have been taken back since, decided anew, or have lost lines: `load` locks nothing, and the Tasks were looked at since.
    """
    order = uow.orders.get_for_update(OrderKey(job.target))
    if (reason := _not_needed_reason(uow, job, order)) is not None:
        raise _PartChangedError(reason)
    if _accepted_lines(uow, order.key, jobs.adapter_of(job)) != loaded.lines:
        raise _PartChangedError("its lines changed right before the handover")
    part = find_work_order(uow, order.key, jobs.adapter_of(job))
    if part.waits_since is not None:
        uow.orders.save_work_order(replace(part, waits_since=None))


def _not_needed_reason(uow: UnitOfWork, job: Job, order: OrderRecord) -> str | None:
    """Why a handover is not needed any more; None if it is."""
    if order.state is not OrderState.FETCHED:
        return f"the order is {order.state.value}"
    if is_of_earlier_decision(job, order):
        return "the order was decided anew"
    part = find_work_order(uow, order.key, jobs.adapter_of(job))
    return None if part.state is WorkOrderState.ACCEPTED else f"its part for {part.adapter} is {part.state.value}"


def is_of_earlier_decision(job: Job, order: OrderRecord) -> bool:
    """Whether the order was taken back and decided again since this handover was planned: that has jobs of its own."""
    return bool(job.payload["reopened"] != order.reopened)


def _is_sibling_started(uow: UnitOfWork, job: Job) -> bool:
    """Whether another laboratory system may have its part of the order, or is just about to get it."""
    handovers = (each for each in uow.jobs.list_for_order(OrderKey(job.target), open_only=False) if each.id != job.id)
    siblings = (each for each in handovers if each.kind is JobKind.SUBMIT_ORDER)
    same = (each for each in siblings if each.payload["reopened"] == job.payload["reopened"])
    return any(each.started or each.state not in _NOT_BEGUN for each in same)


def _load_lab_order(uow: UnitOfWork, record: OrderRecord, routed: Collection[LineRecord]) -> LabOrder | None:
    """The accepted ones of the lines that are routed to one laboratory system, and their specimens; None if it was purged."""
    identity = uow.vault.identity(record.key)
    if record.lab_order is None or identity is None:
        return None
    patient = unpack_lab_patient(identity)
    if patient is None:
        return None
    order = join_identity(record.lab_order, patient)
    accepted = {line.key for line in routed if line.state is LineState.ACCEPTED}
    keys = {line.key for line in routed}
    specimens = {each for line in order.lines if line.key in keys for each in line.specimens}
    return replace(
        order,
        lines=tuple(line for line in order.lines if line.key in accepted),
        specimens=tuple(specimen for specimen in order.specimens if specimen.id in specimens),
    )

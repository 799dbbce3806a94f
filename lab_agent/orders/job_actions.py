"""What a person decides about waiting jobs and tripped rules, one by one or all jobs that fail of one cause.

Every decision is recorded in the order's timeline, with who took it and why. Handovers whose outcome nobody knows are never
retried with others: a person asks at the laboratory system about each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.orders.audit_trail import note_decision
from lab_agent.orders.group_actions import PORTION, ActionOutcome, ActionPreview, GroupAction, LeftOut, change_in_portions
from lab_agent.orders.handover import cancel_unsubmitted_part, is_of_earlier_decision, mark_handed_over
from lab_agent.orders.line_lifecycle import advance_order, cancel_lines, close_order, record_line_end, reopen_lines
from lab_agent.orders.rejection_breaker import reset_rule
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import FailureGroup, Job, JobKind, ServiceMessage
from lab_agent.queue.jobs import TERMINAL_TASK_STATUSES, adapter_of
from lab_agent.results.result_versions import rematch_waiting_versions
from lab_agent.shared.errors import InputError, InvalidTransitionError, StoreError
from lab_agent.shared.ids import JobId, LineKey, OrderKey, ReportKey
from lab_agent.shared.state_machines import JOBS_NEEDING_OPERATOR, JobState, OrderState, ReportState
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import Store, UnitOfWork

MAX_NOTE_LENGTH = 500
WAITING_STATES = frozenset({JobState.DUE, *JOBS_NEEDING_OPERATOR})
"""States of jobs that a person may have done now."""
_CAN_BE_MARKED_DONE = frozenset(
    {JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS, JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK}
)
_REPORT_JOBS = frozenset({JobKind.MATCH_REPORT, JobKind.DELIVER_REPORT})
_RETRY_DESCRIPTIONS = {
    JobKind.FETCH_ORDER: "fetches and assesses the order now",
    JobKind.SUBMIT_ORDER: "hands the order to {system}",
    JobKind.CANCEL_AT_LIS: "cancels the withdrawn lines at {system}",
    JobKind.MATCH_REPORT: "searches for the order of this result again",
    JobKind.DELIVER_REPORT: "uploads the report; what is on the service already is not written twice",
    JobKind.UPDATE_LINE_TASK: "reads the Task and sets its status, unless somebody else has ended it",
    JobKind.UPDATE_ORDER_TASK: "reads the Task and sets its status, unless somebody else has ended it",
}


@dataclass(frozen=True, slots=True)
class JobChange:
    """What a person decided about a job: how it is called in the audit and in the timeline, and how the job is changed by it."""

    action: AuditAction
    description: str
    apply: Callable[[UnitOfWork, Job], Job]
    note: str | None = None


def validate_note(note: str) -> str:
    """Give the note on one line. Raises `InputError` if it is empty or too long."""
    text = " ".join(note.split())
    if not text:
        raise InputError("The note is empty. Say why; the note is kept in the timeline. Nothing was changed.")
    if len(text) > MAX_NOTE_LENGTH:
        raise InputError(f"The note has {len(text)} characters, the limit is {MAX_NOTE_LENGTH}. Nothing was changed.")
    return text


def describe_retry(kind: JobKind, state: JobState, adapter: str | None = None) -> str:
    """Say, before anybody presses the button, what a retry does; `adapter` is the laboratory system that the job goes to."""
    system = f"the laboratory system {adapter}" if adapter else "the laboratory system"
    if kind is JobKind.SUBMIT_ORDER and state is JobState.NEEDS_REVIEW:
        return f"hands the order to {system} AGAIN: do this only if it certainly is not there"
    return _RETRY_DESCRIPTIONS[kind].format(system=system)


def can_be_marked_done(kind: JobKind) -> bool:
    """Whether a person may mark it done; jobs of other kinds find out for themselves when they are retried."""
    return kind in _CAN_BE_MARKED_DONE


async def find_service_messages(store: Store, job: Job) -> tuple[ServiceMessage, ...]:
    """What the service said to the last attempts at a job, oldest first, for an operator alone; none once it was purged."""
    order = job.order
    messages = {} if order is None else await store.transact(lambda uow: uow.vault.service_messages(order))
    return messages.get(job.id, ())


async def retry_job(store: Store, job_id: JobId, *, by: str, now: datetime, note: str | None = None) -> Job:
    """Make a job due now. Raises `StoreError` if there is none, `InvalidTransitionError` if it has ended or is running."""

    return await _change_job(store, job_id, retrial(by, now, note), by=by, now=now)


def retrial(by: str, now: datetime, note: str | None = None) -> JobChange:
    """The change that makes a job due now; `note` says why, where that was asked."""

    def change(_: UnitOfWork, current: Job) -> Job:
        if current.is_waiting:  # what came of it is verified first, as always
            return replace(current, due_at=now, changed_at=now, gives_way=False)
        if current.state in JOBS_NEEDING_OPERATOR:
            # The person has checked: the next attempt starts afresh. Its age does not, nor why it failed, until one succeeds.
            return replace(current.reschedule(now, now, f"retried by {by}"), started=False, attempts=0)
        raise InvalidTransitionError(
            f"job {current.id} is {current.state.value}; only due jobs, dead letters and jobs to review can be retried"
        )

    return JobChange(AuditAction.JOB_RETRIED, f"retried ({note})" if note else "retried", change, note)


async def dismiss_job(store: Store, job_id: JobId, *, by: str, note: str, now: datetime) -> Job:
    """Leave a job undone for good; the lines of a part that is not handed over are cancelled, and the clinic reads the note.

    Raises as `retry_job` does, `InputError` for an empty or too long note, and `InvalidTransitionError` for an order that is not
    decided: reject that one.
    """
    return await _change_job(store, job_id, dismissal(validate_note(note), now), by=by, now=now)


def dismissal(reason: str, now: datetime) -> JobChange:
    """The change that leaves a job undone for good."""

    def change(uow: UnitOfWork, current: Job) -> Job:
        dismissed = current.dismiss(now, reason)
        if current.kind is JobKind.FETCH_ORDER:
            raise InvalidTransitionError("an order cannot be left undecided; fix what holds it, or `lab-agent orders refuse` it")
        if current.kind is JobKind.SUBMIT_ORDER:
            _cancel_unsubmitted_lines(uow, current, now, reason)
        if current.kind in _REPORT_JOBS:
            _dismiss_report(uow, current, now, reason)
        return dismissed

    return JobChange(AuditAction.JOB_DISMISSED, f"dismissed ({reason})", change, reason)


async def mark_job_done(store: Store, job_id: JobId, *, by: str, note: str, now: datetime) -> Job:
    """Mark a job as done, as a person found out elsewhere. Raises as `dismiss_job` does."""
    reason = validate_note(note)

    def change(uow: UnitOfWork, current: Job) -> Job:
        if not can_be_marked_done(current.kind):
            raise InvalidTransitionError(
                f"{current.kind.value} cannot be marked done; retry it: it finds out itself what has happened"
            )
        if current.kind is JobKind.SUBMIT_ORDER:
            mark_handed_over(uow, OrderKey(current.target), adapter_of(current), now)
        return current.complete(now, reason)

    marked = JobChange(AuditAction.JOB_MARKED_DONE, f"marked done ({reason})", change, reason)
    return await _change_job(store, job_id, marked, by=by, now=now)


@dataclass(frozen=True, slots=True)
class RetriedOrder:
    """The jobs that are due now, and the handovers that a person has to settle first, since nobody knows what came of them."""

    jobs: tuple[Job, ...]
    unverified: tuple[Job, ...]


async def retry_order(store: Store, order: OrderKey, *, by: str, now: datetime, note: str | None = None) -> RetriedOrder:
    """Make everything of an order that waits due now, but for handovers of which nobody knows what came of them.

    Raises `StoreError` if there is no such order, or nothing of it waits, and `InvalidTransitionError` if only such handovers do.
    """

    def waiting(uow: UnitOfWork) -> tuple[Job, ...]:
        uow.orders.get_for_update(order)
        return tuple(job for job in uow.jobs.list_for_order(order) if job.state in WAITING_STATES)

    found = await store.transact(waiting)
    if not found:
        raise StoreError(f"nothing of order {order} waits; there is nothing to retry")
    unverified = tuple(job for job in found if job.kind is JobKind.SUBMIT_ORDER and job.state is JobState.NEEDS_REVIEW)
    if len(unverified) == len(found):
        raise InvalidTransitionError(describe_unverified(unverified[0]))
    retried = [await retry_job(store, job.id, by=by, now=now, note=note) for job in found if job not in unverified]
    return RetriedOrder(tuple(retried), unverified)


def describe_unverified(job: Job) -> str:
    """Say of a handover whose outcome nobody knows what a person does about it."""
    return (
        f"it is not known whether the laboratory system {adapter_of(job)} has order {job.target}: ask there, then "
        f"`lab-agent outbox done {job.id}` if it is there, or `lab-agent outbox retry {job.id}` if it certainly is not"
    )


async def reset_tripped_rule(store: Store, rule: str, *, by: str, now: datetime) -> bool:
    """Let a tripped rule reject again. False if it was not tripped."""

    def write(uow: UnitOfWork) -> bool:
        was_tripped = reset_rule(uow, rule, now)
        if was_tripped:
            uow.jobs.make_due(JobKind.FETCH_ORDER, now=now)
            uow.audit.add(AuditEntry(at=now, action=AuditAction.RULE_RELEASED, subject=rule, by=by))
        return was_tripped

    return await store.transact(write)


def _dismiss_report(uow: UnitOfWork, job: Job, now: datetime, note: str) -> None:
    """Dismiss the result of a job: without it, one that was not matched would be in no list. One that waits stays where it is."""
    report = uow.reports.get_for_update(ReportKey(job.target))
    if job.kind is JobKind.MATCH_REPORT and report.state is not ReportState.RECEIVED:
        return
    uow.reports.save(report.transition_to(ReportState.DISMISSED, now, note))
    rematch_waiting_versions(uow, report, now)


def _cancel_unsubmitted_lines(uow: UnitOfWork, job: Job, now: datetime, note: str) -> None:
    """Cancel the lines that a laboratory system does not get; those of the others go on."""
    key, adapter = OrderKey(job.target), adapter_of(job)
    order = uow.orders.get_for_update(key)
    if is_of_earlier_decision(job, order):
        return
    if order.state is OrderState.FETCHED:
        mine = {line.key: note for line in uow.orders.lines(key) if line.adapter == adapter}
        cancel_lines(uow, key, mine, now)
    cancel_unsubmitted_part(uow, key, adapter, now, note)  # of a withdrawn order too: its part would stay accepted for ever


async def _change_job(store: Store, job_id: JobId, change: JobChange, *, by: str, now: datetime) -> Job:
    def write(uow: UnitOfWork) -> Job:
        current = uow.jobs.get(job_id)
        if current is None:
            raise StoreError(f"there is no job {job_id}; `lab-agent outbox list` shows them")
        return change_job(uow, current, change, by=by, now=now)

    return await store.transact(write)


def change_job(uow: UnitOfWork, current: Job, change: JobChange, *, by: str, now: datetime) -> Job:
    """Write a change that a person decided, and what follows from it. Raises `InvalidTransitionError`."""
    changed = change.apply(uow, current)
    uow.jobs.save(changed)
    report = ReportKey(changed.target) if changed.kind in _REPORT_JOBS else None
    details = {"job": int(current.id), "kind": current.kind.value}
    if report is not None or changed.order is not None:
        text = f"{current.kind.value} (job {current.id}) {change.description}"
        event = Event(order=changed.order, report=report, at=now, action="operator", text=text, by=by)
        note_decision(uow, event, change.action, note=change.note, details=details)
    else:
        uow.audit.add(AuditEntry(at=now, action=change.action, by=by, note=change.note, details=details))
    if changed.order is not None:
        _advance_order_after(uow, changed, changed.order, now)
    return changed


def _advance_order_after(uow: UnitOfWork, job: Job, order: OrderKey, now: datetime) -> None:
    """Let the order go on, now that the job does not block it any more."""
    if job.kind is JobKind.DELIVER_REPORT and job.state is JobState.DISMISSED:
        reopen_lines(uow, order, now)
    if uow.orders.get_for_update(order).state is OrderState.CLOSED:
        return
    status = job.payload.get("status")
    ended_as = status if job.state is JobState.DONE and status in TERMINAL_TASK_STATUSES else None
    if job.kind is JobKind.UPDATE_LINE_TASK and ended_as is not None:
        record_line_end(uow, order, LineKey(job.target), ended_as)
    if job.kind is JobKind.UPDATE_ORDER_TASK and job.state in {JobState.DONE, JobState.DISMISSED}:
        close_order(uow, order, now, "a person settled the order-level Task", ended_as)
    else:
        advance_order(uow, order, now, completing=job if job.state in {JobState.DONE, JobState.DISMISSED} else None)


_UNVERIFIED = "nobody knows whether the laboratory system has the order: ask there, and decide about each by itself"
_RUNNING = "running just now"
_DUE_ALREADY = "due already"
_TRIED_AGAIN = "tried again by themselves; only what was set aside can be dismissed"
_UNDECIDED = "an order cannot be left undecided; mend what holds it, or refuse it"


@dataclass(frozen=True, slots=True)
class JobGroup:
    """All open jobs whose last attempt failed of a cause; of one laboratory system or one kind alone, where that is given."""

    cause: FailureCause
    system: str | None = None
    kind: JobKind | None = None


async def preview_retry(store: Store, group: JobGroup) -> ActionPreview:
    """Say what retrying a group does. Nothing is written."""
    found = await _load_groups(store, group)
    unverified = sum(each.in_review for each in found if each.kind is JobKind.SUBMIT_ORDER)
    numbers: Counter[tuple[JobKind, str]] = Counter()
    for each in found:
        numbers[each.kind, each.system] += each.count - (each.in_review if each.kind is JobKind.SUBMIT_ORDER else 0)
    does = tuple(
        f"{number} × {kind.value}: each {describe_retry(kind, JobState.DUE, system or None)}"
        for (kind, system), number in sorted(numbers.items())
        if number
    )
    return ActionPreview(GroupAction.RETRY, numbers.total(), does, _left_out((unverified, _UNVERIFIED)))


async def retry_group(store: Store, group: JobGroup, *, by: str, now: datetime) -> ActionOutcome:
    """Make the jobs of a group due now; those whose outcome is unknown are verified first. Raises `StoreUnreachableError`."""

    def change(uow: UnitOfWork, seen: Job) -> str | None:
        job = uow.jobs.get(seen.id)
        if job is None or job.failing_since is None or job.state is JobState.IN_FLIGHT or job.lease_until is not None:
            return _RUNNING
        if _is_unverified(job):
            return _UNVERIFIED
        if job.state not in JOBS_NEEDING_OPERATOR and job.due_at <= now:
            return _DUE_ALREADY
        change_job(uow, job, retrial(by, now), by=by, now=now)
        return None

    return await change_in_portions(store, lambda uow, last: _load_portion(uow, group, last), change)


async def preview_dismissal(store: Store, group: JobGroup) -> ActionPreview:
    """Say what dismissing a group does. Nothing is written."""
    found = await _load_groups(store, group)
    undecided = sum(each.set_aside for each in found if each.kind is JobKind.FETCH_ORDER)
    tried = sum(each.count - each.set_aside for each in found)
    dismissed = {each.kind: each.set_aside for each in found if each.kind is not JobKind.FETCH_ORDER and each.set_aside}
    does = tuple(f"{number} × {kind.value}: never done" for kind, number in sorted(dismissed.items()))
    if JobKind.SUBMIT_ORDER in dismissed:
        does += ("The lines that were to be handed over are cancelled, and the clinics read your note.",)
    left_out = _left_out((tried, _TRIED_AGAIN), (undecided, _UNDECIDED))
    return ActionPreview(GroupAction.DISMISS, sum(dismissed.values()), does, left_out, needs_note=True)


async def dismiss_group(store: Store, group: JobGroup, *, by: str, note: str, now: datetime) -> ActionOutcome:
    """Leave the jobs of a group undone for good. Raises `InputError` for an empty or too long note."""
    reason = validate_note(note)

    def change(uow: UnitOfWork, seen: Job) -> str | None:
        job = uow.jobs.get(seen.id)
        if job is None or job.state not in JOBS_NEEDING_OPERATOR:
            return _TRIED_AGAIN
        if job.kind is JobKind.FETCH_ORDER:
            return _UNDECIDED
        change_job(uow, job, dismissal(reason, now), by=by, now=now)
        return None

    return await change_in_portions(store, lambda uow, last: _load_portion(uow, group, last), change)


async def _load_groups(store: Store, group: JobGroup) -> list[FailureGroup]:
    found = await store.run_read_only(lambda uow: uow.jobs.failure_groups())
    mine = (each for each in found if each.cause is group.cause)
    return [each for each in mine if group.system in {None, each.system} and group.kind in {None, each.kind}]


def _load_portion(uow: UnitOfWork, group: JobGroup, last: Job | None) -> Sequence[Job]:
    after = JobId(0) if last is None else last.id
    return uow.jobs.of_cause(group.cause, system=group.system, kind=group.kind, after=after, limit=PORTION)


def _is_unverified(job: Job) -> bool:
    return job.kind is JobKind.SUBMIT_ORDER and job.state is JobState.NEEDS_REVIEW


def _left_out(*found: tuple[int, str]) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(number, why) for number, why in found if number)

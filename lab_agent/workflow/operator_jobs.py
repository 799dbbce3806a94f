"""The desk: what a person decides about what waits, from the command line or the status page.

Every decision is told in the order's timeline, with who took it.

Why somebody decided: the words that the timeline keeps, or that the clinic reads. One rule for commands and pages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from lab_agent.domain.ids import JobId, OrderKey, ReportKey
from lab_agent.domain.records import Event, Job, JobKind
from lab_agent.domain.state_machines import JOBS_NEEDING_OPERATOR, JobState, OrderState, ReportState
from lab_agent.errors import InputError, InvalidTransitionError, StoreError
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.workflow.handover import mark_handed_over
from lab_agent.workflow.line_lifecycle import advance_order, cancel_lines, close_order, reopen_lines
from lab_agent.workflow.rejection_breaker import reset_rule
from lab_agent.workflow.result_versions import rematch_waiting_versions

MAX_NOTE_LENGTH = 500


def validate_note(note: str) -> str:
    """Give the words on one line. Raises `InputError` where they say nothing, or too much."""
    words = " ".join(note.split())
    if not words:
        raise InputError("Say why: the note is kept, and a blank one tells nobody anything. Nothing was changed.")
    if len(words) > MAX_NOTE_LENGTH:
        raise InputError(f"The note has {len(words)} characters; {MAX_NOTE_LENGTH} are enough. Nothing was changed.")
    return words


_CAN_BE_MARKED_DONE = frozenset(
    {JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS, JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK}
)
_REPORT_JOBS = frozenset({JobKind.MATCH_REPORT, JobKind.DELIVER_REPORT})


_RETRY_DESCRIPTIONS = {
    JobKind.FETCH_ORDER: "fetches and judges the order now",
    JobKind.SUBMIT_ORDER: "hands the order to the laboratory system",
    JobKind.CANCEL_AT_LIS: "tells the laboratory system of the withdrawal",
    JobKind.MATCH_REPORT: "looks for the order of this result again",
    JobKind.DELIVER_REPORT: "uploads the report; what is on the service already is found and not written twice",
    JobKind.UPDATE_LINE_TASK: "reads the Task and sets its status, unless somebody else has ended it",
    JobKind.UPDATE_ORDER_TASK: "reads the Task and sets its status, unless somebody else has ended it",
}


def describe_retry(kind: JobKind, state: JobState) -> str:
    """Say, before anybody presses the button, what a retry will do."""
    if kind is JobKind.SUBMIT_ORDER and state is JobState.NEEDS_REVIEW:
        return "hands the order to the laboratory system AGAIN: only if it is certain that it is not there"
    return _RETRY_DESCRIPTIONS[kind]


def can_be_marked_done(kind: JobKind) -> bool:
    """Whether a person may say that it has happened; the others find out for themselves when they are retried."""
    return kind in _CAN_BE_MARKED_DONE


async def retry_job(store: Store, job_id: JobId, *, by: str, now: datetime) -> Job:
    """Do it (again) now. Raises `StoreError` if there is none, `IllegalMoveError` if it is done or under way."""

    def change(_: UnitOfWork, current: Job) -> Job:
        if current.state is JobState.DUE:
            return replace(current, due_at=now, changed_at=now)
        if current.state in JOBS_NEEDING_OPERATOR:
            # The person has looked: the next try starts afresh.
            return replace(current.reschedule(now, now, f"retried by {by}"), started=False, attempts=0)
        raise InvalidTransitionError(
            f"effect {job_id} is {current.state.value}; only waiting, parked and doubtful ones can be retried"
        )

    return await _change_job(store, job_id, "retried", by=by, now=now, change=change)


async def dismiss_job(store: Store, job_id: JobId, *, by: str, note: str, now: datetime) -> Job:
    """Leave it undone for good; the lines of an order that is not handed over are cancelled, and the clinic reads the note.

    Raises as `retry_effect` does, `InputError` for a note that says nothing or too much, and `IllegalMoveError` for an order that
    is not judged: refuse that one.
    """

    why = validate_note(note)

    def change(uow: UnitOfWork, current: Job) -> Job:
        dismissed = current.dismiss(now, why)
        if current.kind is JobKind.FETCH_ORDER:
            raise InvalidTransitionError("an order cannot be left unjudged; mend what holds it, or `lab-agent orders refuse` it")
        if current.kind is JobKind.SUBMIT_ORDER:
            _reject_unsubmitted_order(uow, OrderKey(current.target), now, why)
        if current.kind is JobKind.DELIVER_REPORT:
            report = uow.reports.get_for_update(ReportKey(current.target)).transition_to(ReportState.DISMISSED, now, why)
            uow.reports.save(report)
            rematch_waiting_versions(uow, report, now)
        return dismissed

    return await _change_job(store, job_id, f"dismissed ({why})", by=by, now=now, change=change)


async def mark_job_done(store: Store, job_id: JobId, *, by: str, note: str, now: datetime) -> Job:
    """Say that it has happened, as a person found out elsewhere. Raises as `dismiss_effect` does."""

    why = validate_note(note)

    def change(uow: UnitOfWork, current: Job) -> Job:
        if not can_be_marked_done(current.kind):
            raise InvalidTransitionError(
                f"{current.kind.value} cannot be marked done; retry it: what has happened already is found"
            )
        if current.kind is JobKind.SUBMIT_ORDER:
            mark_handed_over(uow, OrderKey(current.target), now)
        return current.complete(now, why)

    return await _change_job(store, job_id, f"marked done ({why})", by=by, now=now, change=change)


async def retry_order(store: Store, order: OrderKey, *, by: str, now: datetime) -> tuple[Job, ...]:
    """Do now whatever of an order waits.

    Raises `StoreError` if there is no such order, or nothing of it waits, and `IllegalMoveError` while its handover is in doubt.
    """

    def waiting(uow: UnitOfWork) -> tuple[Job, ...]:
        uow.orders.get_for_update(order)
        return tuple(e for e in uow.jobs.list_for_order(order) if e.state in {JobState.DUE, *JOBS_NEEDING_OPERATOR})

    found = await store.run(waiting)
    if doubtful := [e for e in found if e.kind is JobKind.SUBMIT_ORDER and e.state is JobState.NEEDS_REVIEW]:
        number = doubtful[0].id
        raise InvalidTransitionError(
            f"it is in doubt whether the laboratory system has order {order}: ask there, then `lab-agent outbox done {number}` "
            f"if it is there, or `lab-agent outbox retry {number}` if it certainly is not"
        )
    if not found:
        raise StoreError(f"nothing of order {order} waits; there is nothing to retry")
    return tuple([await retry_job(store, job.id, by=by, now=now) for job in found])


async def reset_tripped_rule(store: Store, rule: str, *, now: datetime) -> bool:
    """Let a rule refuse again that the safety catch had stopped. False if it was not stopped."""

    def write(uow: UnitOfWork) -> bool:
        released = reset_rule(uow, rule, now)
        if released:
            uow.jobs.make_due(JobKind.FETCH_ORDER, now=now)
        uow.commit()
        return released

    return await store.run(write)


def _reject_unsubmitted_order(uow: UnitOfWork, key: OrderKey, now: datetime, note: str) -> None:
    order = uow.orders.get_for_update(key)
    if order.state is OrderState.FETCHED:
        cancel_lines(uow, key, {line.key: note for line in uow.orders.lines(key)}, now)
        uow.orders.save(order.transition_to(OrderState.REJECTED, now, note))


async def _change_job(
    store: Store,
    job_id: JobId,
    description: str,
    *,
    by: str,
    now: datetime,
    change: Callable[[UnitOfWork, Job], Job],
) -> Job:
    def write(uow: UnitOfWork) -> Job:
        current = uow.jobs.get(job_id)
        if current is None:
            raise StoreError(f"there is no effect {job_id}; `lab-agent outbox list` shows them")
        changed = change(uow, current)
        uow.jobs.save(changed)
        if changed.order is not None:
            text = f"{current.kind.value} (effect {job_id}) {description}"
            report = ReportKey(changed.target) if changed.kind in _REPORT_JOBS else None
            uow.events.add(Event(order=changed.order, report=report, at=now, action="operator", text=text, by=by))
            _advance_order_after(uow, changed, changed.order, now)
        uow.commit()
        return changed

    return await store.run(write)


def _advance_order_after(uow: UnitOfWork, job: Job, order: OrderKey, now: datetime) -> None:
    """Let the order go on, now that the effect does not stand in its way any more."""
    if job.kind is JobKind.DELIVER_REPORT and job.state is JobState.DISMISSED:
        reopen_lines(uow, order, now)
    if uow.orders.get_for_update(order).state is OrderState.CLOSED:
        return
    if job.kind is JobKind.UPDATE_ORDER_TASK and job.state in {JobState.DONE, JobState.DISMISSED}:
        close_order(uow, order, now, "a person settled the order-level Task")
    else:
        advance_order(uow, order, now, completing=job if job.state in {JobState.DONE, JobState.DISMISSED} else None)

"""What a person decides about all jobs that fail of one cause: retried or dismissed together.

Handovers whose outcome nobody knows are never retried with others: a person asks at the laboratory system about each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import JobId
from lab_agent.domain.job_records import FailureGroup, Job, JobKind
from lab_agent.domain.state_machines import JOBS_NEEDING_OPERATOR, JobState
from lab_agent.store.unit_of_work import Store, UnitOfWork
from lab_agent.workflow.operator_groups import PORTION, ActionOutcome, ActionPreview, GroupAction, LeftOut, change_in_portions
from lab_agent.workflow.operator_jobs import change_job, describe_retry, dismissal, retrial, validate_note

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

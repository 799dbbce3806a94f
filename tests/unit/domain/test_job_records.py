"""What becomes of a job: its state, its lease, and why it fails."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab_agent.conditions.model import AlertKey
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import JobId, OrderKey
from lab_agent.domain.job_records import (
    AT_LABORATORY_SYSTEM,
    KEPT_ATTEMPTS,
    PASSED_IN_REVIEW,
    AttemptRecord,
    FailureGroup,
    Job,
    JobKind,
)
from lab_agent.domain.state_machines import JobState
from lab_agent.errors import InvalidTransitionError

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
DUE = Job(
    id=JobId(1),
    kind=JobKind.SUBMIT_ORDER,
    dedup_key="submit_order:W",
    ordering_key="lis:W",
    target="R",
    order=OrderKey("R"),
    payload={},
    state=JobState.DUE,
    due_at=NOW,
    first_due_at=NOW,
    created_at=NOW,
    changed_at=NOW,
)
CLAIMED = DUE.claim("a", NOW, timedelta(seconds=30))
UNKNOWN = CLAIMED.outcome_unknown(NOW, NOW, "reply lost")
IN_REVIEW = CLAIMED.needs_review(NOW, "nobody knows", FailureCause.OUTCOME_UNKNOWN)
DEAD = CLAIMED.dead_letter(NOW, "rejected", FailureCause.LIS_REJECTED)


def changes(before: Job, after: Job) -> dict[str, Any]:
    """The fields that have changed, with their new values."""
    old = asdict(before)
    return {name: value for name, value in asdict(after).items() if value != old[name]}


def test_claim_takes_lease_and_new_fencing_token() -> None:
    assert changes(DUE, DUE.claim("a", LATER, timedelta(seconds=30))) == {
        "state": JobState.IN_FLIGHT,
        "owner": "a",
        "fencing_token": 1,
        "attempts": 1,
        "lease_until": LATER + timedelta(seconds=30),
        "changed_at": LATER,
    }
    again = UNKNOWN.claim("b", LATER, timedelta(seconds=30))
    assert (again.state, again.fencing_token, again.attempts) == (JobState.OUTCOME_UNKNOWN, 2, 2)
    with pytest.raises(InvalidTransitionError):
        CLAIMED.complete(NOW).claim("a", NOW, timedelta(seconds=30))


def test_job_waits_until_a_worker_has_it() -> None:
    verified = UNKNOWN.claim("b", LATER, timedelta(seconds=30))
    assert [each.is_waiting for each in (DUE, UNKNOWN, CLAIMED, verified)] == [True, True, False, False]
    assert [each.is_waiting for each in (CLAIMED.complete(NOW), IN_REVIEW, DEAD)] == [False, False, False]


FREE = {"owner": None, "lease_until": None, "changed_at": LATER}
LOST = CLAIMED.lease_expired(LATER)
FAILED = {"failing_since": LATER, "failure_cause": FailureCause.LIS_REJECTED}


@pytest.mark.parametrize(
    ("after", "state", "expected"),
    [
        (CLAIMED.complete(LATER), JobState.DONE, {}),
        (CLAIMED.complete(LATER, "it was so"), JobState.DONE, {"reason": "it was so"}),
        (CLAIMED.reschedule(LATER, LATER, "busy"), JobState.DUE, {"due_at": LATER, "reason": "busy"}),
        (CLAIMED.outcome_unknown(LATER, LATER, "lost"), JobState.OUTCOME_UNKNOWN, {"due_at": LATER, "reason": "lost"}),
        (CLAIMED.mark_obsolete(LATER, "withdrawn"), JobState.OBSOLETE, {"reason": "withdrawn"}),
        (LOST, JobState.OUTCOME_UNKNOWN, {"due_at": LATER, "fencing_token": 2, "reason": LOST.reason}),
        (CLAIMED.dead_letter(LATER, "no", FailureCause.LIS_REJECTED), JobState.DEAD_LETTER, {"reason": "no", **FAILED}),
        (CLAIMED.needs_review(LATER, "no", FailureCause.LIS_REJECTED), JobState.NEEDS_REVIEW, {"reason": "no", **FAILED}),
        (
            CLAIMED.needs_review(LATER, "no"),
            JobState.NEEDS_REVIEW,
            {"reason": "no", **FAILED, "failure_cause": FailureCause.OTHER},
        ),
    ],
)
def test_ended_attempt_frees_the_job(after: Job, state: JobState, expected: dict[str, Any]) -> None:
    """A lease that has expired makes the outcome unknown, never the job due again."""
    assert changes(CLAIMED, after) == {**FREE, "state": state, **expected}
    assert LOST.reason


def test_dismissed_job_keeps_why_it_failed() -> None:
    dismissed = DEAD.dismiss(LATER, "done by hand")
    expected = {"state": JobState.DISMISSED, "reason": "done by hand", "failing_since": None, "changed_at": LATER}
    assert changes(DEAD, dismissed) == expected
    assert dismissed.failure_cause is FailureCause.LIS_REJECTED


def test_started_job_says_since_when() -> None:
    assert changes(CLAIMED, CLAIMED.mark_started(LATER)) == {"started": True, "changed_at": LATER}


def test_first_failure_in_a_row_is_the_beginning() -> None:
    once = CLAIMED.failed(NOW, FailureCause.SIGN_IN)
    assert (once.failing_since, once.failure_cause, once.failures) == (NOW, FailureCause.SIGN_IN, 1)
    twice = once.failed(LATER, FailureCause.LIS_UNAVAILABLE)
    assert (twice.failing_since, twice.failure_cause, twice.failures) == (NOW, FailureCause.LIS_UNAVAILABLE, 2)
    aside = twice.dead_letter(LATER, "given up")
    assert (aside.failing_since, aside.failure_cause) == (NOW, FailureCause.LIS_UNAVAILABLE)


def test_ended_job_fails_since_no_time() -> None:
    ended = CLAIMED.complete(NOW).failed(LATER, FailureCause.SIGN_IN)
    assert (ended.failing_since, ended.failure_cause, ended.failures) == (None, FailureCause.SIGN_IN, 1)


def test_job_fails_until_an_attempt_does_not() -> None:
    failing = CLAIMED.failed(NOW, FailureCause.SIGN_IN)
    assert changes(failing, failing.recovered()) == {"failing_since": None, "failure_cause": None, "failures": 0}
    assert DEAD.recovered() is DEAD
    assert [each.is_failing for each in (failing, CLAIMED, DEAD)] == [True, False, False]
    assert failing.reschedule(LATER, LATER, "again").failing_since == NOW
    assert failing.complete(LATER).failing_since is None


def test_job_that_waits_gives_way_later() -> None:
    waiting = CLAIMED.wait(NOW, 300, "held")
    assert (waiting.state, waiting.due_at, waiting.reason, waiting.gives_way) == (JobState.DUE, LATER, "held", True)


def test_newest_attempts_are_kept() -> None:
    job = DUE
    for number in range(KEPT_ATTEMPTS + 3):
        job = job.log_attempt(AttemptRecord(number=number, at=NOW, milliseconds=5))
    assert [each.number for each in job.attempt_log] == list(range(3, 13))


@pytest.mark.parametrize(
    ("kind", "safe"), [(JobKind.FETCH_ORDER, True), (JobKind.MATCH_REPORT, True), (JobKind.DELIVER_REPORT, False)]
)
def test_started_job_is_verified_if_it_changes_anything(kind: JobKind, safe: bool) -> None:
    assert replace(DUE, kind=kind, started=True).safe_to_retry is safe
    assert replace(DUE, kind=kind).safe_to_retry


def test_kinds_of_jobs_are_grouped() -> None:
    assert {JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS} == AT_LABORATORY_SYSTEM
    assert {JobKind.DELIVER_REPORT} == PASSED_IN_REVIEW


def test_group_of_failures_has_alert_of_its_cause() -> None:
    times = {"since": NOW, "failing_since": None, "failures": 1}
    for cause, system in ((FailureCause.LIS_REJECTED, "lis"), (FailureCause.SIGN_IN, "")):
        group = FailureGroup(cause=cause, system="lis", kind=JobKind.SUBMIT_ORDER, count=2, set_aside=1, in_review=0, **times)
        assert group.key == AlertKey(cause.condition, system)

"""The keys of jobs, what waits for what, and what becomes of a job: its state, its lease, and why it fails."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab_agent.orders.records import LineRecord
from lab_agent.queue import jobs
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import (
    AT_LABORATORY_SYSTEM,
    GIVING_WAY,
    KEPT_ATTEMPTS,
    PASSED_IN_REVIEW,
    AttemptRecord,
    FailureGroup,
    Job,
    JobKind,
    NewJob,
)
from lab_agent.results.records import ReportRecord
from lab_agent.shared.conditions.model import AlertKey
from lab_agent.shared.errors import InvalidTransitionError
from lab_agent.shared.ids import JobId, LineKey, OrderKey, ReportKey, ResourceId, work_order_key
from lab_agent.shared.state_machines import JobState

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
ORDER, LINE, REPORT = OrderKey("R1"), LineKey("L1"), ReportKey("P1")
AT_LIS = work_order_key(ORDER, "lis")


def line(reopened: int = 0) -> LineRecord:
    return LineRecord(key=LINE, order=ORDER, task_id=ResourceId("7"), changed_at=NOW, reopened=reopened)


def report(order: OrderKey | None = ORDER) -> ReportRecord:
    return ReportRecord(key=REPORT, source="lis", message="m", order=order, received_at=NOW, changed_at=NOW, body=b"{}")


MATCH, DELIVER, DELIVERY = JobKind.MATCH_REPORT, JobKind.DELIVER_REPORT, f"deliver_report:{AT_LIS}"


@pytest.mark.parametrize(
    ("job", "kind", "dedup_key", "ordering_key", "target", "more"),
    [
        (jobs.fetch_order(ORDER, NOW), JobKind.FETCH_ORDER, "fetch_order:R1", "fetch_order:R1", "R1", {}),
        (
            jobs.submit_order(ORDER, "lis", NOW),
            *(JobKind.SUBMIT_ORDER, f"submit_order:{AT_LIS}", f"lis:{AT_LIS}", "R1"),
            {"payload": {"adapter": "lis", "reopened": 0}, "system": "lis"},
        ),
        (
            jobs.cancel_at_lis(ORDER, "lis", [LineKey("L2"), LINE], "withdrawn", NOW),
            *(JobKind.CANCEL_AT_LIS, "cancel_at_lis:R1:L1+L2", f"lis:{AT_LIS}", "R1"),
            {"payload": {"adapter": "lis", "lines": ["L1", "L2"], "reason": "withdrawn"}, "system": "lis"},
        ),
        (jobs.match_report(report(), "A-1", NOW), MATCH, "match_report:P1", "match_report:lis:A-1", "P1", {"order": None}),
        (
            jobs.match_report_of_new_order(report(), ORDER, NOW),
            *(MATCH, f"match_report:P1:R1:{NOW.isoformat()}", "match_report:lis:R1", "P1", {"order": None}),
        ),
        (
            jobs.match_version_again(report(), ReportKey("P0"), NOW),
            *(MATCH, "match_report:P1:P0:2026-01-02T03:04:00+00:00", DELIVERY, "P1", {}),
        ),
        (jobs.deliver_report(report(), ORDER, NOW), DELIVER, "deliver_report:P1", DELIVERY, "P1", {}),
        (
            jobs.deliver_report(report(), ORDER, NOW, JobId(7)),
            *(DELIVER, "deliver_report:P1", DELIVERY, "P1", {"in_place_of": 7}),
        ),
        (
            jobs.send_report_again(report(), ORDER, NOW, [LineKey("L2"), LINE]),
            *(DELIVER, f"deliver_report:P1:again:{NOW.isoformat()}", DELIVERY, "P1", {"payload": {"again": ["L1", "L2"]}}),
        ),
        (
            jobs.update_line_task(line(), "completed", NOW),
            *(JobKind.UPDATE_LINE_TASK, "update_line_task:L1:completed", "task:L1", "L1", {"payload": {"status": "completed"}}),
        ),
        (
            jobs.update_order_task(ORDER, "cancelled", NOW),
            *(JobKind.UPDATE_ORDER_TASK, "update_order_task:R1:cancelled", "task:R1", "R1", {"payload": {"status": "cancelled"}}),
        ),
    ],
)
def test_job_has_its_keys_and_payload(
    job: NewJob, kind: JobKind, dedup_key: str, ordering_key: str, target: str, more: dict[str, Any]
) -> None:
    keys = {"kind": kind, "dedup_key": dedup_key, "ordering_key": ordering_key, "target": target}
    assert asdict(job) == {**keys, "order": "R1", "payload": {}, "due_at": NOW, "system": "", "in_place_of": None, **more}


@pytest.mark.parametrize(
    ("job", "dedup_key"),
    [
        (jobs.fetch_order(ORDER, NOW, 2), "fetch_order:R1:2"),
        (jobs.submit_order(ORDER, "lis", NOW, 2), f"submit_order:{AT_LIS}:2"),
        (jobs.cancel_at_lis(ORDER, "lis", [LINE], "", NOW, 2), "cancel_at_lis:R1:L1:2"),
        (jobs.update_line_task(line(2), "completed", NOW), "update_line_task:L1:completed:2"),
        (jobs.update_order_task(ORDER, "completed", NOW, 2), "update_order_task:R1:completed:2"),
    ],
)
def test_reopened_order_has_decisions_of_its_own(job: NewJob, dedup_key: str) -> None:
    assert job.dedup_key == dedup_key


def test_handover_knows_its_laboratory_system() -> None:
    job = jobs.submit_order(ORDER, "lis", NOW, 2)
    assert jobs.adapter_of(job) == "lis"
    assert job.payload["reopened"] == 2


def test_version_without_order_cannot_be_matched_again() -> None:
    with pytest.raises(ValueError, match="P1"):
        jobs.match_version_again(report(order=None), ReportKey("P0"), NOW)


def test_task_statuses_are_those_of_fhir() -> None:
    assert {"completed", "cancelled", "failed", "rejected", "entered-in-error"} == jobs.TERMINAL_TASK_STATUSES
    assert (jobs.TASK_REQUESTED, jobs.ORDER_TASK_CODE) == ("requested", "OrderProcessingTask")


@pytest.mark.parametrize(
    ("delivery", "is_again", "lines"),
    [
        (jobs.deliver_report(report(), ORDER, NOW), False, ()),
        (jobs.send_report_again(report(), ORDER, NOW), True, ()),
        (jobs.send_report_again(report(), ORDER, NOW, [LINE]), True, (LINE,)),
    ],
)
def test_delivery_knows_whether_it_is_again(delivery: NewJob, is_again: bool, lines: tuple[LineKey, ...]) -> None:
    given = {name: value for name, value in asdict(delivery).items() if name not in {"due_at", "in_place_of"}}
    times = dict.fromkeys(("due_at", "first_due_at", "created_at", "changed_at"), NOW)
    job = Job(id=JobId(1), state=JobState.DUE, **given, **times)
    assert jobs.is_sent_again(job) is is_again
    assert jobs.lines_ending_again(job) == lines


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
    assert changes(CLAIMED.reschedule(NOW, LATER, "held"), waiting) == {"gives_way": True}


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
    assert {JobKind.FETCH_ORDER} == GIVING_WAY


def test_group_of_failures_has_alert_of_its_cause() -> None:
    times = {"since": NOW, "failing_since": None, "failures": 1}
    for cause, system in ((FailureCause.LIS_REJECTED, "lis"), (FailureCause.SIGN_IN, "")):
        group = FailureGroup(cause=cause, system="lis", kind=JobKind.SUBMIT_ORDER, count=2, set_aside=1, in_review=0, **times)
        assert group.key == AlertKey(cause.condition, system)

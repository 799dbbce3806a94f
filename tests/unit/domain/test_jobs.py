"""The keys of jobs: what makes one decision the same as another, what waits for what, and what the job is told."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent.domain import jobs
from lab_agent.domain.ids import JobId, LineKey, OrderKey, ReportKey, ResourceId, work_order_key
from lab_agent.domain.job_records import Job, JobKind, NewJob
from lab_agent.domain.records import LineRecord
from lab_agent.domain.report_records import ReportRecord
from lab_agent.domain.state_machines import JobState

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

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


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (
            jobs.fetch_order(ORDER, NOW),
            {"kind": JobKind.FETCH_ORDER, "dedup_key": "fetch_order:R1", "ordering_key": "fetch_order:R1", "target": "R1"},
        ),
        (
            jobs.submit_order(ORDER, "lis", NOW),
            {
                "kind": JobKind.SUBMIT_ORDER,
                "dedup_key": f"submit_order:{AT_LIS}",
                "ordering_key": f"lis:{AT_LIS}",
                "target": "R1",
                "payload": {"adapter": "lis", "reopened": 0},
                "system": "lis",
            },
        ),
        (
            jobs.cancel_at_lis(ORDER, "lis", [LineKey("L2"), LINE], "withdrawn", NOW),
            {
                "kind": JobKind.CANCEL_AT_LIS,
                "dedup_key": "cancel_at_lis:R1:L1+L2",
                "ordering_key": f"lis:{AT_LIS}",
                "target": "R1",
                "payload": {"adapter": "lis", "lines": ["L1", "L2"], "reason": "withdrawn"},
                "system": "lis",
            },
        ),
        (
            jobs.match_report(report(), "A-1", NOW),
            {
                "kind": JobKind.MATCH_REPORT,
                "dedup_key": "match_report:P1",
                "ordering_key": "match_report:lis:A-1",
                "target": "P1",
                "order": None,
            },
        ),
        (
            jobs.match_report_of_new_order(report(), ORDER, NOW),
            {
                "kind": JobKind.MATCH_REPORT,
                "dedup_key": f"match_report:P1:R1:{NOW.isoformat()}",
                "ordering_key": "match_report:lis:R1",
                "target": "P1",
                "order": None,
            },
        ),
        (
            jobs.match_version_again(report(), ReportKey("P0"), NOW),
            {
                "kind": JobKind.MATCH_REPORT,
                "dedup_key": "match_report:P1:P0:2026-01-02T03:04:00+00:00",
                "ordering_key": f"deliver_report:{AT_LIS}",
                "target": "P1",
            },
        ),
        (
            jobs.deliver_report(report(), ORDER, NOW),
            {
                "kind": JobKind.DELIVER_REPORT,
                "dedup_key": "deliver_report:P1",
                "ordering_key": f"deliver_report:{AT_LIS}",
                "target": "P1",
            },
        ),
        (
            jobs.deliver_report(report(), ORDER, NOW, JobId(7)),
            {
                "kind": JobKind.DELIVER_REPORT,
                "dedup_key": "deliver_report:P1",
                "ordering_key": f"deliver_report:{AT_LIS}",
                "target": "P1",
                "in_place_of": 7,
            },
        ),
        (
            jobs.send_report_again(report(), ORDER, NOW, [LineKey("L2"), LINE]),
            {
                "kind": JobKind.DELIVER_REPORT,
                "dedup_key": f"deliver_report:P1:again:{NOW.isoformat()}",
                "ordering_key": f"deliver_report:{AT_LIS}",
                "target": "P1",
                "payload": {"again": ["L1", "L2"]},
            },
        ),
        (
            jobs.update_line_task(line(), "completed", NOW),
            {
                "kind": JobKind.UPDATE_LINE_TASK,
                "dedup_key": "update_line_task:L1:completed",
                "ordering_key": "task:L1",
                "target": "L1",
                "payload": {"status": "completed"},
            },
        ),
        (
            jobs.update_order_task(ORDER, "cancelled", NOW),
            {
                "kind": JobKind.UPDATE_ORDER_TASK,
                "dedup_key": "update_order_task:R1:cancelled",
                "ordering_key": "task:R1",
                "target": "R1",
                "payload": {"status": "cancelled"},
            },
        ),
    ],
)
def test_job_has_its_keys_and_payload(job: NewJob, expected: dict[str, Any]) -> None:
    assert asdict(job) == {"order": "R1", "payload": {}, "due_at": NOW, "system": "", "in_place_of": None, **expected}


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
    assert (jobs.TASK_COMPLETED, jobs.TASK_CANCELLED, jobs.TASK_REQUESTED) == ("completed", "cancelled", "requested")
    assert jobs.ORDER_TASK_CODE == "OrderProcessingTask"


@pytest.mark.parametrize(
    ("delivery", "is_again", "lines"),
    [
        (jobs.deliver_report(report(), ORDER, NOW), False, ()),
        (jobs.send_report_again(report(), ORDER, NOW), True, ()),
        (jobs.send_report_again(report(), ORDER, NOW, [LINE]), True, (LINE,)),
    ],
)
def test_delivery_knows_whether_it_is_again(delivery: NewJob, is_again: bool, lines: tuple[LineKey, ...]) -> None:
    job = Job(
        id=JobId(1),
        kind=delivery.kind,
        dedup_key=delivery.dedup_key,
        ordering_key=delivery.ordering_key,
        target=delivery.target,
        order=delivery.order,
        payload=delivery.payload,
        state=JobState.DUE,
        due_at=NOW,
        first_due_at=NOW,
        created_at=NOW,
        changed_at=NOW,
    )
    assert jobs.is_sent_again(job) is is_again
    assert jobs.lines_ending_again(job) == lines

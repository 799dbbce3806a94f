"""The jobs that exist, with their deduplication and ordering keys.

All keys are made here, so that the same decision taken twice writes one row (law 5). An order or line that was taken up again
(`reopened`) has decisions of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from lab_agent.orders.records import LineRecord
from lab_agent.queue.job_records import Job, JobKind, NewJob
from lab_agent.results.records import ReportRecord
from lab_agent.shared.ids import JobId, LineKey, OrderKey, ReportKey, work_order_key

TASK_COMPLETED = "completed"
TASK_CANCELLED = "cancelled"
TASK_REQUESTED = "requested"
ORDER_TASK_CODE = "OrderProcessingTask"
"""Code of the order-level Tasks that are ours (interface: Task)."""

TERMINAL_TASK_STATUSES = frozenset({TASK_COMPLETED, TASK_CANCELLED, "failed", "rejected", "entered-in-error"})
"""Task statuses after which nothing follows (FHIR STU3 Task.status)."""


def fetch_order(order: OrderKey, now: datetime, reopened: int = 0) -> NewJob:
    """Fetch and assess an order."""
    return NewJob(
        kind=JobKind.FETCH_ORDER,
        dedup_key=f"fetch_order:{order}{_suffix(reopened)}",
        ordering_key=f"fetch_order:{order}",
        target=order,
        order=order,
        due_at=now,
    )


def submit_order(order: OrderKey, adapter: str, now: datetime, reopened: int = 0) -> NewJob:
    """Submit the part of an order that a laboratory system gets. `reopened` is that of the order as it was decided."""
    return NewJob(
        kind=JobKind.SUBMIT_ORDER,
        dedup_key=f"submit_order:{work_order_key(order, adapter)}{_suffix(reopened)}",
        ordering_key=_calls_about(order, adapter),
        target=order,
        order=order,
        payload={"adapter": adapter, "reopened": reopened},
        due_at=now,
        system=adapter,
    )


def cancel_at_lis(
    order: OrderKey, adapter: str, lines: Sequence[LineKey], reason: str, now: datetime, reopened: int = 0
) -> NewJob:
    """Cancel withdrawn lines at their laboratory system, after the handover if that is still running."""
    line_keys = sorted(lines)
    return NewJob(
        kind=JobKind.CANCEL_AT_LIS,
        dedup_key=f"cancel_at_lis:{order}:{'+'.join(line_keys)}{_suffix(reopened)}",
        ordering_key=_calls_about(order, adapter),
        target=order,
        order=order,
        payload={"adapter": adapter, "lines": line_keys, "reason": reason},
        due_at=now,
        system=adapter,
    )


def adapter_of(job: Job | NewJob) -> str:
    """The laboratory system that a handover or a cancellation goes to."""
    return str(job.payload["adapter"])


def match_report(report: ReportRecord, order_reference: str, now: datetime) -> NewJob:
    """Find the order of a report. Reports with the same `order_reference` are matched by arrival."""
    return NewJob(
        kind=JobKind.MATCH_REPORT,
        dedup_key=f"match_report:{report.key}",
        ordering_key=f"match_report:{report.source}:{order_reference}",
        target=report.key,
        due_at=now,
    )


def match_report_of_new_order(report: ReportRecord, order: OrderKey, now: datetime) -> NewJob:
    """Match a report again that came before `order`, or before the number by which it names that order."""
    return replace(match_report(report, order, now), dedup_key=f"match_report:{report.key}:{order}:{now.isoformat()}")


def match_version_again(report: ReportRecord, after: ReportKey, now: datetime) -> NewJob:
    """Match a version again that waited for another one, `after`; in the queue of deliveries, which lets one go at a time."""
    if report.order is None:
        raise ValueError(f"result {report.key} has no order yet")
    return replace(
        match_report(report, report.key, now),
        dedup_key=f"match_report:{report.key}:{after}:{now.isoformat()}",
        ordering_key=deliveries_of(report.order, report.source),
        order=report.order,
    )


def deliveries_of(order: OrderKey, source: str) -> str:
    """The ordering key of a laboratory system's reports of an order, which are matched again and uploaded one after the other."""
    return f"deliver_report:{work_order_key(order, source)}"


def deliver_report(report: ReportRecord, order: OrderKey, now: datetime, matched_by: JobId | None = None) -> NewJob:
    """Upload a report; those of one laboratory system about one order are uploaded one after the other.

    One that was matched in this queue, `matched_by` a job of it, goes before the others that wait there.
    """
    return NewJob(
        kind=JobKind.DELIVER_REPORT,
        dedup_key=f"deliver_report:{report.key}",
        ordering_key=deliveries_of(order, report.source),
        target=report.key,
        order=order,
        due_at=now,
        in_place_of=matched_by,
    )


def send_report_again(report: ReportRecord, order: OrderKey, now: datetime, lines: Sequence[LineKey] = ()) -> NewJob:
    """Upload a report that was delivered and may be lost on the service; these lines end with it once more."""
    job = deliver_report(report, order, now)
    return replace(job, dedup_key=f"{job.dedup_key}:again:{now.isoformat()}", payload={"again": sorted(lines)})


def is_sent_again(job: Job) -> bool:
    """Whether a delivery is of a report that was delivered before."""
    return "again" in job.payload


def lines_ending_again(job: Job) -> tuple[LineKey, ...]:
    """The lines that end once more with a report that is sent again."""
    return tuple(map(LineKey, job.payload.get("again", ())))


def update_line_task(line: LineRecord, status: str, now: datetime) -> NewJob:
    """Set the Task of a line to `status`, with the line's outputs."""
    return NewJob(
        kind=JobKind.UPDATE_LINE_TASK,
        dedup_key=f"update_line_task:{line.key}:{status}{_suffix(line.reopened)}",
        ordering_key=f"task:{line.key}",
        target=line.key,
        order=line.order,
        payload={"status": status},
        due_at=now,
    )


def update_order_task(order: OrderKey, status: str, now: datetime, reopened: int = 0) -> NewJob:
    """Set the order-level Task to `status`."""
    return NewJob(
        kind=JobKind.UPDATE_ORDER_TASK,
        dedup_key=f"update_order_task:{order}:{status}{_suffix(reopened)}",
        ordering_key=f"task:{order}",
        target=order,
        order=order,
        payload={"status": status},
        due_at=now,
    )


def _calls_about(order: OrderKey, adapter: str) -> str:
    """The ordering key of what is said to one laboratory system about an order: no other one waits for it."""
    return f"lis:{work_order_key(order, adapter)}"


def _suffix(reopened: int) -> str:
    return f":{reopened}" if reopened else ""

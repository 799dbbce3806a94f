"""The effects that exist: what each is called (`once`), what it waits for (`lane`), and what it carries.

All names are made here, so that the same decision taken twice writes one row (law 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from lab_agent.domain.ids import LineKey, OrderKey, ReportKey
from lab_agent.domain.journal import EffectKind, LineRecord, NewEffect, ReportRecord

COMPLETED = "completed"
CANCELLED = "cancelled"
REQUESTED = "requested"

TERMINAL_TASK_STATUSES = frozenset({COMPLETED, CANCELLED, "failed", "rejected", "entered-in-error"})
"""Task statuses after which nothing follows (FHIR STU3 Task.status)."""


def look(order: OrderKey, now: datetime) -> NewEffect:
    """Fetch an order and judge it."""
    return NewEffect(kind=EffectKind.LOOK, once=f"look:{order}", lane=f"look:{order}", subject=order, order=order, due_at=now)


def handover(order: OrderKey, now: datetime) -> NewEffect:
    """Hand an order to the laboratory system."""
    return NewEffect(
        kind=EffectKind.HANDOVER, once=f"handover:{order}", lane=f"lis:{order}", subject=order, order=order, due_at=now
    )


def lis_cancel(order: OrderKey, lines: Sequence[LineKey], reason: str, now: datetime) -> NewEffect:
    """Tell the laboratory system that lines were withdrawn; after the handover, if that is still under way."""
    names = sorted(lines)
    return NewEffect(
        kind=EffectKind.LIS_CANCEL,
        once=f"lis_cancel:{order}:{'+'.join(names)}",
        lane=f"lis:{order}",
        subject=order,
        order=order,
        payload={"lines": names, "reason": reason},
        due_at=now,
    )


def match(report: ReportRecord, target: str, now: datetime) -> NewEffect:
    """Find the order of a report. Reports that name the same `target` keep their order of arrival."""
    return NewEffect(
        kind=EffectKind.MATCH,
        once=f"match:{report.key}",
        lane=f"match:{report.source}:{target}",
        subject=report.key,
        due_at=now,
    )


def match_again(report: ReportRecord, target: str, order: OrderKey, now: datetime) -> NewEffect:
    """Find the order of a report that came before the laboratory's numbers of that `order`."""
    return replace(match(report, target, now), once=f"match:{report.key}:{order}")


def match_after(report: ReportRecord, decided: ReportKey, now: datetime) -> NewEffect:
    """Find the order of a version again that has waited for an older one, about which is `decided` now."""
    return replace(match(report, report.key, now), once=f"match:{report.key}:{decided}:{now.isoformat()}", order=report.order)


def deliver(report: ReportKey, order: OrderKey, now: datetime) -> NewEffect:
    """Upload a report; the reports of one order keep their order."""
    return NewEffect(
        kind=EffectKind.DELIVER,
        once=f"deliver:{report}",
        lane=f"deliver:{order}",
        subject=report,
        order=order,
        due_at=now,
    )


def line_task(line: LineRecord, status: str, now: datetime) -> NewEffect:
    """Bring the Task of a line to `status`, with the line's outputs."""
    return NewEffect(
        kind=EffectKind.LINE_TASK,
        once=f"line_task:{line.key}:{status}",
        lane=f"task:{line.key}",
        subject=line.key,
        order=line.order,
        payload={"status": status},
        due_at=now,
    )


def order_task(order: OrderKey, status: str, now: datetime) -> NewEffect:
    """Bring the order-level Task to `status`."""
    return NewEffect(
        kind=EffectKind.ORDER_TASK,
        once=f"order_task:{order}:{status}",
        lane=f"task:{order}",
        subject=order,
        order=order,
        payload={"status": status},
        due_at=now,
    )

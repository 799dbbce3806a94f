"""Merges what several OBR of one message say about one report, and settles which lines the message completes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lab_agent.domain.lab_messages import LabMessage, LabReport, ReportStatus

_STATUS_ORDER = (ReportStatus.REGISTERED, ReportStatus.PRELIMINARY, ReportStatus.PARTIAL, ReportStatus.FINAL)


@dataclass(frozen=True, slots=True)
class ParsedReport:
    """One part of a message, or why it is invalid.

    `number` is its position in the message; `notes` say what was skipped or changed while it was read.
    """

    number: int
    content: LabMessage | None = None
    problem: str | None = None
    notes: tuple[str, ...] = ()


def merge_same_reports(parsed: Iterable[ParsedReport]) -> Iterator[ParsedReport]:
    """Merge reports with the same id: some LIS repeat the OBR for each page or tube."""
    reports: dict[str, ParsedReport] = {}
    for part in parsed:
        report = part.content
        if not isinstance(report, LabReport):
            yield part
        elif (earlier := reports.get(report.report_id)) and isinstance(earlier.content, LabReport):
            reports[report.report_id] = replace(
                earlier, content=_merge_reports(earlier.content, report), notes=(*earlier.notes, *part.notes)
            )
        else:
            reports[report.report_id] = part
    yield from reports.values()


def _merge_reports(first: LabReport, second: LabReport) -> LabReport:
    return replace(
        first,
        status=min(first.status, second.status, key=_STATUS_ORDER.index),
        issued=max(first.issued, second.issued),
        lines=tuple(dict.fromkeys((*first.lines, *second.lines))),
        items=tuple(dict.fromkeys((*first.items, *second.items))),
        observations=(*first.observations, *second.observations),
        documents=(*first.documents, *second.documents),
    )


def limit_completed_lines(parsed: Iterable[ParsedReport]) -> Iterator[ParsedReport]:
    """A final report does not complete a line that another report of the same message leaves unfinished."""
    listed = list(parsed)
    reports = [part.content for part in listed if isinstance(part.content, LabReport)]
    pending = {line for report in reports if report.status is not ReportStatus.FINAL for line in report.lines}
    for part in listed:
        report = part.content
        final = isinstance(report, LabReport) and report.status is ReportStatus.FINAL and report.completes is None
        if isinstance(report, LabReport) and final and any(line in pending for line in report.lines):
            yield replace(part, content=replace(report, completes=tuple(one for one in report.lines if one not in pending)))
        else:
            yield part

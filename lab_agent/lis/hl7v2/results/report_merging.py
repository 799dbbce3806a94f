"""Merges what several OBR of one message say about one report, and settles which lines the message completes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lab_agent.domain.lab_messages import LabMessage, LabReport, ReportedObservation, ReportStatus
from lab_agent.lis.hl7v2.results.obx_texts import quotable_code

_STATUS_ORDER = (ReportStatus.REGISTERED, ReportStatus.PRELIMINARY, ReportStatus.PARTIAL, ReportStatus.FINAL)


@dataclass(frozen=True, slots=True)
class ParsedReport:
    """One part of a message, or why it is invalid.

    `number` is its position in the message, and `isolate` that of an isolate within it (0 for none); `notes` say what was
    skipped or changed while it was read. `culture` is the id of the report that the isolate belongs to.
    """

    number: int
    content: LabMessage | None = None
    problem: str | None = None
    notes: tuple[str, ...] = ()
    isolate: int = 0
    culture: str | None = None
    is_isolate: bool = False

    @property
    def name(self) -> str:
        """What tells it from the other parts of its message."""
        return f"{self.number}.{self.isolate}" if self.isolate else str(self.number)


def merge_same_reports(parsed: Iterable[ParsedReport]) -> Iterator[ParsedReport]:
    """Merge reports with the same id: some LIS repeat the OBR for each page or tube.

    What stands in two of them under one code and number is not told apart: it may be two isolates, or two samples.
    """
    reports: dict[str, ParsedReport] = {}
    for part in parsed:
        report = part.content
        if not isinstance(report, LabReport):
            yield part
        elif earlier := reports.get(report.report_id):
            reports[report.report_id] = _merge_parts(earlier, part)
        else:
            reports[report.report_id] = part
    yield from reports.values()


def _merge_parts(first: ParsedReport, second: ParsedReport) -> ParsedReport:
    if not (isinstance(first.content, LabReport) and isinstance(second.content, LabReport)):
        return first  # refused already
    more = second.content
    if second.is_isolate and first.content.observations[:1] == more.observations[:1]:  # its organism, which stands there already
        more = replace(more, observations=more.observations[1:])
    report = _merge_reports(first.content, more)
    if repeated := find_repeated(report.observations):
        problem = f"OBR {first.number}: has the same report as OBR {second.number}, and {describe_repeated(repeated)}"
        return replace(first, content=None, problem=problem)
    return replace(first, content=report, notes=(*first.notes, *second.notes))


def find_repeated(observations: Iterable[ReportedObservation]) -> ReportedObservation | None:
    """The first observation that nothing tells from another one of the report: neither a number of its own nor its code."""
    seen: set[tuple[str, ...]] = set()
    for one in observations:
        name = (one.id,) if one.id else (one.code.system or "", one.code.code)
        if name in seen:
            return one
        seen.add(name)
    return None


def describe_repeated(one: ReportedObservation) -> str:
    """Why an observation that `find_repeated` found is refused, and what to do."""
    named = f"the code {quotable_code(one.code.code)}" if quotable_code(one.code.code) else "a code"
    return (
        f"{named} stands in it more than once and nothing tells the values apart: have the laboratory system number them in OBX-4"
    )


def _merge_reports(first: LabReport, second: LabReport) -> LabReport:
    return replace(
        first,
        status=min(first.status, second.status, key=_STATUS_ORDER.index),
        barcode=first.barcode or second.barcode,
        effective=first.effective if first.effective != first.issued else second.effective,
        issued=max(first.issued, second.issued),
        lines=tuple(dict.fromkeys((*first.lines, *second.lines))),
        items=tuple(dict.fromkeys((*first.items, *second.items))),
        observations=(*first.observations, *second.observations),
        documents=(*first.documents, *second.documents),
        correction=first.correction or second.correction,
    )


def limit_completed_lines(parsed: Iterable[ParsedReport]) -> Iterator[ParsedReport]:
    """A final report does not complete a line that another report of the same message leaves unfinished.

    Nor does a culture while one of its isolates is not final.
    """
    listed = list(parsed)
    reports = [part.content for part in listed if isinstance(part.content, LabReport)]
    pending = {line for report in reports if report.status is not ReportStatus.FINAL for line in report.lines}
    growing = {part.culture for part in listed if part.culture and not _is_final(part)}
    for part in listed:
        report = part.content
        if not isinstance(report, LabReport) or not _is_final(part):
            yield part
        elif report.report_id in growing:
            yield replace(part, content=replace(report, completes=()))
        elif report.completes is None and any(line in pending for line in report.lines):
            yield replace(part, content=replace(report, completes=tuple(one for one in report.lines if one not in pending)))
        else:
            yield part


def _is_final(part: ParsedReport) -> bool:
    return isinstance(part.content, LabReport) and part.content.status is ReportStatus.FINAL

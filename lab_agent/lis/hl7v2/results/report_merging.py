"""Merges what several OBR of one message say about one report, and settles which lines the message completes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce

from lab_agent.lis.hl7v2.results.obx_texts import quotable_code
from lab_agent.lis.lab_messages import LabMessage, LabReport, ReportedObservation, ReportStatus

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
    reports: dict[str, list[ParsedReport]] = {}
    for part in parsed:
        if isinstance(part.content, LabReport):
            reports.setdefault(part.content.report_id, []).append(part)
        else:
            yield part
    yield from (_merge_parts(*parts) for parts in reports.values())


def _merge_parts(first: ParsedReport, *others: ParsedReport) -> ParsedReport:
    report = first.content
    if not (others and isinstance(report, LabReport)):
        return first
    observations, seen = list(report.observations), {observation_name(one) for one in report.observations}
    contents: list[LabReport] = [report]
    for part in others:
        if not isinstance(more := part.content, LabReport):
            continue
        # the organism of an isolate stands there already
        is_known = part.is_isolate and observations[:1] == list(more.observations[:1])
        added = more.observations[1:] if is_known else more.observations
        if repeated := find_repeated(added, seen):
            problem = f"OBR {first.number}: has the same report as OBR {part.number}, and {describe_repeated(repeated)}"
            return replace(first, content=None, problem=problem)
        observations += added
        contents.append(more)
    merged = replace(
        reduce(_merge_heads, contents),
        lines=tuple(dict.fromkeys(line for each in contents for line in each.lines)),
        items=tuple(dict.fromkeys(item for each in contents for item in each.items)),
        observations=tuple(observations),
        documents=tuple(document for each in contents for document in each.documents),
    )
    return replace(first, content=merged, notes=tuple(note for part in (first, *others) for note in part.notes))


def observation_name(one: ReportedObservation) -> tuple[str, ...]:
    """What tells an observation from the others of its report: a number of its own, else its code."""
    return (one.id,) if one.id else (one.code.system or "", one.code.code)


def find_repeated(
    observations: Iterable[ReportedObservation], seen: set[tuple[str, ...]] | None = None
) -> ReportedObservation | None:
    """The first observation that nothing tells from another one of the report, or from those `seen`, to which they are added."""
    seen = set() if seen is None else seen
    for one in observations:
        if (name := observation_name(one)) in seen:
            return one
        seen.add(name)
    return None


def describe_repeated(one: ReportedObservation) -> str:
    """Why an observation that `find_repeated` found is refused, and what to do."""
    named = f"the code {quotable_code(one.code.code)}" if quotable_code(one.code.code) else "a code"
    return (
        f"{named} stands in it more than once and nothing tells the values apart: have the laboratory system number them in OBX-4"
    )


def _merge_heads(first: LabReport, second: LabReport) -> LabReport:
    return replace(
        first,
        status=min(first.status, second.status, key=_STATUS_ORDER.index),
        barcode=first.barcode or second.barcode,
        effective=first.effective if first.effective != first.issued else second.effective,
        issued=max(first.issued, second.issued),
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

"""An ORU^R01 as reports and refusals: one report for each OBR, one message for the inbox for each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.domain.results import (
    LabMessage,
    LabRefusal,
    LabReport,
    NotPerformed,
    ObservationStatus,
    ReportedObservation,
    ReportStatus,
)
from lab_agent.lis.hl7v2.grouping import Group, groups
from lab_agent.lis.hl7v2.message import Message
from lab_agent.lis.hl7v2.observations import Observations, Recall
from lab_agent.lis.hl7v2.times import TimeError, read_stamp
from lab_agent.lis.hl7v2.values import Reader, ValueProblemError

_LINE, _ORDER = re.compile(r"L[A-Z2-7]{15}\Z"), re.compile(r"R[A-Z2-7]{15}\Z")
_ORDERED = (ReportStatus.REGISTERED, ReportStatus.PRELIMINARY, ReportStatus.PARTIAL, ReportStatus.FINAL)
_CANCELLED = "the laboratory cancelled this test"


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a message says, or why it cannot be taken. `number` is its place in the message."""

    number: int
    content: LabMessage | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Names:
    """What a group calls its order and its lines."""

    lines: tuple[str, ...]
    order: str | None
    accession: str | None
    barcode: str | None
    items: tuple[str, ...]

    @property
    def any(self) -> bool:
        """Whether the order can be found by them."""
        return bool(self.lines or self.order or self.accession or self.barcode)


@dataclass(frozen=True, slots=True)
class Results:
    """Reads results. `recall` gives the last values of a report that were not final yet."""

    reader: Reader
    recall: Recall

    def read(self, message: Message) -> list[Part]:
        """Read all that a message says; what is wrong with one part does not touch the others."""
        found = [self._part(group) for group in groups(message)]
        if not found:
            return [Part(0, problem="the message holds no OBR")]
        if (more := message.first("DSC")) and more.text(1):
            return [Part(0, problem="the message goes on in another one (DSC), which is not read here")]
        return list(_completing(_joined(found)))

    def _part(self, group: Group) -> Part:
        try:
            return Part(group.number, self._content(group))
        except (ValueProblemError, TimeError) as problem:
            return Part(group.number, problem=f"OBR {group.number}: {problem}")

    def _content(self, group: Group) -> LabMessage:
        names = self._names(group)
        if not names.any:
            raise ValueProblemError("names no order: neither our placer number nor a filler number nor a barcode")
        status = self._status(group)
        if rejected := self._rejected(group):
            if any(seen.obx.repetitions(5) for seen in group.observed):
                raise ValueProblemError("has both results and a refused specimen; a person has to look at it")
            return self._refusal(names, rejected)
        if status == "refused":
            why = " ".join(group.notes) or (group.orc.text(16, 2) if group.orc else "")
            return self._refusal(names, why or _CANCELLED, again=False)
        return self._report(group, names, status)

    def _names(self, group: Group) -> Names:
        places = self.reader.field_map.results.places
        lines = tuple(dict.fromkeys(text for text in group.find_all(places["line"]) if _LINE.match(text)))
        orders = (text for place in places["order"] for text in group.find_all((place,)) if _ORDER.match(text))
        items = group.find_all(places["item"]) if not lines else ()
        return Names(
            lines=lines,
            order=next(orders, None),
            accession=group.find(places["accession"]) or None,
            barcode=group.find(places["barcode"]) or None,
            items=items,
        )

    def _status(self, group: Group) -> str:
        code = group.find(self.reader.field_map.results.places["status"])
        if not code:
            return ""
        meaning = self.reader.field_map.table("report_status").get(code)
        if meaning is None:
            raise ValueProblemError("has a status in OBR-25 that is not known")
        if meaning == "held":
            raise ValueProblemError(f"has the status {code} in OBR-25; a person has to look at it")
        return meaning

    def _rejected(self, group: Group) -> str:
        """Give why a specimen of this group is refused; empty if none is."""
        known = self.reader.field_map.results.places
        code = group.find(known["reject"])
        words = group.find(known["reject_text"])
        return code and (words or self.reader.field_map.table("reject_reasons").get(code, code))

    def _refusal(self, names: Names, reason: str, *, again: bool = True) -> LabRefusal:
        entries = [NotPerformed(line=line, reason=reason) for line in names.lines]
        entries = entries or [NotPerformed(item=item, reason=reason) for item in names.items] or [NotPerformed(reason=reason)]
        return LabRefusal(
            order=names.order,
            accession=names.accession,
            barcode=names.barcode,
            not_performed=tuple(entries),
            collect_again=again and self.reader.field_map.results.collect_again,
        )

    def _report(self, group: Group, names: Names, status: str) -> LabReport:
        report_id = self._report_id(group, names)
        found = Observations(self.reader, lambda: self.recall(report_id)).read(group, final=status == "final")
        issued = self._issued(group)
        wide = bool(names.order) and not names.lines and bool(found.documents) and not found.observations
        return LabReport(
            report_id=report_id,
            version=self._version(group),
            status=_report_status(status, found.observations),
            order=names.order,
            lines=names.lines,
            accession=names.accession,
            barcode=names.barcode,
            items=() if wide else names.items,
            completes=() if wide else None,
            effective=self._collected(group) or issued,
            issued=issued,
            observations=found.observations,
            documents=found.documents,
        )

    def _report_id(self, group: Group, names: Names) -> str:
        own = group.find(self.reader.field_map.results.places["report_id"])
        name = names.accession or "+".join(names.lines) or names.order or names.barcode or ""
        return own or f"{name}/{group.find(self.reader.field_map.results.places['item'])}"

    def _version(self, group: Group) -> int | None:
        text = group.find(self.reader.field_map.results.places["version"])
        if text and not (text.isascii() and text.isdigit() and len(text) < 10):
            raise ValueProblemError("has a version that is no number")
        return int(text) if text else None

    def _issued(self, group: Group) -> datetime:
        text = group.find(self.reader.field_map.results.places["issued"])
        if not text:
            raise ValueProblemError("has neither OBR-22 nor MSH-7: nobody can tell when it was issued")
        return read_stamp(text, self.reader.zone)

    def _collected(self, group: Group) -> datetime | None:
        text = group.find(self.reader.field_map.results.places["collected"])
        text = text or next((seen.obx.text(14) for seen in group.observed if seen.obx.text(14)), "")
        return read_stamp(text, self.reader.zone) if text else None


def _report_status(status: str, observations: Sequence[ReportedObservation]) -> ReportStatus:
    """Settle the status: a report is not final while one of its values is not."""
    done = {ObservationStatus.FINAL, ObservationStatus.AMENDED}
    open_ones = [one for one in observations if one.status not in done]
    if not status:
        return ReportStatus.PRELIMINARY if open_ones or not observations else ReportStatus.FINAL
    given = ReportStatus(status)
    return ReportStatus.PARTIAL if given is ReportStatus.FINAL and open_ones else given


def _joined(parts: Iterable[Part]) -> Iterator[Part]:
    """Join reports of one name within a message, as a LIS sends them that repeats the OBR for each page or tube."""
    reports: dict[str, Part] = {}
    for part in parts:
        report = part.content
        if not isinstance(report, LabReport):
            yield part
        elif (earlier := reports.get(report.report_id)) and isinstance(earlier.content, LabReport):
            reports[report.report_id] = replace(earlier, content=_both(earlier.content, report))
        else:
            reports[report.report_id] = part
    yield from reports.values()


def _both(first: LabReport, second: LabReport) -> LabReport:
    return replace(
        first,
        status=min(first.status, second.status, key=_ORDERED.index),
        issued=max(first.issued, second.issued),
        lines=tuple(dict.fromkeys((*first.lines, *second.lines))),
        items=tuple(dict.fromkeys((*first.items, *second.items))),
        observations=(*first.observations, *second.observations),
        documents=(*first.documents, *second.documents),
    )


def _completing(parts: Iterable[Part]) -> Iterator[Part]:
    """A final report does not complete a line of which another report in the same message is not final."""
    listed = list(parts)
    reports = [part.content for part in listed if isinstance(part.content, LabReport)]
    pending = {line for report in reports if report.status is not ReportStatus.FINAL for line in report.lines}
    for part in listed:
        report = part.content
        final = isinstance(report, LabReport) and report.status is ReportStatus.FINAL and report.completes is None
        if isinstance(report, LabReport) and final and any(line in pending for line in report.lines):
            yield replace(part, content=replace(report, completes=tuple(one for one in report.lines if one not in pending)))
        else:
            yield part

"""Reads a message of results as reports and rejections: one report for each OBR, one inbox message for each report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from lab_agent.domain.lab_messages import (
    LabMessage,
    LabRejection,
    LabReport,
    NotPerformed,
    ObservationStatus,
    ReportedObservation,
    ReportStatus,
)
from lab_agent.domain.values import DateOrTime
from lab_agent.lis.hl7v2.obx_reader import ObxReader, OpenReportLookup
from lab_agent.lis.hl7v2.obx_values import InvalidValueError, ObxValueReader
from lab_agent.lis.hl7v2.parser import Message
from lab_agent.lis.hl7v2.report_merging import ParsedReport, limit_completed_lines, merge_same_reports
from lab_agent.lis.hl7v2.segment_groups import ObrGroup, split_groups
from lab_agent.lis.hl7v2.timestamps import InvalidTimestampError, parse_date_or_time

_LINE_KEY, _ORDER_KEY = re.compile(r"L[A-Z2-7]{15}\Z"), re.compile(r"R[A-Z2-7]{15}\Z")
_CANCELLED_REASON = "the laboratory cancelled this test"


@dataclass(frozen=True, slots=True)
class OrderReferences:
    """How a group refers to its order and lines."""

    lines: tuple[str, ...]
    order: str | None
    accession: str | None
    barcode: str | None
    items: tuple[str, ...]

    @property
    def has_any(self) -> bool:
        """Whether the order can be found by any of them."""
        return bool(self.lines or self.order or self.accession or self.barcode)


@dataclass(frozen=True, slots=True)
class ResultReader:
    """Reads results. `load_open_report` returns the last values of a report that was not final."""

    value_reader: ObxValueReader
    load_open_report: OpenReportLookup

    def read(self, message: Message) -> list[ParsedReport]:
        """Read all parts of a message; an invalid part does not affect the others."""
        found = [self._read_group(group) for group in split_groups(message)]
        if not found:
            return [ParsedReport(0, problem="the message has no OBR")]
        if (more := message.first_segment("DSC")) and more.text(1):
            return [ParsedReport(0, problem="continued messages (DSC) are not supported")]
        return list(limit_completed_lines(merge_same_reports(found)))

    def _read_group(self, group: ObrGroup) -> ParsedReport:
        try:
            return ParsedReport(group.number, self._read_content(group))
        except InvalidValueError as error:
            return ParsedReport(group.number, problem=f"OBR {group.number}: {error}")

    def _read_content(self, group: ObrGroup) -> LabMessage:
        references = self._read_references(group)
        if not references.has_any:
            raise InvalidValueError("has no reference to an order: no placer number of ours, no filler number, no barcode")
        status = self._read_status(group)
        if rejected := self._specimen_rejection(group):
            if any(entry.obx.repetitions(5) for entry in group.obx_entries):
                raise InvalidValueError("has both results and a rejected specimen, which an operator must decide")
            return self._build_rejection(references, rejected)
        if status == "refused":
            reason = " ".join(group.notes) or (group.orc.text(16, 2) if group.orc else "")
            return self._build_rejection(references, reason or _CANCELLED_REASON, collect_again=False)
        return self._build_report(group, references, status)

    def _read_references(self, group: ObrGroup) -> OrderReferences:
        places = self.value_reader.field_map.results.paths
        lines = tuple(dict.fromkeys(text for text in group.find_all(places["line"]) if _LINE_KEY.match(text)))
        orders = (text for place in places["order"] for text in group.find_all((place,)) if _ORDER_KEY.match(text))
        items = group.find_all(places["item"]) if not lines else ()
        return OrderReferences(
            lines=lines,
            order=next(orders, None),
            accession=group.find_first(places["accession"]) or None,
            barcode=group.find_first(places["barcode"]) or None,
            items=items,
        )

    def _read_status(self, group: ObrGroup) -> str:
        code = group.find_first(self.value_reader.field_map.results.paths["status"])
        if not code:
            return ""
        meaning = self.value_reader.field_map.table("report_status").get(code)
        if meaning is None:
            raise InvalidValueError("has an unknown status in OBR-25")
        if meaning == "held":
            raise InvalidValueError(f"has the status {code} in OBR-25, which an operator must decide")
        return meaning

    def _specimen_rejection(self, group: ObrGroup) -> str:
        """Why a specimen of this group was rejected; empty if none was."""
        paths = self.value_reader.field_map.results.paths
        code = group.find_first(paths["reject"])
        text = group.find_first(paths["reject_text"])
        return code and (text or self.value_reader.field_map.table("reject_reasons").get(code, code))

    def _build_rejection(self, references: OrderReferences, reason: str, *, collect_again: bool = True) -> LabRejection:
        entries = [NotPerformed(line=line, reason=reason) for line in references.lines]
        entries = (
            entries or [NotPerformed(item=item, reason=reason) for item in references.items] or [NotPerformed(reason=reason)]
        )
        return LabRejection(
            order=references.order,
            accession=references.accession,
            barcode=references.barcode,
            not_performed=tuple(entries),
            collect_again=collect_again and self.value_reader.field_map.results.collect_again,
        )

    def _build_report(self, group: ObrGroup, references: OrderReferences, status: str) -> LabReport:
        report_id = self._report_id(group, references)
        content = ObxReader(self.value_reader, lambda: self.load_open_report(report_id)).read(group, final=status == "final")
        issued = self._read_issued(group)
        whole_order = bool(references.order) and not references.lines and bool(content.documents) and not content.observations
        return LabReport(
            report_id=report_id,
            version=self._read_version(group),
            status=_report_status(status, content.observations),
            order=references.order,
            lines=references.lines,
            accession=references.accession,
            barcode=references.barcode,
            items=() if whole_order else references.items,
            completes=() if whole_order else None,
            effective=self._read_collected(group) or issued,
            issued=issued,
            observations=content.observations,
            documents=content.documents,
        )

    def _report_id(self, group: ObrGroup, references: OrderReferences) -> str:
        own = group.find_first(self.value_reader.field_map.results.paths["report_id"])
        name = references.accession or "+".join(references.lines) or references.order or references.barcode or ""
        return own or f"{name}/{group.find_first(self.value_reader.field_map.results.paths['item'])}"

    def _read_version(self, group: ObrGroup) -> int | None:
        text = group.find_first(self.value_reader.field_map.results.paths["version"])
        if text and not (text.isascii() and text.isdigit() and len(text) < 10):
            raise InvalidValueError("has a version that is not a number")
        return int(text) if text else None

    def _read_issued(self, group: ObrGroup) -> datetime:
        """Read the first moment at the paths; a day alone is none, since midnight would be invented."""
        texts = [group.find_first((path,)) for path in self.value_reader.field_map.results.paths["issued"]]
        with _time_named("time of issue"):
            given = [parse_date_or_time(text, self.value_reader.zone) for text in texts if text]
        moment = next((each for each in given if isinstance(each, datetime)), None)
        if moment is None:
            lacks = "a time of issue without hours and minutes" if given else "no time of issue, neither in OBR-22 nor in MSH-7"
            raise InvalidValueError(f"has {lacks}")
        return moment

    def _read_collected(self, group: ObrGroup) -> DateOrTime | None:
        text = group.find_first(self.value_reader.field_map.results.paths["collected"])
        text = text or next((entry.obx.text(14) for entry in group.obx_entries if entry.obx.text(14)), "")
        with _time_named("collection time"):
            return parse_date_or_time(text, self.value_reader.zone) if text else None


@contextmanager
def _time_named(meaning: str) -> Iterator[None]:
    try:
        yield
    except InvalidTimestampError as error:
        raise InvalidValueError(f"has a {meaning} that {error}") from error


def _report_status(status: str, observations: Sequence[ReportedObservation]) -> ReportStatus:
    """The status of a report: not final while one of its values is not."""
    done = {ObservationStatus.FINAL, ObservationStatus.AMENDED}
    open_ones = [one for one in observations if one.status not in done]
    if not status:
        return ReportStatus.PRELIMINARY if open_ones or not observations else ReportStatus.FINAL
    given = ReportStatus(status)
    return ReportStatus.PARTIAL if given is ReportStatus.FINAL and open_ones else given

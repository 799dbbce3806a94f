"""Reads a message of results as reports and rejections: one report for each OBR, one inbox message for each report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, groupby

from lab_agent.lis.hl7v2.field_map import IgnoreRule
from lab_agent.lis.hl7v2.parser import Message
from lab_agent.lis.hl7v2.results.microbiology import split_isolates
from lab_agent.lis.hl7v2.results.obx_entries import leave_out_entries, prepare_entries, rename_codes
from lab_agent.lis.hl7v2.results.obx_reader import ObxReader, OpenReportLookup
from lab_agent.lis.hl7v2.results.obx_values import InvalidValueError, ObxValueReader
from lab_agent.lis.hl7v2.results.order_references import (
    Distinction,
    OrderReferences,
    build_report_id,
    read_cancellation,
    read_order_references,
    tell_apart,
)
from lab_agent.lis.hl7v2.results.parent_results import parent_name
from lab_agent.lis.hl7v2.results.patient_reader import Said, read_patient
from lab_agent.lis.hl7v2.results.report_merging import ParsedReport, limit_completed_lines, merge_same_reports
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup, split_message
from lab_agent.lis.hl7v2.timestamps import InvalidTimestampError, parse_date_or_time
from lab_agent.lis.lab_messages import LabRejection, LabReport, NotPerformed, ObservationStatus, ReportedObservation, ReportStatus
from lab_agent.shared.values import DateOrTime

_MAX_NAMED = 5
_SAME_REPORT = (
    "has the number and the test of other OBR that are told apart by specimen, time of collection or number, and lacks it: "
    "have the laboratory system send it in each of them"
)
_CORRECTED = "corrected"
_FINAL = frozenset({"final", _CORRECTED})
"""Meanings of `[tables.report_status]` that end a report."""
_CANCELLED_REASON = "the laboratory cancelled this test"


@dataclass(frozen=True, slots=True)
class _ResultNames:
    """The lines and numbers of the groups that have results, and those that such groups name as their parent (OBR-29).

    `parents` are placer's and filler's numbers apart, each with the number of its field in OBR.
    """

    names: frozenset[str]
    parents: frozenset[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class ResultReader:
    """Reads results. `load_open_report` returns the last values of a report that was not final."""

    value_reader: ObxValueReader
    load_open_report: OpenReportLookup
    patients: Said = field(default_factory=dict)

    def read(self, message: Message) -> list[ParsedReport]:
        """Read all parts of a message; an invalid part does not affect the others."""
        if (more := message.first_segment("DSC")) and more.text(1):
            return [ParsedReport(0, problem="the message is continued (DSC) in one that did not come with it")]
        if message.continues:
            return [ParsedReport(0, problem="the message continues one (MSH-14) that did not come before it on its connection")]
        split = split_message(message, self._is_unused, self.value_reader.field_map.results.segments.__contains__)
        found = list(_refuse_shared_ids(self._read_patient(groups) for groups in _by_patient(split.groups)))
        if not split.groups:
            found.append(ParsedReport(0, problem="the message has no OBR"))
        if split.skipped:
            found.append(ParsedReport(0, problem=_describe_skipped(split.skipped)))
        return list(limit_completed_lines(found))

    def _is_unused(self, name: str) -> bool:
        return bool(self.value_reader.field_map.table("unused_segments").get(name))

    def _read_patient(self, groups: Sequence[ObrGroup]) -> list[ParsedReport]:
        """Read the groups of one patient."""
        for group in groups:
            rename_codes(group, self.value_reader.field_map)
            leave_out_entries(group, self.value_reader.field_map)
        with_results = self._find_results(groups)
        parts = list(split_isolates(groups))
        found = [self._identify(group, with_results) for group in parts]
        names = tell_apart([name for name, _ in found], [distinction for _, distinction in found])
        cultures = {
            group.number: name for group, name in zip(parts, names, strict=True) if not (group.isolate and group.isolate.number)
        }
        read = (self._read_part(group, name, cultures, with_results) for group, name in zip(parts, names, strict=True))
        return list(merge_same_reports(read))

    def _identify(self, group: ObrGroup, with_results: _ResultNames) -> tuple[str | None, Distinction | None]:
        """The id of a group's report, and what tells it from others of that id: nothing where the LIS gives ids of its own."""
        field_map = self.value_reader.field_map
        with suppress(InvalidValueError):  # it is refused when it is read
            if not (self._find_ignore_rule(group) or self._is_heading(group, with_results)):
                references = self._read_references(group)
                if group.find_first(field_map.results.paths["report_id"]):
                    return self._report_id(group, references), None
                distinction = Distinction.read(group, references, field_map, self.value_reader.zone)
                return self._report_id(group, references), distinction
        return None, None

    def _find_ignore_rule(self, group: ObrGroup) -> IgnoreRule | None:
        """The rule by which a group is not read; none where what stands before it may be another group's: it is refused then."""
        if group.doubt:
            return None
        return self.value_reader.field_map.results.find_ignore_rule(group.texts_at)

    def _find_results(self, groups: Sequence[ObrGroup]) -> _ResultNames:
        names: set[str] = set()
        parents: set[tuple[int, str]] = set()
        for group in groups:
            if group.obx_entries:
                with suppress(InvalidValueError):  # it is refused when it is read
                    found = read_order_references(group, self.value_reader.field_map)
                    names.update((*found.lines, found.name))
                    parents.update((field, group.obr.text(29, number)) for field, number in ((2, 1), (3, 2)))
        return _ResultNames(frozenset(names - {""}), frozenset(parents - {(2, ""), (3, "")}))

    def _read_part(
        self, group: ObrGroup, name: str | None, cultures: Mapping[int, str | None], with_results: _ResultNames
    ) -> ParsedReport:
        part, isolate = self._read_group(group, name, with_results), group.isolate
        if isolate is None:
            return part
        culture = cultures.get(isolate.culture.number) if isolate.culture else None
        return replace(part, is_isolate=True, isolate=isolate.place, culture=culture)

    def _read_group(self, group: ObrGroup, name: str | None, with_results: _ResultNames) -> ParsedReport:
        if rule := self._find_ignore_rule(group):
            return ParsedReport(group.number, notes=(f"ignored, because {rule}",))
        try:
            if self._is_heading(group, with_results):
                return ParsedReport(group.number, notes=(*group.left_out, "has no OBX; its results stand under another OBR"))
            return self._read_content(group, name)
        except InvalidValueError as error:
            return ParsedReport(group.number, problem=f"OBR {group.number}: {error}")

    def _is_heading(self, group: ObrGroup, with_results: _ResultNames) -> bool:
        """Whether an OBR says nothing by itself, and the results of its line stand under another OBR."""
        paths, field_map = self.value_reader.field_map.results.paths, self.value_reader.field_map
        code = group.find_first(paths["status"])
        says_something = group.obx_entries or group.skipped or group.doubt or len(group.notes) > group.shared_notes
        is_silent = not (says_something or group.find_first(paths["reject"]) or read_cancellation(group, field_map))
        if not is_silent or (code and field_map.table("report_status").get(code) not in _FINAL):
            return False
        references = read_order_references(group, field_map)
        is_parent = not _order_numbers(group).isdisjoint(with_results.parents)
        return is_parent or (bool(references.names) and with_results.names.issuperset(references.names))

    def _read_content(self, group: ObrGroup, name: str | None) -> ParsedReport:
        if group.skipped:
            raise InvalidValueError(_describe_skipped(group.skipped))
        if group.doubt:
            raise InvalidValueError(group.doubt)
        if group.isolate and group.isolate.problem:
            raise InvalidValueError(group.isolate.problem)
        references = self._read_references(group)
        if not references.has_any:
            raise InvalidValueError("has no reference to an order: no placer number of ours, no filler number, no barcode")
        status = self._read_status(group)
        if rejection := self._read_rejection(group, references, status):
            return ParsedReport(group.number, rejection)
        notes = prepare_entries(group, self.value_reader.field_map, final=status in _FINAL)
        if not name:
            raise InvalidValueError(_SAME_REPORT)
        report = self._build_report(group, name, references, status)
        _check_content(report, group, is_emptied=bool(notes))
        return ParsedReport(group.number, report, notes=notes)

    def _read_references(self, group: ObrGroup) -> OrderReferences:
        """As the group has them; an isolate that names no line or known test of its own is about those of its culture."""
        own = read_order_references(group, self.value_reader.field_map)
        culture = group.isolate.culture if group.isolate else None
        if culture is None or own.lines or self._has_known_item(group):
            return own
        parent = read_order_references(culture, self.value_reader.field_map)
        return replace(own, lines=parent.lines, items=parent.items or own.items)

    def _has_known_item(self, group: ObrGroup) -> bool:
        """Whether `[tables.items]` has the test."""
        field_map = self.value_reader.field_map
        return any(
            field_map.table("items").get(code) for path in field_map.results.paths["item"] for code in group.find_all((path,))
        )

    def _read_completes(self, group: ObrGroup, references: OrderReferences) -> tuple[str, ...] | None:
        """What a final report completes; an isolate completes nothing that its culture is about."""
        culture = group.isolate.culture if group.isolate else None
        if culture is None:
            return references.completes
        parent = read_order_references(culture, self.value_reader.field_map)
        is_own = bool(references.lines) and not set(references.lines) & set(parent.lines)
        is_own |= bool(references.items) and not references.lines and not set(references.items) & set(parent.items)
        return references.completes if is_own else ()

    def _read_rejection(self, group: ObrGroup, references: OrderReferences, status: str) -> LabRejection | None:
        if rejected := self._specimen_rejection(group):
            if any(entry.obx.repetitions(5) for entry in group.obx_entries):
                raise InvalidValueError("has both results and a rejected specimen, which an operator must decide")
            return self._build_rejection(group, references, rejected)
        if status == "refused":
            if any(entry.obx.repetitions(5) for entry in group.obx_entries):
                raise InvalidValueError("has both results and a status that rejects its line, which an operator must decide")
            reason = " ".join(group.notes) or (group.orc.text(16, 2) if group.orc else "")
            return self._build_rejection(group, references, reason or _CANCELLED_REASON, collect_again=False)
        return None

    def _read_status(self, group: ObrGroup) -> str:
        field_map = self.value_reader.field_map
        cancelled = read_cancellation(group, field_map)
        if cancelled and any(entry.obx.repetitions(5) for entry in group.obx_entries):
            raise InvalidValueError("has both results and a cancelled order (ORC-1, ORC-5), which an operator must decide")
        if cancelled == "held":
            raise InvalidValueError("has a cancelled order (ORC-1, ORC-5), which an operator must decide")
        code = group.find_first(field_map.results.paths["status"])
        if cancelled or not code:
            return cancelled
        meaning = field_map.table("report_status").get(code)
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

    def _build_rejection(
        self, group: ObrGroup, references: OrderReferences, reason: str, *, collect_again: bool = True
    ) -> LabRejection:
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
            patient=read_patient(group, self.value_reader.field_map, self.patients),
        )

    def _build_report(self, group: ObrGroup, report_id: str, references: OrderReferences, status: str) -> LabReport:
        content = ObxReader(self.value_reader, lambda: self.load_open_report(report_id)).read(group, final=status in _FINAL)
        issued = self._read_issued(group)
        completes = self._read_completes(group, references)
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
            completes=() if whole_order else completes,
            effective=self._read_collected(group) or issued,
            issued=issued,
            observations=content.observations,
            documents=content.documents,
            patient=read_patient(group, self.value_reader.field_map, self.patients),
            correction=status == _CORRECTED,
        )

    def _report_id(self, group: ObrGroup, references: OrderReferences) -> str:
        own = group.find_first(self.value_reader.field_map.results.paths["report_id"])
        whole = "/".join(filter(None, (own, parent_name(group)))) if own else build_report_id(group, references)
        return f"{whole}#{group.isolate.number}" if group.isolate and group.isolate.number else whole

    def _read_version(self, group: ObrGroup) -> int | None:
        text = group.find_first(self.value_reader.field_map.results.paths["version"])
        if text and not (text.isascii() and text.isdigit() and len(text) < 10):
            raise InvalidValueError("has a version that is not a number")
        return int(text) if text else None

    def _read_issued(self, group: ObrGroup) -> datetime:
        """Read the first moment at the paths; a day alone is none, since midnight would be invented.

        What comes behind it is not read: a header without a time zone does not spoil a good OBR-22.
        """
        is_given = False
        for path in self.value_reader.field_map.results.paths["issued"]:
            if text := group.find_first((path,)):
                is_given = True
                with _time_named("time of issue"):
                    moment = parse_date_or_time(text, self.value_reader.zone)
                if isinstance(moment, datetime):
                    return moment
        lacks = "a time of issue without hours and minutes" if is_given else "no time of issue, neither in OBR-22 nor in MSH-7"
        raise InvalidValueError(f"has {lacks}")

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
    given = ReportStatus.FINAL if status in _FINAL else ReportStatus(status)
    return ReportStatus.PARTIAL if given is ReportStatus.FINAL and open_ones else given


def _check_content(report: LabReport, group: ObrGroup, *, is_emptied: bool) -> None:
    """Check that a report says something, and that a note has a value to stand beside. Raises `InvalidValueError`."""
    if not (report.observations or report.documents) and (is_emptied or report.status is ReportStatus.FINAL):
        raise InvalidValueError("has no result: none of its OBX has a value" if is_emptied else "is final and has no OBX")
    if group.notes and not report.observations:
        raise InvalidValueError("has a note (NTE) but no value that it could stand beside")


def _by_patient(groups: Sequence[ObrGroup]) -> Iterator[tuple[ObrGroup, ...]]:
    return (tuple(found) for _, found in groupby(groups, key=lambda group: group.patient))


def _refuse_shared_ids(patients: Iterable[Sequence[ParsedReport]]) -> Iterator[ParsedReport]:
    """Refuse reports of different patients (PID) that have one id: nobody can tell whose it is."""
    listed = [list(parts) for parts in patients]
    owners = Counter(report_id for parts in listed for report_id in {_report_id(part) for part in parts})
    for part in chain.from_iterable(listed):
        if (report_id := _report_id(part)) and owners[report_id] > 1:
            yield replace(part, content=None, problem=f"OBR {part.number}: another patient of the message has the same report")
        else:
            yield part


def _report_id(part: ParsedReport) -> str | None:
    return part.content.report_id if isinstance(part.content, LabReport) else None


def _order_numbers(group: ObrGroup) -> set[tuple[int, str]]:
    """The placer's and the filler's number of a group, each with its field."""
    return {(field, segment.text(field)) for segment in (group.obr, group.orc) if segment for field in (2, 3)}


def _describe_skipped(places: Sequence[str]) -> str:
    listed = ", ".join(places[:_MAX_NAMED]) + (f" and {len(places) - _MAX_NAMED} more" if len(places) > _MAX_NAMED else "")
    return f"nothing reads {listed}: map it, or list it in [tables.unused_segments]"

"""Shows what the adapter reads of a raw message, segment by segment, for `adapter NAME try` and for the replay of refused ones.

The parts come from `parse_results`, as those of a message that arrives; nothing is stored and nothing is answered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab_agent.lis.hl7v2.map_suggestions import split_groups, suggest_encoding, suggest_for_header, suggest_for_results
from lab_agent.lis.hl7v2.message_archive import MessageArchive
from lab_agent.lis.hl7v2.parser import (
    InvalidMessageError,
    Message,
    Segment,
    UndecodableMessageError,
    split_at_headers,
    split_batch,
)
from lab_agent.lis.hl7v2.receiver import check_header, is_acknowledgement, parse_results, read_message
from lab_agent.lis.hl7v2.results.continued_messages import are_parts, join_parts
from lab_agent.lis.hl7v2.results.obx_entries import rename_codes, rename_texts, why_left_out
from lab_agent.lis.hl7v2.results.obx_flags import has_speaking_flag
from lab_agent.lis.hl7v2.results.obx_reader import read_flagged_value
from lab_agent.lis.hl7v2.results.obx_values import InvalidValueError, ObxValueReader
from lab_agent.lis.hl7v2.results.organisms import has_organism
from lab_agent.lis.hl7v2.results.reference_ranges import read_reference_ranges
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup
from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.lis.hl7v2.timestamps import InvalidTimestampError
from lab_agent.lis.hl7v2.transport.mllp import FS, VT, describe_too_long
from lab_agent.lis.lab_messages import ObservationStatus, ReportedObservation
from lab_agent.lis.laboratory_system import MapSuggestion, ParsedMessage, ParsedPart, TraceLine
from lab_agent.lis.raw_messages import name_words, names_somebody
from lab_agent.lis.value_reading import UnreadableValueError
from lab_agent.lis.value_text import format_reference_ranges, format_value
from lab_agent.shared.text import shorten
from lab_agent.shared.values import Coding

_PERSONAL_SEGMENTS = frozenset({"PID", "PD1", "NK1", "MRG", "GT1", "IN1", "IN2", "IN3", "PV1", "PV2", "ACC", "ARV", "PRT", "OH1"})
_GROUPED_SEGMENTS = frozenset({"ORC", "OBR", "OBX", "SPM", "SAC", "NTE"})
_SPECIMEN_SEGMENTS = frozenset({"SPM", "SAC"})
_MAX_TRACED = 2_000
"""Segments of a message that are shown: a person reads no more, and the whole is read by `parse_results` in any case."""
_SHOWN_VALUES = (
    ("line", "line"),
    ("order", "order"),
    ("accession", "accession"),
    ("barcode", "barcode"),
    ("item", "test"),
    ("status", "status"),
    ("collected", "collected"),
    ("issued", "issued"),
)
"""What is shown of a group, by its name among the paths of the map."""
_KEY_STARTS = {"line": "L", "order": "R"}
"""Our keys: both are searched in the same fields."""


def trace_raw_message(raw: bytes, name: str, settings: Hl7v2Settings, archive: MessageArchive) -> ParsedMessage:
    """Read a message, in a frame or bare, as it would be read if it arrived now; the parts of a continued one are joined.

    `name` is that of the adapter.
    """
    read = [_trace_message(data, name, settings, archive) for data in _split_frame(raw)]
    return ParsedMessage(
        parts=tuple(part for one in read for part in one.parts),
        trace=tuple(line for one in read for line in one.trace),
        suggestions=tuple(dict.fromkeys(each for one in read for each in one.suggestions)),
        names=frozenset().union(*(one.names for one in read)),
    )


def _split_frame(raw: bytes) -> list[bytes]:
    """The messages to read: of a continued one the whole. The bytes stay as they came: the ids of the parts are made of them."""
    before, start, behind = raw.partition(VT)
    data = behind.partition(FS)[0] if start and not before.strip() else raw
    parts = split_at_headers(data)
    return [join_parts(parts)] if are_parts(parts) else split_batch(data)


def _trace_message(data: bytes, name: str, settings: Hl7v2Settings, archive: MessageArchive) -> ParsedMessage:
    if len(data) > settings.max_message_bytes:
        return _refused(data, describe_too_long(settings.max_message_bytes))
    try:
        message = read_message(data, settings)
    except UndecodableMessageError as error:
        return _refused(data, str(error), suggestions=suggest_encoding(data, name))
    except InvalidMessageError as error:
        return _refused(data, str(error))
    if is_acknowledgement(message):
        return ParsedMessage(parts=(), trace=(_acknowledgement_line(message),))
    trace = tuple(trace_segments(message, settings))
    if decision := check_header(message, settings):
        return _refused(data, "; ".join(decision.reasons), trace, suggest_for_header(message, settings, name))
    return ParsedMessage(
        parts=parse_results(message, data, settings, archive),
        trace=trace,
        suggestions=suggest_for_results(message, settings, name),
        names=_patient_names(message),
    )


def trace_segments(message: Message, settings: Hl7v2Settings) -> Iterator[TraceLine]:
    """Every segment of a message with what is read of it."""
    described = _describe_groups(message, settings)
    names = _patient_names(message)
    for number, segment in enumerate(message.segments[:_MAX_TRACED], 1):
        meaning = described.get(id(segment)) or _describe_other(segment, message, settings)
        yield TraceLine(
            place=f"{number} {segment.name}",
            text=segment.separators.field.join(segment.fields if segment.name != "MSH" else (segment.name, *segment.fields[2:])),
            meaning=meaning,
            skipped=not meaning,
            personal=segment.name in _PERSONAL_SEGMENTS or names_somebody(" ".join(segment.fields), names),
        )
    if (rest := len(message.segments) - _MAX_TRACED) > 0:
        yield TraceLine(place=f"{_MAX_TRACED + 1} …", text="", meaning=f"{rest} more segments are read and not shown")


def _refused(
    data: bytes, problem: str, trace: Sequence[TraceLine] = (), suggestions: Sequence[MapSuggestion] = ()
) -> ParsedMessage:
    key = hashlib.sha256(data).hexdigest()[:24]
    part = ParsedPart(message_id=key, problem=problem)
    return ParsedMessage(parts=(part,), trace=tuple(trace), suggestions=tuple(suggestions))


def _acknowledgement_line(message: Message) -> TraceLine:
    kind = message.message_type[0]
    return TraceLine(place="1 MSH", text=kind, meaning="an acknowledgement: it settles what was sent, and holds no result")


def _describe_other(segment: Segment, message: Message, settings: Hl7v2Settings) -> str:
    """What is read of a segment outside of the groups; empty for one that nothing reads."""
    if segment.name == "MSH":
        kind = "^".join(part for part in message.message_type if part)
        sender = f"{kind} {shorten(message.control_id)} of {shorten(segment.text(3))}"
        return f"{sender}, version {segment.text(12)}, {segment.encoding}"
    if segment.name == "PID":
        return "whose result it is; compared with the order's patient"
    if segment.name == "DSC":
        return "where the message goes on"
    if segment.name not in _GROUPED_SEGMENTS and segment.name in settings.field_map.results.segments:
        return "searched for the values that the map names"
    reason = settings.field_map.table("unused_segments").get(segment.name)
    return f"not needed: {reason}" if reason else ""


def _describe_groups(message: Message, settings: Hl7v2Settings) -> dict[int, str]:
    """What is read of the segments of all groups, by the identity of each segment."""
    found: dict[int, str] = {}
    shown = {id(segment) for segment in message.segments[:_MAX_TRACED]}
    for group in split_groups(message, settings.field_map):
        if id(group.obr) in shown:
            found |= _GroupDescription(group, settings).describe()
    return _describe_notes(message) | found


def _describe_notes(message: Message) -> dict[int, str]:
    """A note belongs to what stands before it."""
    notes: dict[int, str] = {}
    owner = ""
    for segment in message.segments:
        if segment.name != "NTE":
            owner = segment.name
        else:
            notes[id(segment)] = "note of the observation before it" if owner == "OBX" else "note of the report"
    return notes


@dataclass(frozen=True, slots=True)
class _GroupDescription:
    """Describes the segments of one group."""

    group: ObrGroup
    settings: Hl7v2Settings

    def describe(self) -> dict[int, str]:
        found = {id(self.group.obr): f"report {self.group.number}: {self._describe_values()}"}
        if self.group.orc is not None:
            found[id(self.group.orc)] = f"belongs to report {self.group.number}"
        reader = ObxValueReader(self.settings.field_map, self.settings.zone)
        given = {entry.number: id(entry.obx) for entry in self.group.obx_entries}
        rename_codes(self.group, self.settings.field_map)
        rename_texts(self.group, self.settings.field_map)
        found |= dict.fromkeys(given.values(), "goes on with the document before it")
        shown, is_culture = self.group.obx_entries[:_MAX_TRACED], has_organism(self.group.obx_entries)
        found |= {given[entry.number]: describe_obx(entry.obx, reader, is_culture=is_culture) for entry in shown}
        found |= {
            id(each): f"searched for the values of report {self.group.number}"
            for each in self.group.other_segments
            if each.name in _SPECIMEN_SEGMENTS or each.name in self.settings.field_map.results.segments
        }
        return found

    def _describe_values(self) -> str:
        paths = self.settings.field_map.results.paths
        values = [(label, self.group.find_first(paths[name])) for name, label in _SHOWN_VALUES if name in paths]
        values = [(label, text) for label, text in values if _KEY_STARTS.get(label, "") == text[:1] or label not in _KEY_STARTS]
        statuses = self.settings.field_map.table("report_status")
        shown = (
            f"{label} {shorten(text)}" + (f" → {statuses.get(text, 'unknown')}" if label == "status" else "")
            for label, text in values
            if text
        )
        return ", ".join(shown) or "nothing that names an order"


def describe_obx(obx: Segment, reader: ObxValueReader, *, is_culture: bool) -> str:
    """The value of an OBX as it is read, its status and its flags; or why it is invalid or left out."""
    if left_out := why_left_out(obx, reader.field_map):
        return f"{shorten(obx.text(3))} is left out: {left_out}"
    kind, code = obx.text(2).upper(), obx.text(3)
    status = obx.text(11)
    meaning = reader.field_map.table("observation_status").get(status, "unknown") if status else "that of the report"
    try:
        value = _describe_value(obx, reader, kind, code, is_culture=is_culture)
    except (InvalidValueError, InvalidTimestampError, UnreadableValueError) as error:
        value = f"invalid: {error}"
    flags = ", ".join(each.component_text(1) for each in obx.repetitions(8))
    return "; ".join(
        part
        for part in (f"{shorten(code)} = {value}", f"status {status} → {meaning}" if status else "", flags and f"flags {flags}")
        if part
    )


def _describe_value(obx: Segment, reader: ObxValueReader, kind: str, code: str, *, is_culture: bool) -> str:
    if kind in {"ED", "RP"}:
        return "a document" if obx.repetitions(5) else "no document"
    if not (obx.repetitions(5) or has_speaking_flag(obx)):
        return "no value"
    observation = ReportedObservation(
        code=Coding(code=code or "?"),
        status=ObservationStatus.FINAL,
        reference_ranges=read_reference_ranges(obx, reader),
        **read_flagged_value(obx, reader, has_organism=is_culture),
    )
    form = next(
        (name for name in ("quantity", "range", "ratio", "string") if getattr(observation, f"value_{name}") is not None), ""
    )
    ranges = format_reference_ranges(observation.reference_ranges).replace("\n", ", ")
    shown = f"{shorten(format_value(observation))}" + (f" ({form})" if form else f" ({kind})")
    return f"{shown}, range {shorten(ranges)}" if ranges else shown


def _patient_names(message: Message) -> frozenset[str]:
    """The words by which the message names the patient, so that no other segment shows them."""
    texts = (
        each.component_text(part)
        for segment in message.segments
        if segment.name in {"PID", "NK1"}
        for field in ((5, 9) if segment.name == "PID" else (2,))
        for each in segment.repetitions(field)
        for part in (1, 2, 3)
    )
    return name_words(texts)

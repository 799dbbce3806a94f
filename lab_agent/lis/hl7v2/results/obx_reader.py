"""Reads the OBX segments of one group as observations and documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from lab_agent.lis.hl7v2.parser import Segment
from lab_agent.lis.hl7v2.results.obx_documents import DOCUMENT_TYPES, read_documents
from lab_agent.lis.hl7v2.results.obx_flags import OFF_SCALE, flag_result, read_flags, unknown_flags
from lab_agent.lis.hl7v2.results.obx_repeats import names_beside_values, text_keys
from lab_agent.lis.hl7v2.results.obx_times import times_of_values
from lab_agent.lis.hl7v2.results.obx_values import LOINC, InvalidValueError, ObxValueReader, put_off_scale
from lab_agent.lis.hl7v2.results.organisms import has_organism, sub_id
from lab_agent.lis.hl7v2.results.reference_ranges import read_reference_ranges
from lab_agent.lis.hl7v2.results.report_merging import describe_repeated, find_repeated
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup, ObxEntry
from lab_agent.lis.hl7v2.timestamps import InvalidTimestampError, parse_date_or_time
from lab_agent.lis.lab_messages import Document, LabReport, ObservationStatus, ReportedObservation
from lab_agent.lis.value_reading import UnreadableValueError, readable_text
from lab_agent.shared.values import CodeableConcept, Coding

_FLAG_WITHOUT_VALUE = (
    "has no value, and a flag in OBX-8 that may be its result: have the laboratory system send the value, "
    "or say in [tables.flags] what the flag means"
)
OpenReportLookup = Callable[[str], LabReport | None]
TextKey = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupContent:
    """The observations and documents of a group."""

    observations: tuple[ReportedObservation, ...]
    documents: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What the other OBX say of one.

    `has_organism`: flags may be susceptibilities; `is_line`: it is one of several lines of a text; `kind` tells it from another
    value of the same code and number.
    """

    specimen: str | None
    has_organism: bool
    is_line: bool
    kind: str


@dataclass(frozen=True, slots=True)
class ObxReader:
    """Reads the OBX of a group; `load_open_report` returns the report's earlier values that were not final."""

    value_reader: ObxValueReader
    load_open_report: Callable[[], LabReport | None]

    def read(self, group: ObrGroup, *, final: bool) -> GroupContent:
        """Read all OBX. Raises `InvalidValueError`, naming the OBX."""
        observations: list[ReportedObservation] = []
        documents: list[Document] = []
        keys = text_keys(group.obx_entries)
        times = times_of_values(group, self.value_reader)
        last: TextKey = ()
        specimen = group.find_first(self.value_reader.field_map.results.paths["specimen"]) or None
        is_culture = group.isolate is not None or has_organism(group.obx_entries)
        kinds = names_beside_values(group)
        for place, entry in enumerate(group.obx_entries):
            try:
                status = self._read_status(entry.obx, final=final)
                if entry.obx.text(2).upper() in DOCUMENT_TYPES:
                    documents += read_documents(entry.obx, entry.obx.encoding)
                    continue
                around = _Surroundings(specimen, is_culture, _is_line(keys, place), kinds.get(entry.number, ""))
                one = self._read_observation(entry, status, around)
            except (InvalidValueError, UnreadableValueError) as error:
                raise InvalidValueError(f"OBX {entry.number} {error}") from error
            except InvalidTimestampError as error:
                raise InvalidValueError(f"OBX {entry.number} has a time that {error}") from error
            previous, last = last, keys[place]
            if one is None:
                continue
            if last and last == previous and observations:
                observations[-1] = _append_text(observations[-1], one)
            else:
                observations.append(replace(one, note=_join_notes(one.note, times.get(entry.number))))
        if repeated := find_repeated(observations):
            raise InvalidValueError(describe_repeated(repeated))
        if group.notes and observations:
            observations[0] = replace(observations[0], note=_join_notes(*group.notes, observations[0].note))
        return GroupContent(tuple(observations), tuple(documents))

    def _read_status(self, obx: Segment, *, final: bool) -> str:
        code = obx.text(11)
        if not code:
            return "final" if final else "preliminary"
        meaning = self.value_reader.field_map.table("observation_status").get(code)
        if meaning is None:
            raise InvalidValueError("has an unknown status in OBX-11")
        if meaning in {"held", "refused"}:
            raise InvalidValueError(f"has the status {code} in OBX-11, which an operator must decide")
        return meaning

    def _read_observation(self, entry: ObxEntry, status: str, around: _Surroundings) -> ReportedObservation | None:
        obx = entry.obx
        coding = self._read_code(obx)
        name = self._observation_id(obx, coding, around.kind)
        if not obx.repetitions(5):
            if status == "registered":
                return None  # it only says that there is no value yet
            if status == "stored":
                return self._finalize_stored(coding, name)
        table = self.value_reader.field_map.table("flags")
        return ReportedObservation(
            id=name,
            code=coding,
            status=ObservationStatus.FINAL if status == "stored" else ObservationStatus(status),
            method=self._read_method(obx),
            specimen=around.specimen,
            reference_ranges=read_reference_ranges(obx, self.value_reader),
            issued=self._read_issued(obx),
            flags=read_flags(obx, has_organism=around.has_organism, table=table),
            note=_join_notes(*entry.notes, *unknown_flags(obx, has_organism=around.has_organism, table=table)),
            **read_flagged_value(obx, self.value_reader, has_organism=around.has_organism, is_line=around.is_line),
        )

    def _read_issued(self, obx: Segment) -> datetime | None:
        """A moment; of a day alone the report's own time of issue says more."""
        read = parse_date_or_time(obx.text(19), self.value_reader.zone) if obx.text(19) else None
        return read if isinstance(read, datetime) else None

    def _finalize_stored(self, coding: Coding, observation_id: str | None) -> ReportedObservation:
        report = self.load_open_report()
        for one in report.observations if report else ():
            if (one.code.system, one.code.code, one.id) == (coding.system, coding.code, observation_id):
                return replace(one, status=ObservationStatus.FINAL)
        raise InvalidValueError("makes a value final (status U) that was not sent before: send the value with it")

    def _read_code(self, obx: Segment) -> Coding:
        codings = list(self.value_reader.read_codings(obx.first_repetition(3)))
        if not codings:
            raise InvalidValueError("has no code in OBX-3")
        return next((coding for coding in codings if coding.system == LOINC), codings[0])

    def _observation_id(self, obx: Segment, coding: Coding, kind: str) -> str | None:
        """OBX-21, else the code with OBX-4; one code may stand for several tests that have codes of their own beside it."""
        own, further = obx.text(21), sub_id(obx) or self._other_code(obx, coding)
        name = "/".join(filter(None, (coding.code, further, kind)))
        return own or (name if name != coding.code else None)

    def _other_code(self, obx: Segment, coding: Coding) -> str | None:
        """The laboratory's own code beside a LOINC code."""
        others = (one.code for one in self.value_reader.read_codings(obx.first_repetition(3)) if one.system != LOINC)
        return next(others, None) if coding.system == LOINC else None

    def _read_method(self, obx: Segment) -> CodeableConcept | None:
        value = obx.first_repetition(17)
        if not value:
            return None
        return CodeableConcept(
            coding=tuple(self.value_reader.read_codings(value)), text=readable_text(value.component_text(2)) or None
        )


def read_flagged_value(obx: Segment, reader: ObxValueReader, *, has_organism: bool, is_line: bool = False) -> dict[str, Any]:
    """The value, which OBX-8 may complete (`>` is off the scale); where there is none, the result that OBX-8 says.

    Raises `InvalidValueError`, `InvalidTimestampError`, `UnreadableValueError`.
    """
    table = reader.field_map.table("flags")
    if not obx.repetitions(5):
        if result := flag_result(obx, has_organism=has_organism, table=table):
            return {"value_codeable_concept": CodeableConcept(coding=(result,), text=result.display)}
        raise InvalidValueError(_FLAG_WITHOUT_VALUE if obx.repetitions(8) else "has no value")
    value = reader.read_value(obx, is_line=is_line)
    signs = OFF_SCALE.intersection(read_flags(obx, has_organism=has_organism, table=table))
    return put_off_scale(value, signs) if signs and not is_line else value


def _is_line(keys: Sequence[TextKey], place: int) -> bool:
    """Whether an OBX is one of several lines of a text, and so no number by itself."""
    return bool(keys[place]) and keys[place] in (*keys[max(place - 1, 0) : place], *keys[place + 1 : place + 2])


def _append_text(text: ReportedObservation, more: ReportedObservation) -> ReportedObservation:
    return replace(
        text,
        value_string=f"{text.value_string}\n{more.value_string}",
        flags=tuple(dict.fromkeys((*text.flags, *more.flags))),
        reference_ranges=(*text.reference_ranges, *(one for one in more.reference_ranges if one not in text.reference_ranges)),
        method=text.method or more.method,
        note=_join_notes(text.note, more.note),
        status=_least_final_status(text.status, more.status),
    )


def _least_final_status(*statuses: ObservationStatus) -> ObservationStatus:
    """The status of a text made of several lines."""
    order = (ObservationStatus.REGISTERED, ObservationStatus.PRELIMINARY, ObservationStatus.AMENDED, ObservationStatus.FINAL)
    return min(statuses, key=order.index)


def _join_notes(*notes: str | None) -> str | None:
    return "\n".join(text for note in notes if note and (text := readable_text(note))) or None

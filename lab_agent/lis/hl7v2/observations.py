"""The OBX of one group as observations and documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lab_agent.domain.results import Document, LabReport, ObservationStatus, ReportedObservation
from lab_agent.domain.values import CodeableConcept, Coding
from lab_agent.lis.hl7v2.documents import documents
from lab_agent.lis.hl7v2.grouping import Group, Observed
from lab_agent.lis.hl7v2.message import Segment
from lab_agent.lis.hl7v2.ranges import reference_ranges
from lab_agent.lis.hl7v2.times import TimeError, read_stamp
from lab_agent.lis.hl7v2.values import Reader, ValueProblemError

Recall = Callable[[str], LabReport | None]
_DOCUMENTS = frozenset({"ED", "RP"})
_LINED = frozenset({"TX", "FT"})
_LOINC = "http://loinc.org"


@dataclass(frozen=True, slots=True)
class Reported:
    """What a group says: its observations and its documents."""

    observations: tuple[ReportedObservation, ...]
    documents: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class Observations:
    """Reads the OBX of a group; `stored` gives the report's values that were sent before and were not final."""

    reader: Reader
    stored: Callable[[], LabReport | None]

    def read(self, group: Group, *, final: bool) -> Reported:
        """Read them all. Raises `ValueProblemError` or `TimeError`, naming the OBX."""
        observations: list[ReportedObservation] = []
        found: list[Document] = []
        last: tuple[str, str, str] | None = None
        specimen = group.find(self.reader.field_map.results.places["specimen"]) or None
        for number, seen in enumerate(group.observed, 1):
            try:
                status = self._status(seen.obx, final=final)
                if seen.obx.text(2).upper() in _DOCUMENTS:
                    found += documents(seen.obx, seen.obx.encoding)
                    continue
                one = self._observation(seen, status, specimen)
            except (ValueProblemError, TimeError) as problem:
                raise ValueProblemError(f"OBX {number} {problem}") from problem
            lined, last = last, _lined(seen.obx)
            if one is None:
                continue
            if last and last == lined and observations:
                observations[-1] = _longer(observations[-1], one)
            else:
                observations.append(_with_own_id(one, observations))
        if group.notes and observations:
            observations[0] = replace(observations[0], note=_noted(*group.notes, observations[0].note))
        return Reported(tuple(observations), tuple(found))

    def _status(self, obx: Segment, *, final: bool) -> str:
        code = obx.text(11)
        if not code:
            return "final" if final else "preliminary"
        meaning = self.reader.field_map.table("observation_status").get(code)
        if meaning is None:
            raise ValueProblemError("has a status in OBX-11 that is not known")
        if meaning in {"held", "refused"}:
            raise ValueProblemError(f"has the status {code} in OBX-11; a person has to look at it")
        return meaning

    def _observation(self, seen: Observed, status: str, specimen: str | None) -> ReportedObservation | None:
        obx = seen.obx
        coding = self._code(obx)
        name = self._id(obx, coding)
        if not obx.repetitions(5):
            if status == "registered":
                return None  # nothing is known yet, and that is all it says
            if status == "stored":
                return self._from_stored(coding, name)
        return ReportedObservation(
            id=name,
            code=coding,
            status=ObservationStatus.FINAL if status == "stored" else ObservationStatus(status),
            method=self._method(obx),
            specimen=specimen,
            reference_ranges=reference_ranges(obx, self.reader),
            issued=read_stamp(obx.text(19), self.reader.zone) if obx.text(19) else None,
            flags=tuple(flag for value in obx.repetitions(8) if (flag := value.at(1).strip())),
            note=_noted(*seen.notes),
            **self.reader.value(obx),
        )

    def _from_stored(self, coding: Coding, name: str | None) -> ReportedObservation:
        report = self.stored()
        for one in report.observations if report else ():
            if (one.code.system, one.code.code, one.id) == (coding.system, coding.code, name):
                return replace(one, status=ObservationStatus.FINAL)
        raise ValueProblemError("makes a value final (status U) that was not sent before; send it with its value")

    def _code(self, obx: Segment) -> Coding:
        codings = list(self.reader.codings(obx.value(3)))
        if not codings:
            raise ValueProblemError("has no code in OBX-3")
        return next((coding for coding in codings if coding.system == _LOINC), codings[0])

    def _id(self, obx: Segment, coding: Coding) -> str | None:
        own, sub = obx.text(21), obx.text(4)
        return own or (f"{coding.code}/{sub}" if sub else None)

    def _method(self, obx: Segment) -> CodeableConcept | None:
        value = obx.value(17)
        if not value:
            return None
        return CodeableConcept(coding=tuple(self.reader.codings(value)), text=value.at(2).strip() or None)


def _lined(obx: Segment) -> tuple[str, str, str] | None:
    """Name the text that an OBX is a line of: such texts come as one OBX for each line."""
    kind = obx.text(2).upper()
    return (kind, obx.raw(3), obx.raw(4)) if kind in _LINED else None


def _longer(text: ReportedObservation, more: ReportedObservation) -> ReportedObservation:
    return replace(
        text,
        value_string=f"{text.value_string}\n{more.value_string}",
        note=_noted(text.note, more.note),
        status=_least(text.status, more.status),
    )


def _least(*statuses: ObservationStatus) -> ObservationStatus:
    """Give the status of a whole from those of its lines."""
    order = (ObservationStatus.REGISTERED, ObservationStatus.PRELIMINARY, ObservationStatus.AMENDED, ObservationStatus.FINAL)
    return min(statuses, key=order.index)


def _with_own_id(one: ReportedObservation, others: list[ReportedObservation]) -> ReportedObservation:
    """Keep names unique within a report, where a LIS repeats a sub-id."""
    taken = {other.id for other in others}
    if one.id is None or one.id not in taken:
        return one
    number = next(number for number in range(2, len(others) + 3) if f"{one.id}#{number}" not in taken)
    return replace(one, id=f"{one.id}#{number}")


def _noted(*notes: str | None) -> str | None:
    return "\n".join(note for note in notes if note) or None

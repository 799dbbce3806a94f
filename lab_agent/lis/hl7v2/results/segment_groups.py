"""Splits a message of results into groups: each OBR with what belongs to it, whatever the order of the segments.

| Message | Order of its segments |
|---|---|
| ORU^R01, R30 to R32 | for each patient: PID, then for each order: ORC, OBR, OBX, and last the SPM |
| OUL^R22, R23 (IHE LAB-3, LAW) | for each specimen: SPM, SAC, then for each order: OBR, ORC, OBX |
| OUL^R21 | SAC, then ORC, OBR, OBX |
| OUL^R24 | for each order: OBR, ORC, SPM, SAC, OBX |

So a specimen that comes before the first OBR leads: it belongs to every OBR up to the next specimen. Else it belongs to the OBR
before it. Nothing is left out silently: what has no place here is listed in `skipped`. Where an ORC or a specimen is left over,
each of the others may be that of its neighbour, too: what was read with their help is not delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from lab_agent.lis.hl7v2.parser import FieldPath, Message, Segment

_GROUP_SEGMENTS = frozenset({"ORC", "OBR", "OBX", "SPM", "SAC", "NTE", "TQ1", "TQ2", "TCD", "CTD"})
"""Segments that always belong to one group, and are never read from elsewhere in the message."""
_SPECIMEN_SEGMENTS = frozenset({"SPM", "SAC"})
_READ_SEGMENTS = frozenset({"MSH", "PID", "ORC", "OBR", "OBX", "NTE", "SPM", "SAC", "DSC"})
_PID_AFTER_SET_ID = 2
"""The same PID again, before a further order or in the next part of a message, is the same patient."""
SPECIMEN_OBX = "SPM/OBX"
"""Name of an OBX that follows a specimen: it may describe the specimen, or be a result in the wrong place."""


@dataclass(slots=True)
class ObxEntry:
    """One OBX, with the notes after it. `number` counts the OBX of its group from 1."""

    obx: Segment
    notes: list[str] = field(default_factory=list)
    number: int = 0


@dataclass(slots=True)
class ObrGroup:
    """One OBR, with its ORC, its specimen and its results. `number` counts from 1; `patient` counts the PID of the message.

    `shared` are the segments of the message and of its patient that belong to no order, by their names: one table for all groups
    of the patient. `skipped` names the segments that nothing reads; `left_out` says which OBX are no results, and why.
    """

    number: int
    obr: Segment
    orc: Segment | None
    message: Message
    other_segments: list[Segment] = field(default_factory=list)
    obx_entries: list[ObxEntry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    shared_notes: int = 0
    """How many of the notes, the first ones, are about more than this OBR: its patient, or its specimen."""
    results_ended: bool = False
    """Whether the results have ended: an OBX after a specimen that follows results need not be one."""
    patient: int = 0
    pid: Segment | None = None
    shared: Mapping[str, Sequence[Segment]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    left_out: tuple[str, ...] = ()
    isolate: Isolate | None = None
    has_leading_orc: bool = False
    """Whether its ORC stands before it."""
    doubt: str = ""
    """Why what was taken from before it may be another group's."""

    def find_first(self, paths: Sequence[FieldPath]) -> str:
        """The value at the first path that has one; empty if none has."""
        return next((text for path in paths for text in self.texts_at(path)), "")

    def find_all(self, paths: Sequence[FieldPath]) -> tuple[str, ...]:
        """All repetitions at the first path that has a value."""
        return next((found for path in paths if (found := tuple(self.texts_at(path)))), ())

    def texts_at(self, path: FieldPath) -> Iterator[str]:
        """The values at a path."""
        return (text for segment in self.segments_named(path.segment) for text in segment.texts_at(path))

    def segments_named(self, name: str) -> Iterator[Segment]:
        """The segments with a name: those of this group, else those of its patient and of the message."""
        match name:
            case "OBR":
                return iter((self.obr,))
            case "ORC":
                return iter((self.orc,) if self.orc else ())
            case "OBX":
                return (entry.obx for entry in self.obx_entries)
        mine = (segment for segment in self.other_segments if segment.name == name)
        if name in _GROUP_SEGMENTS:
            return mine
        first = next(mine, None)
        return chain((first,), mine) if first is not None else iter(self.shared.get(name, ()))


@dataclass(frozen=True, slots=True)
class Isolate:
    """That a group is an isolate of a culture: by its `number` in OBX-4, the `place`-th of its OBR, or by its OBR alone.

    `culture` is the group whose report names its organism, if the message has one. `problem`: why it cannot be told whose
    susceptibilities these are.
    """

    number: str = ""
    place: int = 0
    culture: ObrGroup | None = None
    has_organism: bool = True
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class SplitMessage:
    """The groups of a message, and the names of the segments outside of them that nothing reads."""

    groups: tuple[ObrGroup, ...]
    skipped: tuple[str, ...]


def split_message(message: Message, is_unused: Callable[[str], bool], is_mapped: Callable[[str], bool]) -> SplitMessage:
    """Split a message into its groups.

    `is_unused` says of the name of a segment (or of `SPM/OBX`) that it carries nothing for a result, `is_mapped` that the field
    map reads it.
    """
    splitter = _Splitter(message, is_unused, is_mapped)
    for number, (segment, obr) in enumerate(zip(message.segments, _next_obrs(message.segments), strict=True), 1):
        splitter.add(number, segment, obr)
    return splitter.finish()


def _next_obrs(segments: Sequence[Segment]) -> list[Segment | None]:
    """For each segment the OBR that an ORC in its place stands before: the next one, unless an ORC or PID comes first."""
    found: list[Segment | None] = []
    coming: Segment | None = None
    for segment in reversed(segments):
        found.append(coming)
        if segment.name in {"OBR", "ORC", "PID"}:
            coming = segment if segment.name == "OBR" else None
    return found[::-1]


@dataclass(slots=True)
class _Context:
    """What stands before an OBR and belongs to it: segments, notes, and the names of what nothing reads."""

    segments: list[Segment] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    name: str = ""
    place: str = ""
    has_orders: bool = False


@dataclass(slots=True)
class _Splitter:
    message: Message
    is_unused: Callable[[str], bool]
    is_mapped: Callable[[str], bool]
    groups: list[ObrGroup] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    shared: dict[str, list[Segment]] = field(default_factory=dict)
    """The segments that stand before the orders of the patient, by their names, those of the message among them."""
    header: dict[str, list[Segment]] = field(default_factory=dict)
    patient: int = 0
    pid: Segment | None = None
    message_notes: list[str] = field(default_factory=list)
    patient_notes: list[str] = field(default_factory=list)
    specimen: _Context | None = None
    """The specimen that leads the following OBR."""
    specimens_lead: bool | None = None
    """None until the first order or specimen of a patient."""
    group: ObrGroup | None = None
    """The OBR that takes what follows."""
    orc: tuple[int, Segment] | None = None
    """An ORC whose OBR has not come yet."""
    waiting: _Context = field(default_factory=_Context)
    """What stands between that ORC and its OBR."""
    led: list[ObrGroup] = field(default_factory=list)
    """The groups since the last PID that have a specimen which stands before them."""
    preceded: list[ObrGroup] = field(default_factory=list)
    """The groups since the last PID that have an ORC which stands before them, and no number of it."""
    first: ObrGroup | None = None
    """The first group since the last PID."""
    left_over: str = ""
    """The first specimen since the last PID that has no order."""

    def add(self, number: int, segment: Segment, next_obr: Segment | None) -> None:
        """Add the segment in place `number`; `next_obr` is the OBR that it stands before."""
        match segment.name:
            case "PID":
                self._begin_patient(segment)
            case "ORC":
                self._add_orc(number, segment, next_obr)
            case "OBR":
                self._begin_group(segment)
            case "SPM" | "SAC" if self.orc is None and self._do_specimens_lead():
                self._begin_specimen(number, segment)
            case "OBX":
                self._add_obx(number, segment)
            case "NTE" if not self.is_unused("NTE"):
                self._notes().extend(value.text for value in segment.repetitions(3))
            case _:
                self._add_other(number, segment)

    def finish(self) -> SplitMessage:
        """Return what was found."""
        self._end_patient()
        return SplitMessage(tuple(self.groups), tuple(self.skipped))

    def _end_patient(self) -> None:
        if self.orc is not None and self.first is not None and self.first.orc is None:
            for group in self.preceded:
                group.doubt = f"may have the ORC of the OBR before it, since ORC (segment {self.orc[0]}) has no OBR"
        self._end_orc()
        self._end_specimen()
        for group in self.led if self.left_over else ():
            group.doubt = f"may have the specimen of the OBR before it, since {self.left_over} has no OBR"
        self.led, self.preceded, self.first, self.left_over = [], [], None, ""

    def _begin_patient(self, segment: Segment) -> None:
        self._end_patient()
        if self.pid is None or self.pid.fields[_PID_AFTER_SET_ID:] != segment.fields[_PID_AFTER_SET_ID:]:
            self.patient += 1
        self.pid, self.group, self.specimens_lead = segment, None, None
        self.shared = {**{name: list(found) for name, found in self.header.items()}, "PID": [segment]}
        self.patient_notes = list(self.message_notes)

    def _do_specimens_lead(self) -> bool:
        """Whether a specimen stands before its orders: where it comes first, and in OUL, R24 apart."""
        if self.specimens_lead is None:
            self.specimens_lead = True
        return self.specimens_lead

    def _begin_order(self) -> None:
        if self.specimens_lead is None:
            kind, event = self.message.message_type
            self.specimens_lead = kind == "OUL" and event != "R24"

    def _begin_specimen(self, number: int, segment: Segment) -> None:
        """Begin a specimen, or add a container; a container behind orders is the next one of the same specimen."""
        earlier, place = self.specimen, f"{segment.name} (segment {number})"
        is_next_specimen = segment.name == "SPM" and earlier is not None and any(one.name == "SPM" for one in earlier.segments)
        if earlier is None or is_next_specimen:
            self._end_specimen()
            self.specimen = _Context([segment], name=segment.name, place=place)
        elif self.group is None:
            earlier.segments.append(segment)
        else:
            kept = [one for one in earlier.segments if one.name == "SPM"]
            self.specimen = _Context([*kept, segment], list(earlier.notes), name=segment.name, place=place)
        self.group = None

    def _end_specimen(self) -> None:
        if self.specimen is not None and not self.specimen.has_orders:
            self._leave_out_specimen(self.specimen)
        self.specimen = None

    def _leave_out_specimen(self, specimen: _Context) -> None:
        """A specimen too many: the others may stand behind their orders, too, whatever the type of the message says."""
        is_unused = self.is_unused(specimen.name)
        if not is_unused:
            self.skipped.append(f"{specimen.place} without an OBR")
        is_trailing = self.first is not None and not any(group is self.first for group in self.led[:1])
        if not is_unused or is_trailing:
            self.left_over = self.left_over or specimen.place

    def _add_orc(self, number: int, segment: Segment, next_obr: Segment | None) -> None:
        """An ORC before any OBX of an OBR that has none belongs to that OBR, unless its numbers are those of the next OBR.

        Behind the results of an OBR that has none, with its number and not that of the next, it belongs to neither.
        """
        self._begin_order()
        self._end_orc()
        group = self.group
        if group is None or group.has_leading_orc:
            self.orc, self.group = (number, segment), None
        elif group.orc is None and not group.obx_entries and not _is_of_next(segment, group.obr, next_obr):
            group.orc = segment
        elif next_obr is not None and _share_number(segment, group.obr) and not _share_number(segment, next_obr):
            self.skipped.append(f"ORC (segment {number}) behind the results of its OBR")
        else:
            self.orc, self.group = (number, segment), None

    def _end_orc(self) -> None:
        if self.orc is not None:
            if not self.is_unused("ORC"):
                self.skipped.append(f"ORC (segment {self.orc[0]}) without an OBR")
            self.skipped += self.waiting.skipped
        self.orc, self.waiting = None, _Context()

    def _begin_group(self, segment: Segment) -> None:
        self._begin_order()
        leading, before = self.specimen or _Context(), self.waiting
        leading.has_orders = True
        shared_notes = [*_as_one(self.patient_notes if self.patient else self.message_notes), *_as_one(leading.notes)]
        self.group = ObrGroup(
            number=len(self.groups) + 1,
            obr=segment,
            orc=self.orc[1] if self.orc else None,
            message=self.message,
            other_segments=[*leading.segments, *before.segments],
            notes=[*shared_notes, *before.notes],
            shared_notes=len(shared_notes),
            patient=self.patient,
            pid=self.pid,
            shared=self.shared if self.patient else self.header,
            skipped=[*before.skipped],
            has_leading_orc=self.orc is not None,
        )
        self.groups.append(self.group)
        self._note_neighbours(self.group, has_specimen=self.specimen is not None)
        self.orc, self.waiting = None, _Context()

    def _note_neighbours(self, group: ObrGroup, *, has_specimen: bool) -> None:
        """Note what was taken from before the OBR, in case it turns out to belong to the OBR before."""
        self.first = self.first or group
        if has_specimen:
            self.led.append(group)
        if group.orc is not None and not _share_number(group.orc, group.obr):
            self.preceded.append(group)

    def _add_obx(self, number: int, segment: Segment) -> None:
        group = self.group
        if group is not None and not group.results_ended:
            group.obx_entries.append(ObxEntry(segment, number=len(group.obx_entries) + 1))
        elif group is not None or (self.specimen is not None and self.orc is None):
            self._skip(number, SPECIMEN_OBX)
        else:
            self._skip(number, "OBX")

    def _notes(self) -> list[str]:
        """Where a note belongs: to the last result, to the specimen, to the order, or to all orders of the patient."""
        if self.orc is not None:
            return self.waiting.notes
        group = self.group
        if group is not None:
            return group.obx_entries[-1].notes if group.obx_entries and not group.results_ended else group.notes
        if self.specimen is not None:
            return self.specimen.notes
        return self.patient_notes if self.patient else self.message_notes

    def _add_other(self, number: int, segment: Segment) -> None:
        known = segment.name in _READ_SEGMENTS or self.is_mapped(segment.name)
        if not known:
            self._skip(number, segment.name)
        if (own := self._segments()) is not None:
            own.append(segment)
        else:
            (self.shared if self.patient else self.header).setdefault(segment.name, []).append(segment)
        if self.group is not None and self.orc is None and segment.name == "SPM":
            self.group.results_ended |= bool(self.group.obx_entries)

    def _segments(self) -> list[Segment] | None:
        """Where a segment belongs to: to the order or the specimen; None if to all orders of the patient."""
        if self.orc is not None:
            return self.waiting.segments
        if self.group is not None:
            return self.group.other_segments
        if self.specimen is not None:
            return self.specimen.segments
        return None

    def _skip(self, number: int, name: str) -> None:
        """Note a segment that nothing reads: in its group if it has one, else in the message."""
        if self.is_unused(name):
            return
        place = f"{name.rpartition('/')[2]} (segment {number})"
        if name == SPECIMEN_OBX:
            place += " behind an SPM"
        if self.orc is not None:
            self.waiting.skipped.append(place)
        elif self.group is not None:
            self.group.skipped.append(place)
        else:
            self.skipped.append(place)


def _as_one(notes: list[str]) -> list[str]:
    """The notes that many groups share as one text, joined once: a long message may have very many of both."""
    if len(notes) > 1:
        notes[:] = ["\n".join(notes)]
    return notes


def _is_of_next(orc: Segment, obr: Segment, next_obr: Segment | None) -> bool:
    """Whether the numbers of an ORC are those of the OBR after it, and not those of the OBR before it."""
    return next_obr is not None and _share_number(orc, next_obr) and not _share_number(orc, obr)


def _share_number(orc: Segment, obr: Segment) -> bool:
    """Whether both name the same order: by the placer's number (ORC-2, OBR-2) or the filler's (ORC-3, OBR-3)."""
    return any(orc.text(field) and orc.text(field) == obr.text(field) for field in (2, 3))


def rewrite_field(segment: Segment, number: int, value: str) -> Segment:
    """The segment with another value in one of its fields."""
    fields = [*segment.fields, *[""] * (number + 1 - len(segment.fields))]
    fields[number] = value
    return replace(segment, fields=tuple(fields))

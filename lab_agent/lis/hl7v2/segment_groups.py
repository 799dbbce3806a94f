"""Splits an ORU into groups: each OBR with what belongs to it. An invalid group does not spoil the others (law 9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lab_agent.lis.hl7v2.parser import FieldPath, Message, Segment

_GROUP_SEGMENTS = frozenset({"ORC", "OBR", "OBX", "SPM", "SAC", "NTE", "TQ1", "TQ2", "TCD", "CTD"})


@dataclass(slots=True)
class ObxEntry:
    """One OBX, with the notes after it."""

    obx: Segment
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ObrGroup:
    """One OBR, with the ORC before it and everything after it. `number` counts from 1."""

    number: int
    obr: Segment
    orc: Segment | None
    message: Message
    other_segments: list[Segment] = field(default_factory=list)
    obx_entries: list[ObxEntry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    results_ended: bool = False
    """Whether the results have ended: an OBX after a specimen that follows results describes the specimen."""

    def find_first(self, paths: Sequence[FieldPath]) -> str:
        """The value at the first path that has one; empty if none has."""
        return next(iter(self.find_all(paths)), "")

    def find_all(self, paths: Sequence[FieldPath]) -> tuple[str, ...]:
        """All repetitions at the first path that has a value."""
        for path in paths:
            found = tuple(text for segment in self.segments_named(path.segment) for text in segment.texts_at(path))
            if found:
                return found
        return ()

    def segments_named(self, name: str) -> Iterator[Segment]:
        """The segments with a name: those of this group, or of the message for names that never belong to a group."""
        own = (self.orc, self.obr, *(entry.obx for entry in self.obx_entries), *self.other_segments)
        mine = [segment for segment in own if segment is not None and segment.name == name]
        shared = () if name in _GROUP_SEGMENTS else (one for one in self.message.segments if one.name == name)
        return iter(mine or shared)


def split_groups(message: Message) -> list[ObrGroup]:
    """Split a message into its groups; segments outside of groups are skipped."""
    groups: list[ObrGroup] = []
    orc: Segment | None = None
    for segment in message.segments:
        match segment.name:
            case "ORC":
                orc = segment
            case "OBR":
                groups.append(ObrGroup(len(groups) + 1, segment, orc, message))
                orc = None
            case _ if groups and orc is None:
                _add_segment(groups[-1], segment)
    return groups


def _add_segment(group: ObrGroup, segment: Segment) -> None:
    match segment.name:
        case "OBX" if group.results_ended:
            group.other_segments.append(segment)
        case "OBX":
            group.obx_entries.append(ObxEntry(segment))
        case "NTE":
            notes = group.obx_entries[-1].notes if group.obx_entries else group.notes
            notes.extend(value.text for value in segment.repetitions(3))
        case _:
            group.results_ended |= segment.name == "SPM" and bool(group.obx_entries)
            group.other_segments.append(segment)

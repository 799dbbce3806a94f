"""An ORU as groups: each OBR with what belongs to it. One bad group does not spoil the others (law 9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lab_agent.lis.hl7v2.message import Message, Place, Segment

_OWN = frozenset({"ORC", "OBR", "OBX", "SPM", "SAC", "NTE", "TQ1", "TQ2", "TCD", "CTD"})


@dataclass(slots=True)
class Observed:
    """One OBX, with the notes behind it."""

    obx: Segment
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    """One OBR, with the ORC before and all that follows it. `number` counts from 1."""

    number: int
    obr: Segment
    orc: Segment | None
    message: Message
    others: list[Segment] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    observed_out: bool = False
    """Whether the results have ended: an OBX behind a specimen that follows results describes the specimen."""

    def find(self, places: Sequence[Place]) -> str:
        """Give what stands at the first place that says anything; empty if none does."""
        return next(iter(self.find_all(places)), "")

    def find_all(self, places: Sequence[Place]) -> tuple[str, ...]:
        """Give all repetitions at the first place that says anything."""
        for place in places:
            found = tuple(text for segment in self.named(place.segment) for text in segment.texts(place))
            if found:
                return found
        return ()

    def named(self, name: str) -> Iterator[Segment]:
        """Give the segments of a name: of this group, or of the message where the name is no group's."""
        own = [one for one in (self.orc, self.obr, *(seen.obx for seen in self.observed), *self.others) if one is not None]
        mine = [segment for segment in own if segment.name == name]
        shared = () if name in _OWN else (one for one in self.message.segments if one.name == name)
        return iter(mine or shared)


def groups(message: Message) -> list[Group]:
    """Part a message into its groups; segments that are of no use here are passed over."""
    found: list[Group] = []
    orc: Segment | None = None
    for segment in message.segments:
        match segment.name:
            case "ORC":
                orc = segment
            case "OBR":
                found.append(Group(len(found) + 1, segment, orc, message))
                orc = None
            case _ if found and orc is None:
                _add(found[-1], segment)
    return found


def _add(group: Group, segment: Segment) -> None:
    match segment.name:
        case "OBX" if group.observed_out:
            group.others.append(segment)
        case "OBX":
            group.observed.append(Observed(segment))
        case "NTE":
            notes = group.observed[-1].notes if group.observed else group.notes
            notes.extend(value.text for value in segment.repetitions(3))
        case _:
            group.observed_out |= segment.name == "SPM" and bool(group.observed)
            group.others.append(segment)

"""Finds organisms in the other groups of one order, read once for a message, however many groups it has.

A group may only hang on another one of the same number of the same kind (placer with placer, filler with filler) and, where the
message names specimens, of the same specimen: one accession may have cultures of urine and of a wound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from lab_agent.lis.hl7v2.parser import FieldPath
from lab_agent.lis.hl7v2.results.organisms import (
    OrganismNumbers,
    find_organisms,
    is_coded,
    is_known_organism,
    isolate_number,
    sub_id,
)
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup, ObxEntry
from lab_agent.shared.ids import is_line_key

_PLACER, _FILLER = 2, 3
_SPECIMENS = tuple(
    FieldPath(name, number, component, part)
    for name, number, component, part in (
        ("SPM", 2, 1, 1),
        ("SPM", 2, 1, 2),
        ("SPM", 2, 2, 1),
        ("SPM", 3, 1, 1),
        ("SPM", 3, 1, 2),
        ("SPM", 3, 2, 1),
        ("SAC", 3, 1, 1),
    )
)
"""Numbers of a specimen, and of the one that it was taken from (SPM-3)."""
_KINDS = (FieldPath("SPM", 4, 1), FieldPath("OBR", 15, 1))
Place = tuple[ObrGroup, ObxEntry]
_Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class _Described:
    """What is compared between groups."""

    placers: frozenset[str]
    fillers: frozenset[str]
    specimens: frozenset[str]
    kinds: tuple[str, ...]


@dataclass(slots=True)
class _Index:
    """The OBX and the organisms of the groups with one number."""

    organisms: list[Place] = field(default_factory=list)
    numbers: OrganismNumbers = field(default_factory=lambda: OrganismNumbers(()))
    organisms_by_number: dict[str, list[Place]] = field(default_factory=dict)
    by_code_and_number: dict[tuple[str, str], list[Place]] = field(default_factory=dict)


class ParentGroups:
    """The groups of a patient, as parents of each other."""

    def __init__(self, groups: Sequence[ObrGroup]) -> None:
        self._described = {group.number: _describe(group) for group in groups}
        self._members: dict[_Key, list[ObrGroup]] = {}
        for group in groups:
            described = self._described[group.number]
            for key in _keys(described.placers, described.fillers):
                self._members.setdefault(key, []).append(group)
        self._indexes: dict[_Key, _Index] = {}

    def organisms(self, group: ObrGroup) -> list[Place]:
        """The different organisms of the parents, at most two: more than one is not to be told apart."""
        return self._collect(group, lambda index: index.organisms)

    def organisms_numbered(self, group: ObrGroup, number: str) -> list[Place]:
        """The different organisms with an isolate's number (OBX-4), at most two."""
        return self._collect(group, lambda index: index.organisms_by_number.get(number, ()))

    def results(self, group: ObrGroup, code: str, number: str) -> Iterator[Place]:
        """The OBX of the parents with a code and a number (OBX-4), of which one may be empty."""
        return self._allowed(group, lambda index: index.by_code_and_number.get((code, number), ()))

    def find_owner(self, group: ObrGroup, number: str) -> str:
        """To which organism's number in groups that may be parents a number belongs; empty if to none."""
        owners = (self._index(key).numbers.find_owner(number) for key in self._wanted(group))
        return next(filter(None, owners), "")

    def specimen(self, group: ObrGroup) -> frozenset[str]:
        """The numbers of a group's specimen."""
        return self._described[group.number].specimens

    def _collect(self, group: ObrGroup, found: Callable[[_Index], Sequence[Place]]) -> list[Place]:
        different: dict[tuple[str, ...], Place] = {}
        for place in self._allowed(group, found):
            obx = place[1].obx
            different.setdefault((obx.text(3), sub_id(obx), obx.raw(5)), place)
            if len(different) > 1:
                break
        return list(different.values())

    def _allowed(self, group: ObrGroup, found: Callable[[_Index], Sequence[Place]]) -> Iterator[Place]:
        seen: set[tuple[int, int]] = set()
        for key in self._wanted(group):
            for place in found(self._index(key)):
                name = (place[0].number, place[1].number)
                if name not in seen and self._may_hang(group, place[0]):
                    seen.add(name)
                    yield place

    def _wanted(self, group: ObrGroup) -> list[_Key]:
        """By which numbers parents are found: those of OBR-29 (the filler's if it is there), else the group's own."""
        placer, filler = group.obr.text(29, 1), group.obr.text(29, 2)
        if filler or placer:
            return [(_FILLER, filler) if filler else (_PLACER, placer)]
        own = self._described[group.number]
        return list(_keys(own.placers, own.fillers))

    def _may_hang(self, group: ObrGroup, parent: ObrGroup) -> bool:
        if parent.number == group.number:
            return False
        own, other = self._described[group.number], self._described[parent.number]
        if own.specimens and other.specimens:
            if not own.specimens & other.specimens:
                return False
        elif own.kinds and other.kinds and own.kinds != other.kinds:
            return False
        placer, filler = group.obr.text(29, 1), group.obr.text(29, 2)
        if placer or filler:
            return not (placer and other.placers) or placer in other.placers
        if (
            own.fillers and other.fillers and not own.fillers & other.fillers
        ):  # of an order key with several cultures, or one line
            return any(is_line_key(number) for number in own.placers & other.placers)
        return True

    def _index(self, key: _Key) -> _Index:
        if key not in self._indexes:
            self._indexes[key] = _build_index(self._members.get(key, ()))
        return self._indexes[key]


def _keys(placers: frozenset[str], fillers: frozenset[str]) -> Iterator[_Key]:
    yield from ((_FILLER, number) for number in sorted(fillers))
    yield from ((_PLACER, number) for number in sorted(placers))


def _describe(group: ObrGroup) -> _Described:
    segments = [segment for segment in (group.obr, group.orc) if segment]
    return _Described(
        placers=frozenset(segment.text(_PLACER) for segment in segments) - {""},
        fillers=frozenset(segment.text(_FILLER) for segment in segments) - {""},
        specimens=frozenset(text for path in _SPECIMENS for text in group.find_all((path,))),
        kinds=group.find_all(_KINDS),
    )


def _build_index(groups: Sequence[ObrGroup]) -> _Index:
    index = _Index()
    found = [(group, entry) for group in groups for entry in find_organisms(group.obx_entries)]
    known = [place for place in found if is_known_organism(place[1].obx)]
    coded = [place for place in found if is_coded(place[1].obx)]
    for group, entry in known or coded or found:
        number = isolate_number(entry.obx)
        index.organisms.append((group, entry))
        index.organisms_by_number.setdefault(number, []).append((group, entry))
    index.numbers = OrganismNumbers(index.organisms_by_number)
    for group in groups:
        for entry in group.obx_entries:
            for code in {"", entry.obx.text(3, 1), entry.obx.text(3, 4)}:
                for number in {"", sub_id(entry.obx)}:
                    index.by_code_and_number.setdefault((code, number), []).append((group, entry))
    return index

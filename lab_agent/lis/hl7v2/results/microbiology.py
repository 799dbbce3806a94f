"""Isolates of a culture: which organism and which susceptibilities belong together. Every isolate is a report of its own.

| A laboratory system says it by | Here |
|---|---|
| OBR-26, the parent result (HL7 4.5.3.26) | the OBR is the isolate; its organism is the parent's OBX, else named in OBR-26.3 |
| OBX-4: `1` for an organism, and `1` or `1.1`, `1.2` for its drugs | each number is an isolate |
| OBX-4 of drugs, the organisms in another OBR of the order | each number is an isolate, its organism the OBX of that number |

The number of an isolate never changes, though its organism may get another name (HL7 7.4.2.4): reports are known by it.
The OBR of the culture stays a report, too: with the organisms and all that is no susceptibility, as before there were any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from lab_agent.lis.hl7v2.parser import Segment
from lab_agent.lis.hl7v2.results.obx_documents import DOCUMENT_TYPES
from lab_agent.lis.hl7v2.results.organisms import (
    are_several,
    find_organisms,
    has_susceptibility,
    is_concentration,
    possible_parents,
    sub_id,
)
from lab_agent.lis.hl7v2.results.parent_results import NO_ORGANISM, ParentLink, with_only_organism, with_parent_result
from lab_agent.lis.hl7v2.results.segment_groups import Isolate, ObrGroup, ObxEntry

_NO_NUMBER = (
    "has several organisms, and susceptibilities that belong to none of them: give an organism and its drugs one number in OBX-4"
)


def split_isolates(groups: Sequence[ObrGroup]) -> Iterator[ObrGroup]:
    """Give the groups of a patient with every isolate as a group of its own."""
    for group in groups:
        if ParentLink.read(group.obr).is_given:
            yield with_parent_result(group, groups)
        else:
            yield from _Numbers(group, groups).split()


def _root(obx: Segment) -> str:
    return sub_id(obx).partition(".")[0]


class _Numbers:
    """The OBX of one group by their numbers (OBX-4)."""

    def __init__(self, group: ObrGroup, groups: Sequence[ObrGroup]) -> None:
        self.group = group
        self.groups = groups
        entries = [entry for entry in group.obx_entries if entry.obx.text(2).upper() not in DOCUMENT_TYPES]
        self.flagged = {entry.number for entry in entries if has_susceptibility(entry.obx)}
        self.flagged_codes = {entry.obx.text(3) for entry in entries if entry.number in self.flagged}
        self.roots: dict[str, list[ObxEntry]] = {}
        for entry in entries:
            if root := _root(entry.obx):
                self.roots.setdefault(root, []).append(entry)
        self.drugs = {entry.number for root, members in self.roots.items() for entry in self._drugs(root, members)}

    def split(self) -> Iterator[ObrGroup]:
        """Give the culture without susceptibilities, if anything is left of it, then its isolates."""
        numbers = [root for root, members in self.roots.items() if any(entry.number in self.drugs for entry in members)]
        if self._are_running_numbers(numbers):
            numbers, self.drugs = [], set()
        left = [entry for entry in self.group.obx_entries if entry.number not in self.drugs]
        culture = replace(self.group, obx_entries=left) if left else None
        if not numbers:
            yield self._undivided()
            return
        isolates = [self._isolate(root, place, culture) for place, root in enumerate(numbers, 1)]
        if len(isolates) > 1 and not all(each.isolate and each.isolate.has_organism for each in isolates):
            yield replace(self.group, isolate=Isolate(problem=NO_ORGANISM))
        elif problem := self._find_problem():
            yield replace(self.group, isolate=Isolate(problem=problem))
        else:
            yield from (culture, *isolates) if culture else isolates

    def _undivided(self) -> ObrGroup:
        """The group as one report: without susceptibilities, or with those of one organism."""
        problem = self._find_problem()
        return replace(self.group, isolate=Isolate(problem=problem)) if problem else with_only_organism(self.group, self.groups)

    def _find_problem(self) -> str | None:
        """Why susceptibilities without a number may belong to several organisms; None if they do not."""
        is_loose = bool(self.flagged - self.drugs)
        return _NO_NUMBER if is_loose and are_several(find_organisms(self.group.obx_entries)) else None

    def _drugs(self, root: str, members: Sequence[ObxEntry]) -> Iterator[ObxEntry]:
        """Those of an isolate's OBX that are not its organism: what is below its number, and what follows susceptibilities."""
        has_parent = any(sub_id(entry.obx) == root for entry in members)
        is_flagged = any(entry.number in self.flagged for entry in members)
        seen = False
        for entry in members:
            seen = seen or entry.number in self.flagged
            is_below = sub_id(entry.obx) != root and has_parent
            is_drug = entry.obx.text(3) in self.flagged_codes or (is_flagged and is_concentration(entry.obx))
            if seen or is_below or is_drug:
                yield entry

    def _are_running_numbers(self, numbers: Sequence[str]) -> bool:
        """Whether OBX-4 counts all OBX of the group, and joins none of them."""
        members = [self.roots[root] for root in numbers]
        codes = [each[0].obx.text(3) for each in members]
        is_one_each = all(len(each) == 1 for each in members) and len(set(codes)) == len(codes)
        is_alone = len(self.group.obx_entries) == 1
        return is_one_each and not is_alone and not any(self._organism_elsewhere(root) for root in numbers)

    def _isolate(self, root: str, place: int, culture: ObrGroup | None) -> ObrGroup:
        members = [replace(entry) for entry in self.roots[root]]
        members.sort(key=lambda entry: (entry.number in self.drugs, entry.number))
        keeps_notes = culture is None
        if members[0].number in self.drugs and (elsewhere := self._organism_elsewhere(root)):
            culture, organism = elsewhere
            members.insert(0, replace(organism, notes=[]))
        has_organism = bool(members[0].obx.repetitions(5)) and not has_susceptibility(members[0].obx)
        isolate = Isolate(number=root, place=place, culture=culture, has_organism=has_organism)
        return replace(self.group, obx_entries=members, isolate=isolate, notes=list(self.group.notes) if keeps_notes else [])

    def _organism_elsewhere(self, root: str) -> tuple[ObrGroup, ObxEntry] | None:
        """The organism with the number of an isolate in another group of the order, if there is just one."""
        numbered = self._numbered_elsewhere.get(root, [])
        found = find_organisms(entry for _, entry in numbered)
        return next(each for each in numbered if each[1] is found[0]) if len(found) == 1 else None

    @cached_property
    def _numbered_elsewhere(self) -> Mapping[str, list[tuple[ObrGroup, ObxEntry]]]:
        """The OBX of the other groups of the order, by their numbers."""
        found: dict[str, list[tuple[ObrGroup, ObxEntry]]] = {}
        for parent in possible_parents(self.group, self.groups):
            for entry in parent.obx_entries:
                found.setdefault(sub_id(entry.obx), []).append((parent, entry))
        return found

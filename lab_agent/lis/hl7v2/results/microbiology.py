"""Isolates of a culture: which organism and which susceptibilities belong together. Every isolate is a report of its own.

| A laboratory system says it by | Here |
|---|---|
| OBR-26, the parent result (HL7 4.5.3.26) | the OBR is the isolate; its organism is the parent's OBX, else named in OBR-26.3 |
| OBX-4: `1` for an organism, and `1`, `1.1`, `1-1` for its drugs | each number of an organism is an isolate |
| OBX-4 of drugs, the organisms in another OBR of the order | each number is an isolate, its organism the OBX of that number |
| OBX-4 that counts the OBX, and one organism | the OBR is the isolate |

The number of an isolate never changes, though its organism may get another name (HL7 7.4.2.4): reports are known by it.
The OBR of the culture stays a report, too: with the organisms and all that is no susceptibility, as before there were any.
What cannot be told apart is refused: never joined, and never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from lab_agent.lis.hl7v2.results.obx_documents import DOCUMENT_TYPES
from lab_agent.lis.hl7v2.results.organisms import (
    OrganismNumbers,
    are_letters_alone,
    are_several,
    find_contradiction,
    find_organisms,
    is_antibiogram,
    is_coded,
    is_concentration,
    is_known_organism,
    isolate_number,
    join_interpretations,
    organism_code,
    says_susceptibility,
    stand_among_drugs,
    sub_id,
)
from lab_agent.lis.hl7v2.results.parent_groups import ParentGroups, Place
from lab_agent.lis.hl7v2.results.parent_results import (
    NO_ORGANISM,
    ParentLink,
    insert_organism,
    parent_name,
    with_parent_result,
)
from lab_agent.lis.hl7v2.results.segment_groups import Isolate, ObrGroup, ObxEntry

_NO_NUMBER = (
    "has several organisms, and susceptibilities that belong to none of them: give an organism and its drugs one number in OBX-4"
)
_SEVERAL_ELSEWHERE = (
    "has susceptibilities without their organism, of which the order has several: name it in OBR-26, or send it in the same OBR"
)
_JOINED = "has the same number and code as another OBR with another organism: send OBR-26, or number the organisms in OBX-4"


def split_isolates(groups: Sequence[ObrGroup]) -> Iterator[ObrGroup]:
    """Give the groups of a patient with every isolate as a group of its own."""
    parents = ParentGroups(groups)
    yield from _refuse_joined([isolate for group in groups for isolate in _split(group, parents)], parents)


def _split(group: ObrGroup, parents: ParentGroups) -> Iterator[ObrGroup]:
    if problem := find_contradiction(group.obx_entries):
        yield _refused(group, problem)
    elif ParentLink.read(group.obr).is_given:
        yield with_parent_result(group, parents)
    elif is_antibiogram(group.obx_entries):
        yield from _Antibiogram(group, parents).split()
    else:
        yield group


def _refused(group: ObrGroup, problem: str, culture: ObrGroup | None = None) -> ObrGroup:
    """The group as one that nothing is read of; its `culture` does not end the line without it."""
    return replace(group, isolate=Isolate(problem=problem, culture=culture))


def _refuse_joined(groups: Sequence[ObrGroup], parents: ParentGroups) -> Iterator[ObrGroup]:
    """Refuse antibiograms of different organisms that would be one report."""
    found: dict[tuple[object, ...], dict[str, set[str]]] = {}
    names = [_joined_name(group, parents) for group in groups]
    for group, name in zip(groups, names, strict=True):
        if name:
            for organism in find_organisms(group.obx_entries):
                found.setdefault(name, {}).setdefault(organism_code(organism.obx), set()).add(organism.obx.raw(5))
    differing = {name for name, organisms in found.items() if any(len(values) > 1 for values in organisms.values())}
    for group, name in zip(groups, names, strict=True):
        yield _refused(group, _JOINED, _culture_of(group)) if name in differing else group


def _culture_of(group: ObrGroup) -> ObrGroup | None:
    return group.isolate.culture if group.isolate else None


def _joined_name(group: ObrGroup, parents: ParentGroups) -> tuple[object, ...]:
    """By what the report of an antibiogram is known; empty for any other group."""
    if not is_antibiogram(group.obx_entries) or (group.isolate and group.isolate.problem):
        return ()
    number = group.isolate.number if group.isolate else ""
    numbers = (group.obr.text(2), group.obr.text(3), group.obr.text(4))
    return (*numbers, parent_name(group), number, group.patient, parents.specimen(group))


class _Antibiogram:
    """The OBX of a group with susceptibilities, by their numbers (OBX-4)."""

    def __init__(self, group: ObrGroup, parents: ParentGroups) -> None:
        self.group = replace(group, obx_entries=join_interpretations(group.obx_entries))
        self.parents = parents
        self.entries = [entry for entry in self.group.obx_entries if entry.obx.text(2).upper() not in DOCUMENT_TYPES]
        self.organisms = self._own_organisms()
        organisms = {entry.number for entry in self.organisms}
        codes = {entry.obx.text(3) for entry in self.entries if says_susceptibility(entry.obx)}
        self.drugs = [
            entry
            for entry in self.entries
            if entry.number not in organisms and (entry.obx.text(3) in codes or is_concentration(entry.obx))
        ]
        self.organism_places = organisms
        self.drug_places = {entry.number for entry in self.drugs}
        self.elsewhere: dict[str, Place] = {}

    def _own_organisms(self) -> list[ObxEntry]:
        """The organisms; of coded answers to several questions the ones to the question that is asked for several numbers."""
        found = find_organisms(self.entries)
        numbers: dict[str, set[str]] = {}
        for entry in found:
            numbers.setdefault(organism_code(entry.obx), set()).add(isolate_number(entry.obx))
        repeated = {code for code, of_code in numbers.items() if len(of_code) > 1}
        return [entry for entry in found if organism_code(entry.obx) in repeated] or found

    def split(self) -> Iterator[ObrGroup]:
        """Give the culture without susceptibilities, if anything is left of it, then its isolates."""
        if self._are_running_numbers():
            yield self._undivided()
            return
        numbered = self._by_owner(self.drugs)
        problem = self._find_problem(numbered)
        if problem:
            yield _refused(self.group, problem, self._possible_culture())
        elif not numbered:
            yield self._undivided()
        else:
            yield from self._isolates(list(numbered))

    def _are_running_numbers(self) -> bool:
        """Whether OBX-4 counts the OBX of the group, and joins none of them."""
        numbers = [sub_id(entry.obx) for entry in self.entries if sub_id(entry.obx)]
        codes = [entry.obx.text(3) for entry in self.entries]
        if len(numbers) < 2 or not all(number.isdecimal() for number in numbers) or len(set(codes)) < len(codes):
            return False
        values = [int(number) for number in numbers]
        return all(one < other for one, other in pairwise(values)) and not are_several(self.organisms)

    def _by_owner(self, drugs: Sequence[ObxEntry]) -> dict[str, list[ObxEntry]]:
        """The drugs by the numbers of their organisms; by their own number where there is no such organism."""
        own = OrganismNumbers(isolate_number(entry.obx) for entry in self.organisms)
        found: dict[str, list[ObxEntry]] = {}
        for entry in drugs:
            if number := isolate_number(entry.obx):
                owner = own.find_owner(number) or self.parents.find_owner(self.group, number) or number
                found.setdefault(owner, []).append(entry)
        return found

    def _find_problem(self, numbered: dict[str, list[ObxEntry]]) -> str | None:
        """Why it cannot be told whose susceptibilities these are; notes the organisms of other groups on its way."""
        own = {isolate_number(entry.obx): organism_code(entry.obx) for entry in self.organisms}
        loose = [entry for entry in self.drugs if not isolate_number(entry.obx)]
        if loose and self._has_several():
            return _NO_NUMBER
        for number in numbered.keys() - own.keys():
            found = self.parents.organisms_numbered(self.group, number)
            if len(found) == 1:
                self.elsewhere[number] = found[0]
        lacking = numbered.keys() - own.keys() - self.elsewhere.keys()
        if lacking and numbered.keys() == lacking and len(lacking) == 1 and self._is_of_unnumbered_organism():
            numbered.clear()
        elif lacking:
            return NO_ORGANISM
        codes = {own[number] for number in numbered if number in own}
        if len(codes) > 1 and not all(is_known_organism(entry.obx) for entry in self.organisms):
            return _NO_NUMBER
        return None

    def _possible_culture(self) -> ObrGroup | None:
        return next((group for group, _ in self.parents.organisms(self.group)), None)

    def _has_several(self) -> bool:
        is_known = any(is_known_organism(entry.obx) for entry in self.organisms)
        return are_several(self.organisms) or (not is_known and stand_among_drugs(self.organisms, self.drug_places))

    def _is_of_unnumbered_organism(self) -> bool:
        """Whether the only organism has no number, though its drugs have one."""
        found = self.organisms or [entry for _, entry in self.parents.organisms(self.group)]
        is_only_one = not self._has_several() if self.organisms else len(found) == 1
        return is_only_one and not any(isolate_number(entry.obx) for entry in found)

    def _undivided(self) -> ObrGroup:
        """The group as one report, with the susceptibilities of one organism: its own, or the only one of the order."""
        own = self.organisms
        if any(is_coded(entry.obx) or is_known_organism(entry.obx) for entry in own):
            return _refused(self.group, _NO_NUMBER) if self._has_several() else self.group
        found = self.parents.organisms(self.group)
        if {entry.obx.text(3) for entry in own} & {entry.obx.text(3) for _, entry in found} or (own and not found):
            if are_letters_alone(self.drugs):
                return _refused(self.group, NO_ORGANISM)
            return _refused(self.group, _NO_NUMBER) if are_several(own) else self.group
        if len(found) != 1:
            return _refused(self.group, _SEVERAL_ELSEWHERE if found else NO_ORGANISM, self._possible_culture())
        return insert_organism(self.group, found[0][1], Isolate(culture=found[0][0]))

    def _isolates(self, numbers: Sequence[str]) -> Iterator[ObrGroup]:
        members = self._members(numbers)
        drugs = {entry.number for number in numbers for entry in self._drugs_of(number, members[number])}
        left = [entry for entry in self.group.obx_entries if entry.number not in drugs]
        culture = replace(self.group, obx_entries=left) if left else None
        if culture:
            yield culture
        for place, number in enumerate(numbers, 1):
            yield self._isolate(number, place, culture, members[number], drugs)

    def _members(self, numbers: Sequence[str]) -> dict[str, list[ObxEntry]]:
        """All OBX of each isolate."""
        known, found = OrganismNumbers(numbers), {number: list[ObxEntry]() for number in numbers}
        for entry in self.entries:
            if owner := known.find_owner(isolate_number(entry.obx)):
                found[owner].append(entry)
        return found

    def _drugs_of(self, number: str, members: Sequence[ObxEntry]) -> Iterator[ObxEntry]:
        """Those of an isolate's OBX that are not its organism: what is below its number, and what follows susceptibilities."""
        has_parent = any(sub_id(entry.obx) == number for entry in members)
        seen = False
        for entry in members:
            seen = seen or entry.number in self.drug_places
            is_below = has_parent and sub_id(entry.obx) != number
            if entry.number not in self.organism_places and (seen or is_below):
                yield entry

    def _isolate(
        self, number: str, place: int, culture: ObrGroup | None, members: Sequence[ObxEntry], drugs: set[int]
    ) -> ObrGroup:
        organisms = self.organism_places
        ordered = sorted(members, key=lambda entry: (entry.number not in organisms, entry.number in drugs, entry.number))
        entries = [replace(entry) for entry in ordered]
        keeps_notes = culture is None
        if elsewhere := self.elsewhere.get(number):
            culture, organism = elsewhere
            entries.insert(0, replace(organism, notes=[]))
        isolate = Isolate(number=number, place=place, culture=culture)
        notes = list(self.group.notes) if keeps_notes else []
        return replace(self.group, obx_entries=entries, isolate=isolate, notes=notes, left_out=())

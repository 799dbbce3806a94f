"""Results that hang on another result (OBR-26, HL7 4.5.3.26) or order (OBR-29), such as the susceptibilities of an isolate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

from lab_agent.lis.hl7v2.parser import Segment, escape
from lab_agent.lis.hl7v2.results.organisms import (
    are_several,
    find_organisms,
    is_antibiogram,
    is_coded,
    is_concentration,
    is_known_organism,
    isolate_number,
    join_interpretations,
    says_susceptibility,
    sub_id,
)
from lab_agent.lis.hl7v2.results.parent_groups import ParentGroups, Place
from lab_agent.lis.hl7v2.results.segment_groups import Isolate, ObrGroup, ObxEntry

NO_ORGANISM = (
    "has susceptibilities without their organism: send its OBX with the same number in OBX-4, the same order number (or OBR-29) "
    "and the same specimen, or name it in OBR-26"
)
_SEVERAL_PARENTS = "has a parent result (OBR-26) that several OBX of the message could be: give each a number in OBX-4"
_CONTRADICTION = "has an organism of its own and another one in OBR-26: have the laboratory system send the same in both"
_OTHER_NUMBER = "names one organism in OBR-26 by its number and another one by its name: have the laboratory system send the same"
_SEVERAL_WITHIN = (
    "has susceptibilities of several isolates by OBX-4, or of another one than OBR-26 names: "
    "send an OBR for each, with its number in OBR-26"
)
_MAX_CANDIDATES = 50
"""More organisms under one code are not compared by name: it would take too long in a message of many."""
_CODE_SYSTEM_NAMES = frozenset({"L", "LN", "SCT", "LOINC"})


def parent_name(group: ObrGroup) -> str:
    """What a group hangs on, as part of its report's id: the same for another name of the same organism; empty for nothing."""
    link = ParentLink.read(group.obr)
    result = f"{link.code}#{link.number}" if link.number else "^".join(filter(None, (link.code, link.name)))
    return "/".join(part for part in (result, *(group.obr.text(29, number) for number in (1, 2))) if part)


@dataclass(frozen=True, slots=True)
class ParentLink:
    """OBR-26 (PRL): the code, the number (OBX-4) and the value of the result that a group hangs on, such as an organism."""

    code: str
    number: str
    name: str

    @classmethod
    def read(cls, obr: Segment) -> ParentLink:
        """Read OBR-26; all is empty where it is. Some write the code's name and system as components of their own."""
        code, number, name = (obr.text(26, component) for component in (1, 2, 3))
        if name.upper() in _CODE_SYSTEM_NAMES or name.startswith("99"):
            return cls(code, obr.text(26, 4), obr.text(26, 5))
        return cls(code, number, name)

    @property
    def is_given(self) -> bool:
        """Whether there is a parent result."""
        return bool(self.code or self.number or self.name)

    def find(self, group: ObrGroup, parents: ParentGroups) -> list[Place]:
        """The OBX that may be the parent result, each with its group: organisms first, then those with its name."""
        if not (self.code or self.number):
            return []
        found = list(islice(parents.results(group, self.code, self.number), _MAX_CANDIDATES + 1))
        if len(found) > _MAX_CANDIDATES:
            return found
        if len(found) > 1:
            organisms = [place for place in found if any(one is place[1] for one in find_organisms([place[1]]))]
            known = [place for place in organisms if is_known_organism(place[1].obx)]
            found = known or organisms or found
        named = [place for place in found if self.is_named_by(place[1].obx)]
        return named or found if len(found) > 1 else found

    def is_named_by(self, obx: Segment) -> bool:
        """Whether the value of an OBX is what OBR-26 names."""
        return bool(self.name) and any(_is_same_name(self.name, one) for one in _value_names(obx))


def _value_names(obx: Segment) -> frozenset[str]:
    return frozenset(obx.text(5, number) for number in (1, 2, 4, 5, 9)) - {""}


def _is_same_name(first: str, second: str) -> bool:
    """Whether two names are the same; a genus may be its first letter (`E. coli`)."""
    one, other = (name.casefold().replace(".", " ").split() for name in (first, second))
    if one == other:
        return True
    is_short = len(one) == len(other) == 2 and 1 in (len(one[0]), len(other[0]))
    return is_short and one[0][0] == other[0][0] and one[1] == other[1]


def with_parent_result(group: ObrGroup, parents: ParentGroups) -> ObrGroup:
    """Put the organism that OBR-26 names before its susceptibilities, unless the group has it itself.

    Other results that hang on one, as a reflex test does, stay as they are: what they are about is their own.
    """
    link = ParentLink.read(group.obr)
    found = link.find(group, parents)
    hangs_on_organism = any(is_known_organism(entry.obx) for _, entry in found) or link.code in _parent_codes(group)
    if not group.obx_entries or not (
        is_antibiogram(group.obx_entries) or hangs_on_organism or (_has_concentrations(group) and _is_coded(found))
    ):
        return group
    group = replace(group, obx_entries=join_interpretations(group.obx_entries))
    problem = _SEVERAL_PARENTS if len(found) > 1 else _find_contradiction(group, link, found, parents)
    isolate = Isolate(culture=found[0][0] if found else None, problem=problem)
    if problem:
        return replace(group, isolate=isolate)
    own = _own_organisms(group, link)
    if own:
        return replace(group, isolate=isolate)
    if found and find_organisms([found[0][1]]) and (link.number or not link.name or link.is_named_by(found[0][1].obx)):
        return insert_organism(group, found[0][1], isolate)
    named = _named_organism(group, link)
    if not (link.code and link.name and find_organisms([named])):
        return replace(group, isolate=replace(isolate, problem=NO_ORGANISM))
    return insert_organism(group, named, isolate)


def _parent_codes(group: ObrGroup) -> frozenset[str]:
    """The code in OBR-26 if it asks for an organism."""
    code = ObxEntry(Segment("OBX", ("OBX", "", "", group.obr.text(26, 1)), group.obr.separators, group.obr.encoding))
    return frozenset({group.obr.text(26, 1)}) if is_known_organism(code.obx) else frozenset()


def _has_concentrations(group: ObrGroup) -> bool:
    """Whether several values are concentrations, which a laboratory need not interpret."""
    return len({entry.obx.text(3) for entry in group.obx_entries if is_concentration(entry.obx)}) > 1


def _is_coded(found: list[Place]) -> bool:
    return any(is_coded(entry.obx) for _, entry in found)


def _own_organisms(group: ObrGroup, link: ParentLink) -> list[ObxEntry]:
    organisms = find_organisms(group.obx_entries)
    return [
        entry for entry in organisms if is_known_organism(entry.obx) or link.code in {entry.obx.text(3), entry.obx.text(3, 4)}
    ]


def _find_contradiction(group: ObrGroup, link: ParentLink, found: list[Place], parents: ParentGroups) -> str | None:
    """Why it cannot be told which organism a group is about, though OBR-26 names one."""
    own = _own_organisms(group, link)
    if are_several(own) or _are_drugs_repeated(group) or _are_drugs_of_another(group, link, parents):
        return _SEVERAL_WITHIN
    for entry in own:
        number = isolate_number(entry.obx)
        if link.is_named_by(entry.obx) or (found and _value_names(entry.obx) & _value_names(found[0][1].obx)):
            continue
        if found or link.name or (link.number and number and number != link.number):
            return _CONTRADICTION
    if found and link.number and link.name and not link.is_named_by(found[0][1].obx):
        others = islice(parents.results(group, link.code, ""), _MAX_CANDIDATES) if link.code else ()
        if any(link.is_named_by(entry.obx) for _, entry in others):
            return _OTHER_NUMBER
    return None


def _are_drugs_repeated(group: ObrGroup) -> bool:
    """Whether a drug has several susceptibilities under different numbers."""
    numbers: dict[str, str] = {}
    drugs = [entry.obx for entry in group.obx_entries if says_susceptibility(entry.obx)]
    return any(numbers.setdefault(obx.text(3), sub_id(obx)) != sub_id(obx) for obx in drugs)


def _are_drugs_of_another(group: ObrGroup, link: ParentLink, parents: ParentGroups) -> bool:
    """Whether several drugs have one number, and it is that of another organism than OBR-26 names."""
    numbers = [isolate_number(entry.obx) for entry in group.obx_entries if says_susceptibility(entry.obx)]
    if not link.number or len(numbers) < 2 or len(set(numbers)) > 1:
        return False
    return numbers[0] not in {"", link.number} and parents.find_owner(group, numbers[0]) == numbers[0]


def insert_organism(group: ObrGroup, organism: ObxEntry, isolate: Isolate) -> ObrGroup:
    """The group with an OBX of another group before its own; its notes stay where they are."""
    return replace(group, isolate=isolate, obx_entries=[replace(organism, notes=[]), *group.obx_entries])


def _named_organism(group: ObrGroup, link: ParentLink) -> ObxEntry:
    """An OBX of what OBR-26 says of the organism, where its own OBX is not in the message."""
    marks, obr = group.obr.separators, group.obr
    code = obr.first_repetition(26).raw.split(marks.component)[0].replace(marks.subcomponent, marks.component)
    fields = ("OBX", "", "ST", code, escape(link.number, marks), escape(link.name, marks), *("",) * 5, obr.raw(25))
    return ObxEntry(Segment("OBX", fields, marks, obr.encoding))

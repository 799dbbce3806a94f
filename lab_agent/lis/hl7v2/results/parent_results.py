"""Results that hang on another result (OBR-26, HL7 4.5.3.26) or order (OBR-29), such as the susceptibilities of an isolate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lab_agent.lis.hl7v2.parser import Segment, escape
from lab_agent.lis.hl7v2.results.organisms import (
    are_several,
    find_organisms,
    has_susceptibility,
    is_coded,
    is_numeric,
    possible_parents,
    sub_id,
)
from lab_agent.lis.hl7v2.results.segment_groups import Isolate, ObrGroup, ObxEntry

NO_ORGANISM = "has susceptibilities without their organism: send its OBX with the same number in OBX-4, or name it in OBR-26"
_SEVERAL_PARENTS = "has a parent result (OBR-26) that several OBX of the message could be: give each a number in OBX-4"
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

    def find(self, groups: Sequence[ObrGroup]) -> list[tuple[ObrGroup, ObxEntry]]:
        """The OBX that may be the parent result, each with its group."""
        found = [(group, entry) for group in groups for entry in group.obx_entries if self._is_met_by(entry.obx)]
        return [each for each in found if self.name and self.name in _value_names(each[1].obx)] or found if found[1:] else found

    def _is_met_by(self, obx: Segment) -> bool:
        """Whether an OBX may be the parent result, whatever its value is called by now."""
        is_code = not self.code or self.code in {obx.text(3, 1), obx.text(3, 4)}
        return is_code and (not self.number or self.number == sub_id(obx)) and bool(self.code or self.number)


def _value_names(obx: Segment) -> frozenset[str]:
    return frozenset(obx.text(5, number) for number in (1, 2, 5, 9))


def with_parent_result(group: ObrGroup, groups: Sequence[ObrGroup]) -> ObrGroup:
    """Put the parent result that OBR-26 names before the results that hang on it, unless the group has it itself."""
    link = ParentLink.read(group.obr)
    found = link.find(possible_parents(group, groups))
    if len(found) > 1:
        return replace(group, isolate=Isolate(problem=_SEVERAL_PARENTS))
    isolate = Isolate(culture=found[0][0] if found else None)
    is_there = any(link.code and link.code == entry.obx.text(3) for entry in group.obx_entries)
    if is_there or (found and is_numeric(found[0][1].obx)):
        return replace(group, isolate=isolate)
    if found:
        return insert_organism(group, found[0][1], isolate)
    if not any(has_susceptibility(entry.obx) for entry in group.obx_entries):
        return replace(group, isolate=isolate)
    if not (link.code and link.name):
        return replace(group, isolate=replace(isolate, problem=NO_ORGANISM))
    return insert_organism(group, _named_organism(group, link), isolate)


def with_only_organism(group: ObrGroup, groups: Sequence[ObrGroup]) -> ObrGroup:
    """Put the organism of the parent order, or of the same one, before susceptibilities that stand alone and without numbers."""
    own = find_organisms(group.obx_entries)
    if any(is_coded(entry.obx) for entry in own) or not any(has_susceptibility(entry.obx) for entry in group.obx_entries):
        return group
    found = [(parent, entry) for parent in possible_parents(group, groups) for entry in find_organisms(parent.obx_entries)]
    if {entry.obx.text(3) for entry in own} & {entry.obx.text(3) for _, entry in found}:
        return group
    if are_several([entry for _, entry in found]):
        return replace(group, isolate=Isolate(problem=NO_ORGANISM))
    if len(found) != 1:
        return group
    return insert_organism(group, found[0][1], Isolate(culture=found[0][0]))


def insert_organism(group: ObrGroup, organism: ObxEntry, isolate: Isolate) -> ObrGroup:
    """The group with an OBX of another group before its own; its notes stay where they are."""
    return replace(group, isolate=isolate, obx_entries=[replace(organism, notes=[]), *group.obx_entries])


def _named_organism(group: ObrGroup, link: ParentLink) -> ObxEntry:
    """An OBX of what OBR-26 says of the organism, where its own OBX is not in the message."""
    marks, obr = group.obr.separators, group.obr
    code = obr.first_repetition(26).raw.split(marks.component)[0].replace(marks.subcomponent, marks.component)
    fields = ("OBX", "", "ST", code, escape(link.number, marks), escape(link.name, marks), *("",) * 5, obr.raw(25))
    return ObxEntry(Segment("OBX", fields, marks, obr.encoding))

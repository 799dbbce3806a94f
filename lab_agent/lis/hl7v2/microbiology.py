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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lab_agent.domain.susceptibility import susceptibility_flags
from lab_agent.lis.hl7v2.obx_documents import DOCUMENT_TYPES
from lab_agent.lis.hl7v2.parser import Segment, escape
from lab_agent.lis.hl7v2.segment_groups import Isolate, ObrGroup, ObxEntry

_NUMERIC_TYPES = frozenset({"NM", "SN"})
_NO_ORGANISM = "has susceptibilities without their organism: send its OBX with the same number in OBX-4, or name it in OBR-26"
_NO_NUMBER = (
    "has several organisms, and susceptibilities that belong to none of them: give an organism and its drugs one number in OBX-4"
)
_SEVERAL_PARENTS = "has a parent result (OBR-26) that several OBX of the message could be: give each a number in OBX-4"


def has_susceptibility(obx: Segment) -> bool:
    """Whether an OBX says how susceptible an organism is (OBX-8 in HL7 table 0078)."""
    return bool(susceptibility_flags(value.component_text(1).strip().upper() for value in obx.repetitions(8)))


def parent_name(group: ObrGroup) -> str:
    """What a group hangs on, as part of its report's id: the same for another name of the same organism; empty for nothing."""
    link = ParentLink.read(group.obr)
    result = f"{link.code}#{link.number}" if link.number else "^".join(filter(None, (link.code, link.name)))
    return "/".join(part for part in (result, *(group.obr.text(29, number) for number in (1, 2))) if part)


def split_isolates(groups: Sequence[ObrGroup]) -> Iterator[ObrGroup]:
    """Give the groups of a patient with every isolate as a group of its own."""
    for group in groups:
        link = ParentLink.read(group.obr)
        if link.is_given:
            yield _with_parent_result(group, link, groups)
        else:
            yield from _Numbers(group, groups).split()


@dataclass(frozen=True, slots=True)
class ParentLink:
    """OBR-26 (PRL): the code, the number (OBX-4) and the value of the result that a group hangs on, such as an organism."""

    code: str
    number: str
    name: str

    @classmethod
    def read(cls, obr: Segment) -> ParentLink:
        """Read OBR-26; all is empty where it is."""
        return cls(*(obr.text(26, number) for number in (1, 2, 3)))

    @property
    def is_given(self) -> bool:
        """Whether there is a parent result."""
        return bool(self.code or self.number or self.name)

    def is_met_by(self, obx: Segment) -> bool:
        """Whether an OBX is the parent result, whatever its value is called by now."""
        codes = {obx.text(3, 1), obx.text(3, 4)}
        return (not self.code or self.code in codes) and self.number == _number(obx) and bool(self.code or self.number)


def _with_parent_result(group: ObrGroup, link: ParentLink, groups: Sequence[ObrGroup]) -> ObrGroup:
    """Put the parent result before the results that hang on it, unless the group has it itself."""
    others = _possible_parents(group, groups)
    found = [(other, entry) for other in others for entry in other.obx_entries if link.is_met_by(entry.obx)]
    if len(found) > 1:
        found = [each for each in found if link.name and link.name in _value_names(each[1].obx)] or found
    is_microbiology = any(has_susceptibility(entry.obx) for entry in group.obx_entries)
    isolate = Isolate(culture=found[0][0] if len(found) == 1 else None)
    if len(found) > 1:
        return replace(group, isolate=replace(isolate, problem=_SEVERAL_PARENTS))
    if any(link.code and link.code == entry.obx.text(3) for entry in group.obx_entries):
        return replace(group, isolate=isolate)
    if found and found[0][1].obx.text(2).upper() not in _NUMERIC_TYPES:
        return replace(group, isolate=isolate, obx_entries=[replace(found[0][1], notes=[]), *group.obx_entries])
    if not is_microbiology or found:
        return replace(group, isolate=isolate)
    if not (link.code and link.name):
        return replace(group, isolate=replace(isolate, problem=_NO_ORGANISM))
    return replace(group, isolate=isolate, obx_entries=[_named_organism(group, link), *group.obx_entries])


def _possible_parents(group: ObrGroup, groups: Sequence[ObrGroup]) -> list[ObrGroup]:
    """The groups that OBR-29 names as parent, else those of the same filler's or placer's number, else all others."""
    others = [other for other in groups if other is not group]
    named = {group.obr.text(29, number) for number in (1, 2)} - {""}
    own = [other for other in others if _numbers_of(group) & _numbers_of(other)]
    return [other for other in others if named & _numbers_of(other)] or own or others


def _numbers_of(group: ObrGroup) -> set[str]:
    """The placer's and the filler's number."""
    return {segment.text(field) for segment in (group.obr, group.orc) if segment for field in (2, 3)} - {""}


def _value_names(obx: Segment) -> frozenset[str]:
    return frozenset(obx.text(5, number) for number in (1, 2, 5, 9))


def _named_organism(group: ObrGroup, link: ParentLink) -> ObxEntry:
    """An OBX of what OBR-26 says of the organism, where its own OBX is not in the message."""
    marks, obr = group.obr.separators, group.obr
    code = obr.first_repetition(26).raw.split(marks.component)[0].replace(marks.subcomponent, marks.component)
    fields = ("OBX", "", "ST", code, escape(link.number, marks), escape(link.name, marks), *("",) * 5, obr.raw(25))
    return ObxEntry(Segment("OBX", fields, marks, obr.encoding))


def _number(obx: Segment) -> str:
    return obx.text(4)


def _root(obx: Segment) -> str:
    return _number(obx).partition(".")[0]


class _Numbers:
    """The OBX of one group by their numbers (OBX-4)."""

    def __init__(self, group: ObrGroup, groups: Sequence[ObrGroup]) -> None:
        self.group = group
        self.groups = groups
        entries = [entry for entry in group.obx_entries if entry.obx.text(2).upper() not in DOCUMENT_TYPES]
        self.flagged = [entry for entry in entries if has_susceptibility(entry.obx)]
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
        culture = replace(self.group, obx_entries=left) if left or not numbers else None
        isolates = [self._isolate(root, place, culture) for place, root in enumerate(numbers, 1)]
        if problem := self._find_problem(isolates):
            yield replace(self.group, isolate=Isolate(problem=problem))
            return
        yield from (culture, *isolates) if culture else isolates

    def _drugs(self, root: str, members: Sequence[ObxEntry]) -> Iterator[ObxEntry]:
        """Those of an isolate's OBX that are not its organism: what is below its number, and what follows susceptibilities."""
        flagged_codes = {entry.obx.text(3) for entry in self.flagged}
        has_parent = any(_number(entry.obx) == root for entry in members)
        seen = False
        for entry in members:
            seen = seen or entry in self.flagged
            is_below = _number(entry.obx) != root and has_parent
            if seen or is_below or entry.obx.text(3) in flagged_codes:
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
        has_organism = not has_susceptibility(members[0].obx)
        isolate = Isolate(number=root, place=place, culture=culture, has_organism=has_organism)
        return replace(self.group, obx_entries=members, isolate=isolate, notes=list(self.group.notes) if keeps_notes else [])

    def _organism_elsewhere(self, root: str) -> tuple[ObrGroup, ObxEntry] | None:
        """The one OBX with the number of an isolate in another group of the same filler's or placer's number."""
        own = _numbers_of(self.group)
        found = [
            (other, entry)
            for other in self.groups
            if other is not self.group and own & _numbers_of(other)
            for entry in other.obx_entries
            if _number(entry.obx) == root and not has_susceptibility(entry.obx)
        ]
        return found[0] if len(found) == 1 else None

    def _find_problem(self, isolates: Sequence[ObrGroup]) -> str | None:
        nameless = [each for each in isolates if each.isolate and not each.isolate.has_organism]
        if nameless and len(isolates) > 1:
            return _NO_ORGANISM
        is_loose = any(entry.number not in self.drugs for entry in self.flagged)
        return _NO_NUMBER if is_loose and self._has_several_organisms() else None

    def _has_several_organisms(self) -> bool:
        named = [entry.obx for entry in self.group.obx_entries if entry not in self.flagged and entry.number not in self.drugs]
        numbered = {(obx.text(3), _number(obx)) for obx in named}
        return len({code for code, _ in numbered}) < len(numbered)

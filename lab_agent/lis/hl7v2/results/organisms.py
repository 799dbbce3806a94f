"""What tells an organism from its susceptibilities in OBX, and by which numbers OBX and OBR of one culture hang together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lab_agent.domain.susceptibility import susceptibility_flags
from lab_agent.lis.hl7v2.parser import Segment
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup, ObxEntry

_CODED_TYPES = frozenset({"CE", "CWE", "CNE", "CF"})
_NUMERIC_TYPES = frozenset({"NM", "SN"})
_CONCENTRATION = re.compile(r"(?:mc|[muµμn])?g/m?l\Z", re.IGNORECASE)
_ORGANISM_CODES = frozenset({"6463-4", "600-7", "634-6", "635-3", "11475-1", "41852-5", "580-1", "75756-7", "88461-2"})
"""LOINC codes under which organisms are reported; most laboratories have their own, which are told by their place."""


def has_susceptibility(obx: Segment) -> bool:
    """Whether an OBX says how susceptible an organism is (OBX-8 in HL7 table 0078)."""
    return bool(susceptibility_flags(value.component_text(1).strip().upper() for value in obx.repetitions(8)))


def is_concentration(obx: Segment) -> bool:
    """Whether the unit is that of a drug's concentration: a laboratory need not say what every one of them means."""
    return _CONCENTRATION.match(obx.text(6)) is not None


def is_numeric(obx: Segment) -> bool:
    """Whether the value is a number, and so no organism."""
    return obx.text(2).upper() in _NUMERIC_TYPES


def is_coded(obx: Segment) -> bool:
    """Whether the value is a coded answer."""
    return obx.text(2).upper() in _CODED_TYPES


def sub_id(obx: Segment) -> str:
    """The number of an OBX among those of its code or isolate: OBX-4 as a text, or group and sequence of an OG (HL7 2.8.2)."""
    return obx.text(4) or ".".join(part for part in (obx.text(4, 2), obx.text(4, 3)) if part)


def order_numbers(group: ObrGroup) -> set[str]:
    """The placer's and the filler's number of a group."""
    return {segment.text(field) for segment in (group.obr, group.orc) if segment for field in (2, 3)} - {""}


def possible_parents(group: ObrGroup, groups: Iterable[ObrGroup]) -> list[ObrGroup]:
    """The groups that OBR-29 names as parent, else those of the same placer's or filler's number; never another order's."""
    others = [other for other in groups if other is not group]
    named = {group.obr.text(29, number) for number in (1, 2)} - {""}
    own = [other for other in others if order_numbers(group) & order_numbers(other)]
    return [other for other in others if named & order_numbers(other)] or own


def find_organisms(entries: Iterable[ObxEntry]) -> list[ObxEntry]:
    """Those of the OBX that may be organisms: by their LOINC code if any is one, else coded answers, else texts."""
    plain = [
        entry
        for entry in entries
        if entry.obx.repetitions(5)
        and not (has_susceptibility(entry.obx) or is_numeric(entry.obx) or is_concentration(entry.obx))
    ]
    known = [entry for entry in plain if {entry.obx.text(3), entry.obx.text(3, 4)} & _ORGANISM_CODES]
    coded = [entry for entry in plain if is_coded(entry.obx)]
    return known or coded or plain


def are_several(organisms: Sequence[ObxEntry]) -> bool:
    """Whether they are several answers to one question, and so several organisms."""
    codes = [entry.obx.text(3) for entry in organisms]
    return len(set(codes)) < len(codes)

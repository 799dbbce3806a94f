"""Prepares the OBX of a group before they are read: types that do not fit, OBX without a value, and what stands there twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lab_agent.lis.hl7v2.field_map import FieldMap
from lab_agent.lis.hl7v2.parser import Segment
from lab_agent.lis.hl7v2.results.obx_documents import DOCUMENT_TYPES, name_documents
from lab_agent.lis.hl7v2.results.obx_flags import flag_result, has_speaking_flag, rename_flags
from lab_agent.lis.hl7v2.results.obx_repeats import join_repeats, text_keys
from lab_agent.lis.hl7v2.results.obx_values import CODED_TYPES, TEXT_TYPES, is_text_for_number
from lab_agent.lis.hl7v2.results.organisms import has_organism
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup, ObxEntry, rewrite_field

_IDENTIFIER = "EI"
"""The number of a thing, such as a lot of a reagent or a file of raw data (IHE LAW): no result."""
_SAYS_SYSTEM_ALONE = frozenset({3, 6, 7, 8, 12})
"""Components of a coded value that say nothing without a code or a text: coding systems and their versions."""
_MAY_BE_EMPTY = frozenset({"final", "preliminary"})
_NO_RESULT = frozenset({"X", "N"})
"""OBX-11: there will be no result, or none was asked for (HL7 table 0085)."""
_NORMAL = "N"


def rename_codes(group: ObrGroup, field_map: FieldMap) -> None:
    """Replace what the LIS writes in OBX-2 and OBX-8 by `[tables.value_types]` and `[tables.flags]`, and OBX-2 by ED where a text
    is a document.
    """
    types, flags = field_map.table("value_types"), field_map.table("flags")
    for entry in group.obx_entries:
        kind = entry.obx.text(2)
        if meant := types.get(kind) or types.get(kind.upper()):
            entry.obx = rewrite_field(entry.obx, 2, meant)
        if flags and (given := entry.obx.raw(8)) and (renamed := rename_flags(entry.obx, flags)) != given:
            entry.obx = rewrite_field(entry.obx, 8, renamed)
        if _has_system_alone(entry.obx):
            entry.obx = rewrite_field(entry.obx, 5, "")
    name_documents(group)


def _has_system_alone(obx: Segment) -> bool:
    """Whether a coded value names a coding system and no code: `^^99ROC` is no value."""
    values = obx.repetitions(5) if obx.text(2).upper() in CODED_TYPES else ()
    numbered = (enumerate(value.components, 1) for value in values)
    return bool(values) and not any(part for each in numbered for number, part in each if number not in _SAYS_SYSTEM_ALONE)


def leave_out_entries(group: ObrGroup, field_map: FieldMap) -> None:
    """Leave out the OBX that are no results; `left_out` of the group says which, and why."""
    kept: list[ObxEntry] = []
    for entry in group.obx_entries:
        if reason := why_left_out(entry.obx, field_map):
            group.left_out += (f"OBX {entry.number} is left out: {reason}",)
            if entry.obx.text(11) in _NO_RESULT:
                entry.notes[:0] = [text for value in entry.obx.repetitions(5) if (text := value.text.strip())]
                group.notes += _named_notes(entry)
        else:
            kept.append(entry)
    group.obx_entries = kept


def why_left_out(obx: Segment, field_map: FieldMap) -> str:
    """Why an OBX is no result: a rule of the map, its status, or its type; empty for one that may be one."""
    if rule := next((rule for rule in field_map.results.leave_out if rule.matches(obx)), None):
        return f"it has {rule}"
    if field_map.table("observation_status").get(obx.text(11)) == "left_out":
        return f"{obx.text(11)} in OBX-11 is no result"
    return "an identifier (EI) is no result" if obx.text(2).upper() == _IDENTIFIER else ""


def prepare_entries(group: ObrGroup, field_map: FieldMap, *, final: bool) -> tuple[str, ...]:
    """Make the OBX of a group those that are read, one an observation; returns a note about each that was changed or left out."""
    return (
        *group.left_out,
        *rename_texts(group, field_map),
        *join_repeats(group, field_map),
        *drop_empty_entries(group, field_map, final=final),
    )


def rename_texts(group: ObrGroup, field_map: FieldMap) -> tuple[str, ...]:
    """Read as a text what an analyser writes for a number that it does not have (`****`, `----`, `neg`); a note about each."""
    notes: list[str] = []
    for entry in group.obx_entries:
        values = entry.obx.repetitions(5)
        if entry.obx.text(2).upper() == "NM" and len(values) == 1 and is_text_for_number(values[0], field_map):
            entry.obx = rewrite_field(entry.obx, 2, "ST")
            notes.append(f"OBX {entry.number} is no number (NM), and is read as a text")
    return tuple(notes)


def drop_empty_entries(group: ObrGroup, field_map: FieldMap, *, final: bool) -> tuple[str, ...]:
    """Drop the OBX that have no value although their status promises one, or since there will be none; returns a note about each.

    Their comments become comments of the report, under the name of the OBX: they often say why there is no value. An OBX whose
    flags may be its result has a value. A line within a text stays, as an empty one. A correction (OBX-11 `C`) to nothing is
    left to the reader, which refuses it; among susceptibilities it is a drug that is not reported.
    """
    lines_of_text = _lines_of_text(group.obx_entries)
    drops, is_culture = field_map.results.empty_value == "skip", has_organism(group.obx_entries)
    kept: list[ObxEntry] = []
    dropped: list[ObxEntry] = []
    for place, entry in enumerate(group.obx_entries):
        if not _is_empty(entry.obx) or not (drops and _may_be_empty(entry.obx, field_map, final=final, is_culture=is_culture)):
            kept.append(entry)
        elif place in lines_of_text:
            mark = entry.obx.separators.escape
            kept.append(replace(entry, obx=rewrite_field(entry.obx, 5, f"{mark}.br{mark}")))
        else:
            dropped.append(entry)
    without_note = [entry for entry in kept if _is_empty(entry.obx) or entry.obx.text(2).upper() in DOCUMENT_TYPES]
    for entry in sorted((*dropped, *without_note), key=lambda entry: entry.number):
        group.notes += _named_notes(entry)
    group.obx_entries = kept
    return tuple(f"OBX {entry.number} has no value" for entry in dropped)


def _may_be_empty(obx: Segment, field_map: FieldMap, *, final: bool, is_culture: bool) -> bool:
    """Whether the status of an OBX without a value lets it be left out."""
    code, statuses = obx.text(11), field_map.table("observation_status")
    meaning = statuses.get(code) if code else "final" if final else "preliminary"
    is_unreported_drug = is_culture and meaning == "amended" and obx.text(2).upper() in TEXT_TYPES
    return meaning in _MAY_BE_EMPTY or (code in _NO_RESULT and meaning == "held") or is_unreported_drug


def _is_empty(obx: Segment) -> bool:
    """Whether neither OBX-5 nor OBX-8 says a result. A flag beside a test that was not done (OBX-11 `X`) is none but a result."""
    if obx.repetitions(5):
        return False
    has_result = flag_result(obx, has_organism=True, table={}) is not None
    return not (has_result if obx.text(11) in _NO_RESULT else has_speaking_flag(obx))


def _lines_of_text(entries: Sequence[ObxEntry]) -> frozenset[int]:
    """The places of empty OBX within a text: such texts come as one OBX per line, and an empty line parts two paragraphs."""
    places: list[int] = []
    found: list[int] = []
    before: tuple[str, ...] = ()
    for place, (entry, key) in enumerate(zip(entries, text_keys(entries), strict=True)):
        is_empty = _is_empty(entry.obx)
        if key != before:
            places = []
        if key and is_empty and key == before:
            places.append(place)
        elif not is_empty:
            found += places
            places, before = [], key
    return frozenset(found)


def _named_notes(entry: ObxEntry) -> Iterator[str]:
    name = entry.obx.text(3, 2) or entry.obx.text(3)
    return (f"{name}: {note}" if name else note for note in (*_flag_notes(entry.obx), *entry.notes))


def _flag_notes(obx: Segment) -> Iterator[str]:
    """What the flags of an OBX without a value say: why a test was not done."""
    if not obx.repetitions(5):
        flags = (value.component_text(1).strip() or value.component_text(2).strip() for value in obx.repetitions(8))
        if said := [flag for flag in flags if flag and flag != _NORMAL]:
            yield ", ".join(said)

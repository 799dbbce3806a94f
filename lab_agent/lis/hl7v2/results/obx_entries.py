"""Prepares the OBX of a group before they are read: types that do not fit, OBX without a value, and what stands there twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lab_agent.domain.susceptibility import susceptibility_flags
from lab_agent.lis.hl7v2.field_map import FieldMap
from lab_agent.lis.hl7v2.parser import Segment
from lab_agent.lis.hl7v2.results.obx_documents import DOCUMENT_TYPES, name_documents
from lab_agent.lis.hl7v2.results.obx_repeats import join_repeats, text_key
from lab_agent.lis.hl7v2.results.obx_values import is_text_for_number
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup, ObxEntry, rewrite_field

_MAY_BE_EMPTY = frozenset({"final", "preliminary"})
_NO_RESULT = frozenset({"X", "N"})
"""OBX-11: there will be no result, or none was asked for (HL7 table 0085)."""
_NORMAL = "N"


def rename_value_types(group: ObrGroup, field_map: FieldMap) -> None:
    """Replace what the LIS writes in OBX-2 by `[tables.value_types]`, and by ED where a text is a document."""
    table = field_map.table("value_types")
    for entry in group.obx_entries:
        kind = entry.obx.text(2)
        if meant := table.get(kind) or table.get(kind.upper()):
            entry.obx = rewrite_field(entry.obx, 2, meant)
    name_documents(group)


def prepare_entries(group: ObrGroup, field_map: FieldMap, *, final: bool) -> tuple[str, ...]:
    """Make the OBX of a group those that are read, one an observation; returns a note about each that was changed or left out."""
    return (*_rename_texts(group, field_map), *join_repeats(group, field_map), *drop_empty_entries(group, field_map, final=final))


def _rename_texts(group: ObrGroup, field_map: FieldMap) -> Iterator[str]:
    """Read as a text what an analyser writes for a number that it does not have: `****`, `----`, `neg`."""
    for entry in group.obx_entries:
        values = entry.obx.repetitions(5)
        if entry.obx.text(2).upper() == "NM" and len(values) == 1 and is_text_for_number(values[0].text, field_map):
            entry.obx = rewrite_field(entry.obx, 2, "ST")
            yield f"OBX {entry.number} is no number (NM), and is read as a text"


def drop_empty_entries(group: ObrGroup, field_map: FieldMap, *, final: bool) -> tuple[str, ...]:
    """Drop the OBX that have no value although their status promises one, or since there will be none; returns a note about each.

    The comments and flags of an OBX that becomes no observation become comments of the report, under its name: they often say
    why there is no value.

    A line within a text stays, as an empty one. A correction (OBX-11 `C`) to nothing is left to the reader, which refuses it.
    """
    lines_of_text = _lines_of_text(group.obx_entries)
    statuses = {**field_map.table("observation_status"), "": "final" if final else "preliminary"}
    kept: list[ObxEntry] = []
    dropped: list[ObxEntry] = []
    for place, entry in enumerate(group.obx_entries):
        code, meaning = entry.obx.text(11), statuses.get(entry.obx.text(11))
        may_be_empty = meaning in _MAY_BE_EMPTY or (code in _NO_RESULT and meaning == "held")
        is_droppable = field_map.results.empty_value == "skip" and may_be_empty
        if not _is_empty(entry.obx) or not is_droppable:
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


def _is_empty(obx: Segment) -> bool:
    flags = {value.component_text(1).strip().upper() for value in obx.repetitions(8)}
    return not obx.repetitions(5) and not susceptibility_flags(flags)


def _lines_of_text(entries: Sequence[ObxEntry]) -> frozenset[int]:
    """The places of empty OBX within a text: such texts come as one OBX per line, and an empty line parts two paragraphs."""
    places: list[int] = []
    found: list[int] = []
    before: tuple[str, ...] = ()
    for place, entry in enumerate(entries):
        key, is_empty = text_key(entries, entry), _is_empty(entry.obx)
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
    """What the flags of an OBX without a value say: an analyser's flag may be all that it says."""
    if not obx.repetitions(5):
        flags = (value.component_text(1).strip() or value.component_text(2).strip() for value in obx.repetitions(8))
        if said := [flag for flag in flags if flag and flag != _NORMAL]:
            yield ", ".join(said)

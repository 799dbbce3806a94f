"""OBX of one code and number: those that are one observation after all (sent twice, or corrected in the same message), and values
that their kind tells apart.

Cultures are left alone: there a repeated code may be another isolate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from lab_agent.lis.hl7v2.field_map import FieldMap
from lab_agent.lis.hl7v2.parser import Segment
from lab_agent.lis.hl7v2.results.obx_values import CODED_TYPES
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup, ObxEntry
from lab_agent.lis.susceptibility import susceptibility_flags

_TEXT_TYPES = frozenset({"TX", "FT"})
_LINE_TYPES = _TEXT_TYPES | {"ST"}
_DOCUMENT_TYPES = frozenset({"ED", "RP"})
_LONG_LINE = 40
"""Characters from which a text of type ST is one that is broken into lines."""
_WITHDRAWN = frozenset({"W", "D"})
"""OBX-11: the value was wrong, or is to be deleted (HL7 table 0085)."""


def join_repeats(group: ObrGroup, field_map: FieldMap) -> tuple[str, ...]:
    """Join the OBX of a group that are one observation; returns a note about each that is left out."""
    return () if _is_culture(group) else (*_drop_identical(group), *_drop_corrected(group, field_map))


def names_beside_values(group: ObrGroup) -> Mapping[int, str]:
    """What tells values of one code and number apart by their kind, by the numbers of their OBX: `code` is an answer beside a
    number, `text` a text beside either.

    So are a concentration and its meaning, and an answer and its titre. Nothing tells such a text from a comment, which would not
    be sent.
    """
    if _is_culture(group):
        return {}
    kinds = {entry.number: _kind(entry.obx) for entry in group.obx_entries if entry.obx.repetitions(5)}
    numbers, coded = ({_name(one.obx) for one in group.obx_entries if kinds.get(one.number) == kind} for kind in ("", "code"))
    values = {"code": numbers, "text": numbers | coded}
    named = (one for one in group.obx_entries if kinds.get(one.number) in values and not one.obx.raw(21))
    return {one.number: kinds[one.number] for one in named if _name(one.obx) in values[kinds[one.number]]}


def _kind(obx: Segment) -> str:
    kind = obx.text(2).upper()
    if kind in _DOCUMENT_TYPES:
        return "document"
    return "text" if kind in _LINE_TYPES else "code" if kind in CODED_TYPES else ""


def _is_culture(group: ObrGroup) -> bool:
    return group.isolate is not None or any(map(_is_susceptibility, group.obx_entries))


def _drop_identical(group: ObrGroup) -> Iterator[str]:
    """Leave out what stands there twice. Lines of a text may well be equal."""
    kept: dict[tuple[str, ...], ObxEntry] = {}
    notes: dict[int, dict[str, None]] = {}
    listed: list[ObxEntry] = []
    for entry in group.obx_entries:
        content = tuple("|".join(entry.obx.fields[2:]).rstrip("|").split("|"))
        first = kept.setdefault(content, entry)
        if first is entry or entry.obx.text(2).upper() in _TEXT_TYPES or not entry.obx.repetitions(5):
            listed.append(entry)
            continue
        notes.setdefault(first.number, dict.fromkeys(first.notes)).update(dict.fromkeys(entry.notes))
        yield f"OBX {entry.number} is the same as OBX {first.number}"
    for entry in listed:
        entry.notes = list(notes.get(entry.number, entry.notes))
    group.obx_entries = listed


def _drop_corrected(group: ObrGroup, field_map: FieldMap) -> Iterator[str]:
    """Leave out a value that was withdrawn where the same message has the right one."""
    meanings = field_map.table("observation_status")
    right = {_name(entry.obx): entry for entry in group.obx_entries if meanings.get(entry.obx.text(11)) == "amended"}
    listed: list[ObxEntry] = []
    for entry in group.obx_entries:
        code, correction = entry.obx.text(11), right.get(_name(entry.obx))
        if correction is None or code not in _WITHDRAWN or meanings.get(code) != "held":
            listed.append(entry)
        else:
            correction.notes[:0] = entry.notes
            yield f"OBX {entry.number} ({code}) is corrected by OBX {correction.number}"
    group.obx_entries = listed


def text_keys(entries: Sequence[ObxEntry]) -> list[tuple[str, ...]]:
    """For each OBX the text that it is a line of: such texts come as one OBX per line. Empty if it can be none.

    ST is a line only of what is plainly a text: it may as well be a value, or an organism.
    """
    texts = frozenset[tuple[str, str]]()
    if not any(map(_is_susceptibility, entries)):
        texts = frozenset(_name(one.obx) for one in entries if _is_long(one.obx))
    return [_text_key(entry.obx, texts) for entry in entries]


def _text_key(obx: Segment, texts: Collection[tuple[str, str]]) -> tuple[str, ...]:
    kind, name = obx.text(2).upper(), _name(obx)
    if kind in _TEXT_TYPES:
        return (kind, *name)
    return ("ST", *name) if kind == "ST" and name in texts and not _says_more(obx) else ()


def _is_long(obx: Segment) -> bool:
    return obx.text(2).upper() == "ST" and len(obx.text(5)) >= _LONG_LINE


def _says_more(obx: Segment) -> bool:
    return any(obx.raw(number) for number in (6, 7, 8, 21))


def _is_susceptibility(entry: ObxEntry) -> bool:
    """Whether an OBX says how susceptible an organism is, in OBX-8 or as its value."""
    words = [value.component_text(1).strip().upper() for value in (*entry.obx.repetitions(8), *entry.obx.repetitions(5))]
    return bool(susceptibility_flags(words))


def _name(obx: Segment) -> tuple[str, str]:
    return obx.raw(3), obx.raw(4)

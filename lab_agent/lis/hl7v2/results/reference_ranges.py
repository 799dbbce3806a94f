"""Reads reference ranges (OBX-7) as laboratories write them; what is not a numeric range is passed on as text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lab_agent.lis.hl7v2.parser import HL7_NULL, FieldValue, Segment
from lab_agent.lis.hl7v2.results.obx_values import ObxValueReader
from lab_agent.lis.lab_messages import ReferenceRange
from lab_agent.lis.value_reading import read_text
from lab_agent.shared.values import Quantity

Unit = dict[str, str | None]
_NUMBER = r"[+-]?(?:\d+(?:[.,]\d+)?|[.,]\d+)"
_DASH = r"(?:-|–|—|−|÷|\.\.+|to\b)"
_TWO_SIDED = re.compile(rf"({_NUMBER})\s*{_DASH}\s*({_NUMBER})\Z", re.ASCII)
_ONE_SIDED = re.compile(rf"(<=|=<|<|≤|>=|=>|>|≥)\s*({_NUMBER})\Z", re.ASCII)
_UP_TO = re.compile(rf"{_DASH}\s*(\d+(?:[.,]\d+)?)\Z", re.ASCII)
_FROM = re.compile(rf"({_NUMBER})\s*{_DASH}\Z", re.ASCII)
_LONE_NUMBER = re.compile(rf"{_NUMBER}\Z", re.ASCII)
_BRACKETED = re.compile(r"[\[(](.*)[\])]\Z", re.DOTALL)
_ENDS = frozenset({"", "-", "–"})


def read_reference_ranges(obx: Segment, reader: ObxValueReader) -> tuple[ReferenceRange, ...]:
    """Read the reference ranges of an observation; their unit is that of the value."""
    unit = reader.read_unit(obx)
    values = obx.repetitions(7)
    if joined := _join_bounds([value.text.strip() for value in values], obx, unit):
        return (_parse_range(joined, unit, reader),)
    return tuple(found for value in values for found in _read_range(value, unit, reader))


def _join_bounds(texts: list[str], obx: Segment, unit: Unit) -> str:
    """One range whose dash is written as `~`, which parts two values here: `3.5~5.1`, `~5.1`; empty for anything else."""
    mark = obx.separators.repetition
    if mark not in obx.raw(7) or not texts or len(texts) > 2:
        return ""
    bare = [*texts[:-1], _without_unit(texts[-1], unit)]
    if not all(map(_LONE_NUMBER.match, bare)):
        return ""
    if len(bare) == 1:
        return f"-{bare[0]}" if obx.raw(7).strip().startswith(mark) else f"{bare[0]}-"
    return "-".join(bare)


def _read_range(value: FieldValue, unit: Unit, reader: ObxValueReader) -> Iterator[ReferenceRange]:
    """Read one range: OBX-7 is a text, which some fill as NR (`low^high`) or RFR (`low&high^sex^age`, HL7 2.A.3.63)."""
    parts = [_read_subcomponents(part) for part in value.components]
    while parts and not parts[-1]:
        parts.pop()
    shown = " ".join(part for part in parts if part)
    if len(parts) > 1 and _LONE_NUMBER.match(parts[-1]) and _are_bounds(parts[:-1]):
        yield _build_range(shown, parts[0] if parts[0] not in _ENDS else "", parts[-1], unit, reader)
    elif shown:
        yield _parse_range(shown, unit, reader)


def _are_bounds(parts: list[str]) -> bool:
    """Whether what stands before a last number is nothing, or a first number: `^10`, `^^10`, `3^5`, `3^-^5`."""
    return (parts[0] in _ENDS or _LONE_NUMBER.match(parts[0]) is not None) and all(part in _ENDS for part in parts[1:])


def _read_subcomponents(component: FieldValue) -> str:
    """Give a component as text; the two numbers of an NR within it get their dash back."""
    mark = component.separators.subcomponent
    raws = ("" if raw == HL7_NULL else raw for raw in component.raw.split(mark))
    pieces = [FieldValue(raw, component.separators, component.encoding).text.strip() for raw in raws]
    is_range = len(pieces) == 2 and any(pieces) and all(not piece or _LONE_NUMBER.match(piece) for piece in pieces)
    return read_text(("-" if is_range else mark).join(pieces))


def _parse_range(text: str, unit: Unit, reader: ObxValueReader) -> ReferenceRange:
    bare = _without_unit(found[1].strip() if (found := _BRACKETED.match(text)) else text, unit)
    if found := _TWO_SIDED.match(bare):
        return _build_range(text, found[1], found[2], unit, reader)
    if found := _ONE_SIDED.match(bare):
        is_high = found[1].strip("=")[0] in "<≤"
        return _build_range(text, "" if is_high else found[2], found[2] if is_high else "", unit, reader)
    if found := _UP_TO.match(bare):
        return _build_range(text, "", found[1], unit, reader)
    if found := _FROM.match(bare):
        return _build_range(text, found[1], "", unit, reader)
    return ReferenceRange(text=text)


def _build_range(text: str, low: str, high: str, unit: Unit, reader: ObxValueReader) -> ReferenceRange:
    """Build a range from its bounds; of one bound, the text says whether it belongs to the range. Inverted bounds stay text."""
    ends = [_parse_quantity(end, unit, reader) for end in (low, high)]
    if any(end and quantity is None for end, quantity in zip((low, high), ends, strict=True)):
        return ReferenceRange(text=text)
    if ends[0] and ends[1]:
        is_range = ends[0].value <= ends[1].value
        return ReferenceRange(low=ends[0], high=ends[1]) if is_range else ReferenceRange(text=text)
    return ReferenceRange(low=ends[0], high=ends[1], text=text)


def _without_unit(text: str, unit: Unit) -> str:
    """Give a range without the unit that OBX-6 gives already; one in another unit stays a text."""
    names = (name for name in (unit.get("unit"), unit.get("code")) if name)
    return next((text[: -len(name)].rstrip() for name in names if text.endswith(name)), text)


def _parse_quantity(text: str, unit: Unit, reader: ObxValueReader) -> Quantity | None:
    number = reader.read_number(text)
    return None if number is None else Quantity(value=number, **unit)

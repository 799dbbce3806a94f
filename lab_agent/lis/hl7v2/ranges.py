"""OBX-7: reference ranges as laboratories write them. What is no range of numbers is passed on in its own words."""

from __future__ import annotations

import re
from typing import Any

from lab_agent.domain.results import ReferenceRange
from lab_agent.domain.values import Quantity
from lab_agent.lis.hl7v2.message import Segment
from lab_agent.lis.hl7v2.values import ObxValueReader

_NUMBER = r"[+-]?(?:\d+(?:[.,]\d+)?|[.,]\d+)"
_TWO_SIDED_RANGE = re.compile(rf"({_NUMBER})\s*(?:-|–|—|\.\.+)\s*({_NUMBER})\Z")
_ONE_SIDED_RANGE = re.compile(rf"(<=|<|≤|>=|>|≥)\s*({_NUMBER})\Z")


def read_reference_ranges(obx: Segment, reader: ObxValueReader) -> tuple[ReferenceRange, ...]:
    """Read the reference ranges of an observation; their unit is that of the value."""
    unit = reader.read_unit(obx)
    texts = (value.text.strip() for value in obx.repetitions(7))
    return tuple(_parse_range(text, unit, reader) for text in texts if text)


def _parse_range(text: str, unit: dict[str, str | None], reader: ObxValueReader) -> ReferenceRange:
    if found := _TWO_SIDED_RANGE.match(text):
        low, high = _parse_quantity(found[1], unit, reader), _parse_quantity(found[2], unit, reader)
        if low and high and low.value <= high.value:
            return ReferenceRange(low=low, high=high)
    elif (found := _ONE_SIDED_RANGE.match(text)) and (bound := _parse_quantity(found[2], unit, reader)):
        ends: dict[str, Any] = {"high" if found[1][0] in "<≤" else "low": bound}
        return ReferenceRange(**ends, text=text)
    return ReferenceRange(text=text)


def _parse_quantity(text: str, unit: dict[str, str | None], reader: ObxValueReader) -> Quantity | None:
    number = reader.read_number(text)
    return None if number is None else Quantity(value=number, **unit)

"""OBX-7: reference ranges as laboratories write them. What is no range of numbers is passed on in its own words."""

from __future__ import annotations

import re
from typing import Any

from lab_agent.domain.results import ReferenceRange
from lab_agent.domain.values import Quantity
from lab_agent.lis.hl7v2.message import Segment
from lab_agent.lis.hl7v2.values import Reader

_N = r"[+-]?(?:\d+(?:[.,]\d+)?|[.,]\d+)"
_SPAN = re.compile(rf"({_N})\s*(?:-|–|—|\.\.+)\s*({_N})\Z")
_UP_TO = re.compile(rf"(<=|<|≤|>=|>|≥)\s*({_N})\Z")


def reference_ranges(obx: Segment, reader: Reader) -> tuple[ReferenceRange, ...]:
    """Read the reference ranges of an observation; their unit is that of the value."""
    unit = reader.unit(obx)
    texts = (value.text.strip() for value in obx.repetitions(7))
    return tuple(_range(text, unit, reader) for text in texts if text)


def _range(text: str, unit: dict[str, str | None], reader: Reader) -> ReferenceRange:
    if found := _SPAN.match(text):
        low, high = _amount(found[1], unit, reader), _amount(found[2], unit, reader)
        if low and high and low.value <= high.value:
            return ReferenceRange(low=low, high=high)
    elif (found := _UP_TO.match(text)) and (bound := _amount(found[2], unit, reader)):
        ends: dict[str, Any] = {"high" if found[1][0] in "<≤" else "low": bound}
        return ReferenceRange(**ends, text=text)
    return ReferenceRange(text=text)


def _amount(text: str, unit: dict[str, str | None], reader: Reader) -> Quantity | None:
    number = reader.number(text)
    return None if number is None else Quantity(value=number, **unit)

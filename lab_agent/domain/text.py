"""Text for people: foreign text shortened for our own sentences, and values of observations, digit for digit. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from lab_agent.domain.lab_messages import ReferenceRange, ReportedObservation
from lab_agent.domain.values import CodeableConcept, Coding, DateOrTime, PartialDate, Period, Quantity, Range

MAX_LENGTH = 80
_MAX_ITEMS = 5
_DASH = "–"
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1: ESC, CSI, OSC, backspace, carriage return
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction marks, embeddings, overrides and isolates
    "\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible characters and line separators
    "\ud800-\udfff\U000e0000-\U000e007f]"  # halves of characters, and tags
)


def shorten(text: str, length: int = MAX_LENGTH) -> str:
    """Give a foreign text as a reason, a timeline or a log may quote it: on one line, at most `length` characters of it."""
    shown = "".join(char if char.isprintable() else "?" for char in text[:length])
    return shown if len(text) <= length else f"{shown}…"


def escape_unprintable(text: str) -> str:
    r"""Give text that can neither steer a terminal nor reorder what it shows: such characters become escapes, `\u001b`.

    Line ends and tabs stay. JSON stays the same JSON, for its escapes are the same.
    """
    return _UNPRINTABLE.sub(lambda found: "".join(f"\\u{unit:04x}" for unit in _utf16_units(found[0])), text)


def _utf16_units(char: str) -> Iterator[int]:
    data = char.encode("utf-16-be", "surrogatepass")
    return (int.from_bytes(data[place : place + 2], "big") for place in range(0, len(data), 2))


def address_origin(address: str) -> str:
    """Give the origin of an absolute address for a message, without what may name somebody (user, path, query)."""
    try:
        parts = urlsplit(address.strip())
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that cannot be read"
    return f"{parts.scheme or 'http'}://{parts.hostname or ''}{port}"


def join_limited(texts: Iterable[str], separator: str = ", ") -> str:
    """Join sentences or names; of many, the first few and the number of the others."""
    listed = list(texts)
    more = len(listed) - _MAX_ITEMS
    return separator.join(listed[:_MAX_ITEMS]) + (f"{separator}and {more} more" if more > 0 else "")


def display_name(code: Coding) -> str:
    """The name of a code for people."""
    return code.display or code.code


def format_value(observation: ReportedObservation) -> str:
    """The value as text; of one that does not fit a table cell, where to find it."""
    forms: tuple[tuple[Any, Callable[[Any], str]], ...] = (
        (observation.value_quantity, format_quantity),
        (observation.value_codeable_concept, format_concept),
        (observation.value_range, format_range),
        (observation.value_ratio, lambda ratio: f"{format_quantity(ratio.numerator)} : {format_quantity(ratio.denominator)}"),
        (observation.value_period, format_period),
        (observation.value_date_time, format_date_or_time),
        (observation.value_time, lambda moment: moment.isoformat()),
        (observation.value_string, str),
    )
    return next((format_(value) for value, format_ in forms if value is not None), "see the electronic report")


def format_quantity(quantity: Quantity) -> str:
    """A quantity with the digits that it came with."""
    return " ".join(part for part in (f"{quantity.comparator or ''}{quantity.value:f}", quantity.unit or quantity.code) if part)


def format_concept(value: CodeableConcept) -> str:
    """A coded answer."""
    return value.text or ", ".join(display_name(each) for each in value.coding)


def format_range(value: Range) -> str:
    """From low to high."""
    if value.low and value.high and value.low.unit == value.high.unit:
        return f"{value.low.value:f} {_DASH} {format_quantity(value.high)}"
    return (
        f"{format_quantity(value.low) if value.low else ''} {_DASH} {format_quantity(value.high) if value.high else ''}".strip()
    )


def format_period(value: Period) -> str:
    """From start to end."""
    ends = (format_date_or_time(end) if end else "" for end in (value.start, value.end))
    return f" {_DASH} ".join(ends).strip()


def format_date_or_time(value: DateOrTime) -> str:
    """A moment to the minute; a date as it was given."""
    return value.text if isinstance(value, PartialDate) else value.isoformat(" ", "minutes")


def format_reference_ranges(ranges: tuple[ReferenceRange, ...]) -> str:
    """Reference ranges, one line each."""
    return "\n".join(line for line in map(_format_reference_range, ranges) if line)


def _format_reference_range(one: ReferenceRange) -> str:
    parts = (
        format_concept(one.meaning) if one.meaning else "",
        f"age {format_range(one.age)}:" if one.age else "",
        format_range(Range(low=one.low, high=one.high)) if one.low or one.high else "",
        one.text or "",
    )
    return " ".join(part for part in parts if part)

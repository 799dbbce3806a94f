"""Values of observations as text for people, digit for digit. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab_agent.lis.lab_messages import ReferenceRange, ReportedObservation
from lab_agent.shared.values import CodeableConcept, Coding, DateOrTime, PartialDate, Period, Quantity, Range

_DASH = "–"


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

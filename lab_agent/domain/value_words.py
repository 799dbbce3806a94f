"""Values of observations as people read them, digit for digit. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab_agent.domain.results import ReferenceRange, ReportedObservation
from lab_agent.domain.values import CodeableConcept, Coding, Period, Quantity, Range

_DASH = "–"


def name_of(code: Coding) -> str:
    """What is observed."""
    return code.display or code.code


def value_of(observation: ReportedObservation) -> str:
    """The value in words; what does not fit a cell is said to be in the electronic report."""
    one = observation
    forms: tuple[tuple[Any, Callable[[Any], str]], ...] = (
        (one.value_quantity, amount),
        (one.value_codeable_concept, concept),
        (one.value_range, span),
        (one.value_ratio, lambda ratio: f"{amount(ratio.numerator)} : {amount(ratio.denominator)}"),
        (one.value_period, period),
        (one.value_date_time, lambda moment: moment.isoformat(" ", "minutes")),
        (one.value_time, lambda moment: moment.isoformat()),
        (one.value_string, str),
    )
    return next((say(value) for value, say in forms if value is not None), "see the electronic report")


def amount(quantity: Quantity) -> str:
    """A quantity with its own digits."""
    return " ".join(part for part in (f"{quantity.comparator or ''}{quantity.value:f}", quantity.unit or quantity.code) if part)


def concept(value: CodeableConcept) -> str:
    """A coded answer."""
    return value.text or ", ".join(name_of(each) for each in value.coding)


def span(value: Range) -> str:
    """From low to high."""
    if value.low and value.high and value.low.unit == value.high.unit:
        return f"{value.low.value:f} {_DASH} {amount(value.high)}"
    return f"{amount(value.low) if value.low else ''} {_DASH} {amount(value.high) if value.high else ''}".strip()


def period(value: Period) -> str:
    """From start to end."""
    ends = (end.isoformat(" ", "minutes") if end else "" for end in (value.start, value.end))
    return f" {_DASH} ".join(ends).strip()


def normal(ranges: tuple[ReferenceRange, ...]) -> str:
    """Normal values, one line for each."""
    return "\n".join(line for line in map(_range, ranges) if line)


def _range(one: ReferenceRange) -> str:
    parts = (
        concept(one.meaning) if one.meaning else "",
        f"age {span(one.age)}:" if one.age else "",
        span(Range(low=one.low, high=one.high)) if one.low or one.high else "",
        one.text or "",
    )
    return " ".join(part for part in parts if part)

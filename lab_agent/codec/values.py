"""Rules of value forms that have no legal form on the wire otherwise (FHIR STU3, Data Types: SampledData, Period, Range).

They look at the JSON as it was read, and are silent where a part cannot be read: its reader tells of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any

from pydantic_core import PydanticCustomError

from lab_agent.codec.problems import Found
from lab_agent.codec.scalars import moment, number

COMPARATORS = ("<", "<=", ">=", ">")
_SAMPLE = r"(?:-?\d+(?:\.\d+)?|E|U|L)"
_SAMPLES = re.compile(rf"{_SAMPLE}(?: {_SAMPLE})*", re.ASCII)


def value_rules(observation: Mapping[str, Any], place: tuple[str | int, ...], zone: tzinfo | None) -> Iterator[Found]:
    """Say what is wrong with the value of an observation; `zone` is meant where a time has none."""
    series, period = observation.get("value_sampled_data"), observation.get("value_period")
    if isinstance(series, Mapping):
        yield from _series(series, (*place, "value_sampled_data"))
        yield from _simple(series, ("origin",), (*place, "value_sampled_data"))
    if isinstance(span := observation.get("value_range"), Mapping):
        yield from _simple(span, ("low", "high"), (*place, "value_range"))
    if isinstance(period, Mapping):
        yield from _period(period, (*place, "value_period"), zone)


def _series(series: Mapping[str, Any], place: tuple[str | int, ...]) -> Iterator[Found]:
    dimensions, period = _number(series.get("dimensions")), _number(series.get("period"))
    if dimensions is not None and dimensions < 1:
        yield Found((*place, "dimensions"), "is less than 1", "give the number of values at each point in time")
    if period is not None and period <= 0:
        yield Found((*place, "period"), "is not above nought", "give the milliseconds between two samples")
    data = series.get("data")
    if isinstance(data, str) and not _SAMPLES.fullmatch(data):
        mend = "write plain numbers, E, U and L, with one blank between two of them"
        yield Found((*place, "data"), "is no series of samples", mend)


def _simple(holder: Mapping[str, Any], names: tuple[str, ...], place: tuple[str | int, ...]) -> Iterator[Found]:
    """Look at the amounts that are exact by their type: a comparator of theirs would be lost (FHIR STU3: SimpleQuantity)."""
    for name in names:
        amount = holder.get(name)
        if isinstance(amount, Mapping) and amount.get("comparator") in COMPARATORS:
            mend = "leave it out, or give value_quantity with it, or the whole value as value_string"
            yield Found((*place, name, "comparator"), "has no place in this form of value", mend)


def _period(period: Mapping[str, Any], place: tuple[str | int, ...], zone: tzinfo | None) -> Iterator[Found]:
    start, end = _moment(period.get("start"), zone), _moment(period.get("end"), zone)
    if start is not None and end is not None and start > end:
        yield Found(place, "ends before it starts", "give start and end so that start is the earlier one")


def _number(value: Any) -> Decimal | None:
    try:
        return number(value)
    except PydanticCustomError:
        return None


def _moment(value: Any, zone: tzinfo | None) -> datetime | None:
    try:
        return moment(value, zone)
    except PydanticCustomError:
        return None

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

from lab_agent.codec.problems import ValidationIssue
from lab_agent.codec.scalars import parse_datetime, parse_decimal

COMPARATORS = ("<", "<=", ">=", ">")
_SAMPLE = r"(?:-?\d+(?:\.\d+)?|E|U|L)"
_SAMPLES = re.compile(rf"{_SAMPLE}(?: {_SAMPLE})*", re.ASCII)


def value_issues(
    observation: Mapping[str, Any], location: tuple[str | int, ...], time_zone: tzinfo | None
) -> Iterator[ValidationIssue]:
    """Say what is wrong with the value of an observation; `zone` is meant where a time has none."""
    series, period = observation.get("value_sampled_data"), observation.get("value_period")
    if isinstance(series, Mapping):
        yield from _sampled_data_issues(series, (*location, "value_sampled_data"))
        yield from _simple_quantity_issues(series, ("origin",), (*location, "value_sampled_data"))
    if isinstance(span := observation.get("value_range"), Mapping):
        yield from _simple_quantity_issues(span, ("low", "high"), (*location, "value_range"))
    if isinstance(period, Mapping):
        yield from _period_issues(period, (*location, "value_period"), time_zone)


def _sampled_data_issues(series: Mapping[str, Any], location: tuple[str | int, ...]) -> Iterator[ValidationIssue]:
    dimensions, period = _decimal_or_none(series.get("dimensions")), _decimal_or_none(series.get("period"))
    if dimensions is not None and dimensions < 1:
        yield ValidationIssue((*location, "dimensions"), "is less than 1", "give the number of values at each point in time")
    if period is not None and period <= 0:
        yield ValidationIssue((*location, "period"), "is not above nought", "give the milliseconds between two samples")
    data = series.get("data")
    if isinstance(data, str) and not _SAMPLES.fullmatch(data):
        mend = "write plain numbers, E, U and L, with one blank between two of them"
        yield ValidationIssue((*location, "data"), "is no series of samples", mend)


def _simple_quantity_issues(
    holder: Mapping[str, Any], names: tuple[str, ...], location: tuple[str | int, ...]
) -> Iterator[ValidationIssue]:
    """Look at the amounts that are exact by their type: a comparator of theirs would be lost (FHIR STU3: SimpleQuantity)."""
    for name in names:
        amount = holder.get(name)
        if isinstance(amount, Mapping) and amount.get("comparator") in COMPARATORS:
            mend = "leave it out, or give value_quantity with it, or the whole value as value_string"
            yield ValidationIssue((*location, name, "comparator"), "has no place in this form of value", mend)


def _period_issues(
    period: Mapping[str, Any], location: tuple[str | int, ...], time_zone: tzinfo | None
) -> Iterator[ValidationIssue]:
    start, end = _datetime_or_none(period.get("start"), time_zone), _datetime_or_none(period.get("end"), time_zone)
    if start is not None and end is not None and start > end:
        yield ValidationIssue(location, "ends before it starts", "give start and end so that start is the earlier one")


def _decimal_or_none(value: Any) -> Decimal | None:
    try:
        return parse_decimal(value)
    except PydanticCustomError:
        return None


def _datetime_or_none(value: Any, time_zone: tzinfo | None) -> datetime | None:
    try:
        return parse_datetime(value, time_zone)
    except PydanticCustomError:
        return None

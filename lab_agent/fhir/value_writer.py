"""Values of results as JSON, with the digits that they came with (FHIR STU3; interface: Observation, value forms)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, timedelta
from typing import Any

from lab_agent.lis.lab_messages import Document, ReferenceRange, ReportedObservation
from lab_agent.shared.errors import DataInvalidError, Problem
from lab_agent.shared.text import shorten
from lab_agent.shared.values import (
    LOW_HIGH_HINT,
    CodeableConcept,
    Coding,
    DateOrTime,
    Identifier,
    PartialDate,
    Period,
    Quantity,
    Range,
    Ratio,
    SampledData,
    is_inverted_range,
)

_MAX_UTC_OFFSET = timedelta(hours=14)
_CODE_PATTERN = re.compile(r"\S+(\s\S+)*")
_ADDRESS_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
WriteAttachment = Callable[[Document], Mapping[str, Any]]


@contextmanager
def problem_location(where: str) -> Iterator[None]:
    """Put the place before that of every problem raised inside."""
    try:
        yield
    except DataInvalidError as exc:
        raise DataInvalidError(prefix_problems(exc.problems, where)) from exc


def prefix_problems(problems: Iterable[Problem], where: str) -> tuple[Problem, ...]:
    """Give problems of a part as problems of the whole."""
    return tuple(replace(problem, where=f"{where}.{problem.where}") for problem in problems)


def value_fields(observation: ReportedObservation, write_attachment: WriteAttachment) -> dict[str, Any]:
    """Give the one `value[x]` of an observation. Raises `DataInvalidError` where there is none, or more than one."""
    found = dict(_present_values(observation, write_attachment))
    if len(found) != 1:
        raise DataInvalidError((Problem("value", f"is given {len(found)} times", "give exactly one value_… field"),))
    return found


def _present_values(observation: ReportedObservation, write_attachment: WriteAttachment) -> Iterator[tuple[str, Any]]:
    writers: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
        ("value_quantity", "valueQuantity", quantity),
        ("value_codeable_concept", "valueCodeableConcept", concept),
        ("value_string", "valueString", str),
        ("value_range", "valueRange", range_),
        ("value_ratio", "valueRatio", ratio),
        ("value_sampled_data", "valueSampledData", sampled_data),
        ("value_attachment", "valueAttachment", write_attachment),
        ("value_time", "valueTime", lambda value: value.isoformat()),
        ("value_date_time", "valueDateTime", date_time),
        ("value_period", "valuePeriod", period),
    )
    for field, name, write in writers:
        value = getattr(observation, field)
        if value is None:
            continue
        with problem_location(field):
            written = write(value)
        if not _is_empty(written):
            yield name, written


def quantity(value: Quantity) -> dict[str, Any]:
    """A Quantity. A code without a system says nothing (qty-3 forbids it): it is the unit then, if there is no other."""
    system, code = _validate_system(value.system), _validate_code(value.code)
    is_coded = not _is_empty(system)
    unit = code if _is_empty(value.unit) and not is_coded else value.unit
    fields = {"comparator": value.comparator, "unit": unit, "system": system, "code": code if is_coded else None}
    return {"value": value.value, **drop_empty(fields)}


def simple_quantity(value: Quantity) -> dict[str, Any]:
    """A SimpleQuantity: without a comparator."""
    return {key: each for key, each in quantity(value).items() if key != "comparator"}


def range_(value: Range) -> dict[str, Any]:
    """A Range. Raises `DataInvalidError` if low is above high, which FHIR does not allow (rng-2)."""
    if is_inverted_range(value.low, value.high):
        raise DataInvalidError((Problem("low", "is above high", LOW_HIGH_HINT),))
    return {name: simple_quantity(end) for name, end in (("low", value.low), ("high", value.high)) if end}


def ratio(value: Ratio) -> dict[str, Any]:
    """A Ratio."""
    return {"numerator": quantity(value.numerator), "denominator": quantity(value.denominator)}


def sampled_data(value: SampledData) -> dict[str, Any]:
    """A SampledData."""
    limits = drop_empty({"factor": value.factor, "lowerLimit": value.lower_limit, "upperLimit": value.upper_limit})
    origin = simple_quantity(value.origin)
    return {"origin": origin, "period": value.period, **limits, "dimensions": value.dimensions, "data": value.data}


def period(value: Period) -> dict[str, Any]:
    """A Period."""
    return {name: date_time(end) for name, end in (("start", value.start), ("end", value.end)) if end}


def concept(value: CodeableConcept) -> dict[str, Any]:
    """A CodeableConcept."""
    codings = [coding(each) for each in value.coding]
    return drop_empty({"coding": codings or None, "text": value.text})


def coding(value: Coding) -> dict[str, Any]:
    """A Coding."""
    if not value.code.strip():
        raise DataInvalidError((Problem("code", "is blank", "give the code, or leave the coding out"),))
    system = _validate_system(value.system)
    return drop_empty({"system": system, "code": _validate_code(value.code), "display": value.display})


def identifier(value: Identifier) -> dict[str, Any]:
    """An Identifier."""
    return drop_empty({"system": value.system, "value": value.value})


def date_time(value: DateOrTime) -> str:
    """A dateTime or instant. Raises `DataInvalidError` without an offset; a date has none."""
    if isinstance(value, PartialDate):
        return value.text
    offset = value.utcoffset()
    if offset is None:
        raise DataInvalidError((Problem("time", "has no offset", "give every time with its offset"),))
    return (value if abs(offset) <= _MAX_UTC_OFFSET else value.astimezone(UTC)).isoformat()


def reference_range(value: ReferenceRange) -> dict[str, Any]:
    """Reference values: the types that the interface leaves open are FHIR's, under the interface's names."""
    with problem_location("age"):
        age = range_(value.age) if value.age else None
    parts = {
        "low": simple_quantity(value.low) if value.low else None,
        "high": simple_quantity(value.high) if value.high else None,
        "meaning": concept(value.meaning) if value.meaning else None,
        "age": age,
        "text": value.text,
    }
    return drop_empty(parts)


def drop_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value: FHIR knows no blank text and no empty object."""
    return {key: value for key, value in fields.items() if not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    return value is None or value == {} or (isinstance(value, str) and not value.strip())


def _validate_system(text: str | None) -> str | None:
    """The address of a code system, which FHIR wants absolute. Raises `DataInvalidError`."""
    if text is not None and text.strip() and not _ADDRESS_PATTERN.fullmatch(text):
        hint = "give the address of the code system, as in http://loinc.org, or map the code"
        raise DataInvalidError((Problem("system", f"'{shorten(text)}' is no absolute address", hint),))
    return text


def _validate_code(text: str | None) -> str | None:
    """A code (FHIR STU3, Data Types): no white space but single blanks within. Raises `DataInvalidError`."""
    if text is not None and text.strip() and not _CODE_PATTERN.fullmatch(text):
        hint = "give the code without leading, trailing or double white space, or map it"
        raise DataInvalidError((Problem("code", f"'{shorten(text)}' is not a code", hint),))
    return text

"""Observed values as plain text fields (rows of a table or of a CSV file), turned into the published JSON form.

Values are read as those of every adapter (`value_reading`). Other mistakes are left for `load_message` to find, which reads the
result like everybody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lab_agent.lis.value_reading import (
    BLANKS,
    COMPARATORS,
    Declared,
    Number,
    UnreadableValueError,
    ValueFault,
    ValueRules,
    check_spreadsheet,
    read_number,
    read_text,
    read_value,
)
from lab_agent.shared.errors import Problem

Fields = Mapping[str, str | None]

OBSERVATION_FIELDS = (
    "observation_id", "code", "code_system", "code_text", "observation_status", "value_type", "value", "comparator", "unit",
    "low", "high", "range_text", "flag", "method", "specimen", "note", "observed_at",
)  # fmt: skip
"""The names of the fields."""
VALUE_TYPES = ("quantity", "text", "code", "datetime", "time")
"""Values of `value_type`; without one, a number (`<5` too) is a quantity and everything else is text."""

_LOINC = "http://loinc.org"


@dataclass(frozen=True, slots=True)
class TabularValues:
    """The observations of a report as JSON; one that has a problem stays as it was written, which is no JSON of ours."""

    observations: list[dict[str, Any]]
    problems: tuple[Problem, ...]


def read_observations(rows: Iterable[Fields], rules: ValueRules) -> TabularValues:
    """Read rows; what is missing or wrong beside the values is left for `load_message` to find."""
    problems: list[Problem] = []
    trees: list[dict[str, Any]] = []
    for place, row in enumerate(rows):
        given = {name: bare for name, text in row.items() if text is not None and (bare := text.strip(BLANKS))}
        found = list(_find_problems(given, rules))
        problems += (Problem(f"observations[{place}].{name}", fault.what, fault.hint) for name, fault in found)
        trees.append(given if found else _to_observation(given, rules))
    return TabularValues(trees, tuple(problems))


def _find_problems(given: Mapping[str, str], rules: ValueRules) -> Iterator[tuple[str, UnreadableValueError]]:
    """The fields that cannot be read for certain."""
    for name, read in (
        ("value", lambda: _value(given, rules)),
        ("low", lambda: _bound(given["low"], rules)),
        ("high", lambda: _bound(given["high"], rules)),
        ("range_text", lambda: _check_text(given["range_text"])),
        ("unit", lambda: _check_text(given["unit"])),
    ):
        try:
            if name in given:
                read()
        except UnreadableValueError as fault:
            yield name, fault


def _check_text(text: str) -> None:
    read_text(text)
    check_spreadsheet(text)


def _to_observation(given: Mapping[str, str], rules: ValueRules) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "id": given.get("observation_id"),
        "code": {"system": given.get("code_system", _LOINC), "code": given.get("code"), "display": given.get("code_text")},
        "status": given.get("observation_status"),
        "specimen": given.get("specimen"),
        "method": {"text": given["method"]} if "method" in given else None,
        "flags": [given["flag"]] if "flag" in given else None,
        "note": given.get("note"),
        "issued": given.get("observed_at"),
        "reference_ranges": _ranges(given, rules),
        **_value(given, rules),
    }
    return drop_none(tree)


def _value(given: Mapping[str, str], rules: ValueRules) -> dict[str, Any]:
    text = given.get("value")
    match given.get("value_type"):
        case None | "quantity" | "text":
            return _read_plain(text, given, rules) if text else {}
        case "code":
            return {"value_codeable_concept": {"coding": [{"code": text}], "text": given.get("note")}}
        case "datetime":
            return {"value_date_time": text}
        case "time":
            return {"value_time": text}
        case other:
            return {"value_type": other}  # an unknown field: load_message names it


_DECLARED = {None: Declared.NOTHING, "quantity": Declared.NUMBER, "text": Declared.TEXT}


def _read_plain(text: str, given: Mapping[str, str], rules: ValueRules) -> dict[str, Any]:
    declared, comparator = _DECLARED[given.get("value_type")], given.get("comparator")
    read = read_value(text, given.get("unit"), replace(rules, numeric_text=False), declared)
    if isinstance(read, Number):
        sign = COMPARATORS.get(comparator, comparator) if comparator else read.comparator
        if read.comparator not in {None, sign}:
            raise UnreadableValueError(ValueFault.COMPARATOR)
        return {"value_quantity": _quantity(read, given.get("unit"), sign)}
    if declared is Declared.NUMBER:
        raise UnreadableValueError(ValueFault.NOT_A_NUMBER)
    if comparator:
        raise UnreadableValueError(ValueFault.COMPARATOR)
    return {"value_string": read}


def _ranges(given: Mapping[str, str], rules: ValueRules) -> list[dict[str, Any]] | None:
    bounds = {end: _quantity(_bound(given[end], rules), given.get("unit")) for end in ("low", "high") if end in given}
    found: dict[str, Any] = {**bounds, **({"text": given["range_text"]} if "range_text" in given else {})}
    return [found] if found else None


def _bound(text: str, rules: ValueRules) -> Number:
    """An end of a range. Raises `UnreadableValueError`."""
    check_spreadsheet(text)
    number = read_number(text, rules)
    if number is None or number.comparator:
        raise UnreadableValueError(ValueFault.NOT_A_NUMBER)
    return number


def _quantity(number: Number, unit: str | None, comparator: str | None = None) -> dict[str, Any]:
    return drop_none({"value": str(number.value), "comparator": comparator, "unit": unit})


def drop_none(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is None, in this object and in those directly in it."""
    return {key: drop_none(item) if isinstance(item, dict) else item for key, item in tree.items() if item is not None}

"""Writes the domain's values as plain JSON shapes. What is None or empty is left out; nothing is rounded or guessed."""

from __future__ import annotations

import base64
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import Any

from lab_agent.codec.problems import ValidationIssue, raise_issues


def to_json_object(value: Any) -> dict[str, Any]:
    """Give a domain dataclass as a JSON object. Raises `DataInvalidError`, naming every field that has no exact JSON form."""
    found: list[ValidationIssue] = []
    tree: dict[str, Any] = _to_json(value, (), found)
    if found:
        raise_issues(found)
    return tree


def _to_json(value: Any, location: tuple[str | int, ...], issues: list[ValidationIssue]) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        members = ((one, getattr(value, one.name)) for one in _fields(type(value)))
        return {one.name: _to_json(item, (*location, one.name), issues) for one, item in members if not _is_omitted(one, item)}
    if isinstance(value, tuple | list):
        return [_to_json(item, (*location, index), issues) for index, item in enumerate(value)]
    return _scalar_to_json(value, location, issues)


def _scalar_to_json(value: Any, location: tuple[str | int, ...], issues: list[ValidationIssue]) -> Any:
    match value:
        case str() | bool() | int():
            return value
        case Decimal():
            return _decimal_to_json(value, location, issues)
        case datetime():
            return _datetime_to_json(value, location, issues)
        case date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case _:
            issues.append(
                ValidationIssue(location, f"is a {type(value).__name__}", "give a Decimal" if isinstance(value, float) else "")
            )
            return None


def _decimal_to_json(value: Decimal, location: tuple[str | int, ...], issues: list[ValidationIssue]) -> Decimal | str:
    if not value.is_finite():
        issues.append(ValidationIssue(location, "is not a finite number", "leave the value out, or say it in words"))
    minus_nought = value.is_signed() and not value and int(value.as_tuple().exponent) >= 0
    return "-0" if minus_nought else value  # JSON readers take the number -0 for the whole number 0


def _datetime_to_json(value: datetime, location: tuple[str | int, ...], issues: list[ValidationIssue]) -> str:
    offset = value.utcoffset()
    if offset is None:
        issues.append(ValidationIssue(location, "is a time without a zone", "give an aware datetime"))
        return value.isoformat()
    whole = timedelta(minutes=offset // timedelta(minutes=1))
    return (value if offset == whole else value.astimezone(timezone(whole))).isoformat()


@cache
def _fields(kind: type[Any]) -> tuple[Field[Any], ...]:
    return fields(kind)


def _is_omitted(field: Field[Any], value: Any) -> bool:
    """None, and what is empty by default; an empty list that says something (`completes`) is written."""
    required = field.default is MISSING and field.default_factory is MISSING
    return value is None or (value == () and not required and field.default == ())

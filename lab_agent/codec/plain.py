"""Writes the domain's values as plain JSON shapes. What is None or empty is left out; nothing is rounded or guessed."""

from __future__ import annotations

import base64
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import Any

from lab_agent.codec.problems import Found, raise_found


def to_plain(value: Any) -> dict[str, Any]:
    """Give a domain dataclass as a JSON object. Raises `DataInvalidError`, naming every field that has no exact JSON form."""
    found: list[Found] = []
    tree: dict[str, Any] = _plain(value, (), found)
    if found:
        raise_found(found)
    return tree


def _plain(value: Any, place: tuple[str | int, ...], found: list[Found]) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        members = ((one, getattr(value, one.name)) for one in _fields(type(value)))
        return {one.name: _plain(item, (*place, one.name), found) for one, item in members if not _left_out(one, item)}
    if isinstance(value, tuple | list):
        return [_plain(item, (*place, index), found) for index, item in enumerate(value)]
    return _scalar(value, place, found)


def _scalar(value: Any, place: tuple[str | int, ...], found: list[Found]) -> Any:
    match value:
        case str() | bool() | int():
            return value
        case Decimal():
            return _number(value, place, found)
        case datetime():
            return _moment(value, place, found)
        case date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case _:
            found.append(Found(place, f"is a {type(value).__name__}", "give a Decimal" if isinstance(value, float) else ""))
            return None


def _number(value: Decimal, place: tuple[str | int, ...], found: list[Found]) -> Decimal | str:
    if not value.is_finite():
        found.append(Found(place, "is not a finite number", "leave the value out, or say it in words"))
    minus_nought = value.is_signed() and not value and int(value.as_tuple().exponent) >= 0
    return "-0" if minus_nought else value  # JSON readers take the number -0 for the whole number 0


def _moment(value: datetime, place: tuple[str | int, ...], found: list[Found]) -> str:
    offset = value.utcoffset()
    if offset is None:
        found.append(Found(place, "is a time without a zone", "give an aware datetime"))
        return value.isoformat()
    whole = timedelta(minutes=offset // timedelta(minutes=1))
    return (value if offset == whole else value.astimezone(timezone(whole))).isoformat()


@cache
def _fields(kind: type[Any]) -> tuple[Field[Any], ...]:
    return fields(kind)


def _left_out(one: Field[Any], item: Any) -> bool:
    """None, and what is empty by default; an empty list that says something (`completes`) is written."""
    required = one.default is MISSING and one.default_factory is MISSING
    return item is None or (item == () and not required and one.default == ())

"""One observed value as plain text fields, as the row of a table or of a CSV file has it, made into the published JSON form.

The digits stay as they are written: `1.20` is never anything but `1.20`. What is wrong is found by the codec, which reads the
outcome as it reads everybody's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, str | None]

FIELDS = (
    "observation_id", "code", "code_system", "code_text", "observation_status", "value_type", "value", "comparator", "unit",
    "low", "high", "range_text", "flag", "method", "specimen", "note", "observed_at",
)  # fmt: skip
"""The names of the fields."""
TYPES = ("quantity", "text", "code", "datetime", "time")
"""What `value_type` may say; without it a number (`<5` too) is a quantity, and all else is text."""

_LOINC = "http://loinc.org"
_AMOUNT = re.compile(r"(<=|>=|<|>)?\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)", re.ASCII)


def observation(fields: Fields) -> dict[str, Any]:
    """Give an observation as JSON; what is missing or wrong is left for the codec to find."""
    given = {name: text.strip() for name, text in fields.items() if text is not None and text.strip()}
    tree: dict[str, Any] = {
        "id": given.get("observation_id"),
        "code": {"system": given.get("code_system", _LOINC), "code": given.get("code"), "display": given.get("code_text")},
        "status": given.get("observation_status"),
        "specimen": given.get("specimen"),
        "method": {"text": given["method"]} if "method" in given else None,
        "flags": [given["flag"]] if "flag" in given else None,
        "note": given.get("note"),
        "issued": given.get("observed_at"),
        "reference_ranges": _ranges(given),
        **_value(given),
    }
    return without_nothing(tree)


def _value(given: Mapping[str, str]) -> dict[str, Any]:
    text = given.get("value")
    amount = _AMOUNT.fullmatch(text) if text else None
    match given.get("value_type", "quantity" if amount else "text"):
        case "quantity":
            comparator, number = (amount[1], amount[2]) if amount else (None, text)
            return {"value_quantity": _quantity(number, given.get("unit"), given.get("comparator") or comparator)}
        case "text":
            return {"value_string": text}
        case "code":
            return {"value_codeable_concept": {"coding": [{"code": text}], "text": given.get("note")}}
        case "datetime":
            return {"value_date_time": text}
        case "time":
            return {"value_time": text}
        case other:
            return {"value_type": other}  # no field of the form: the codec says so


def _ranges(given: Mapping[str, str]) -> list[dict[str, Any]] | None:
    bounds = {end: _quantity(given[end], given.get("unit")) for end in ("low", "high") if end in given}
    found: dict[str, Any] = {**bounds, **({"text": given["range_text"]} if "range_text" in given else {})}
    return [found] if found else None


def _quantity(number: str | None, unit: str | None, comparator: str | None = None) -> dict[str, Any]:
    return without_nothing({"value": number, "comparator": comparator, "unit": unit})


def without_nothing(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is None, in this object and in those directly in it."""
    return {key: without_nothing(item) if isinstance(item, dict) else item for key, item in tree.items() if item is not None}

"""One observed value as plain text fields (a row of a table or of a CSV file), turned into the published JSON form.

Digits stay as written: `1.20` never becomes anything but `1.20`. Mistakes are left for `load_message` to find, which reads the
result like everybody's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, str | None]

OBSERVATION_FIELDS = (
    "observation_id", "code", "code_system", "code_text", "observation_status", "value_type", "value", "comparator", "unit",
    "low", "high", "range_text", "flag", "method", "specimen", "note", "observed_at",
)  # fmt: skip
"""The names of the fields."""
VALUE_TYPES = ("quantity", "text", "code", "datetime", "time")
"""Values of `value_type`; without one, a number (`<5` too) is a quantity and everything else is text."""

_LOINC = "http://loinc.org"
_QUANTITY_PATTERN = re.compile(r"(<=|>=|<|>)?\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)", re.ASCII)


def to_observation(fields: Fields) -> dict[str, Any]:
    """Return an observation as JSON; what is missing or wrong is left for `load_message` to find."""
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
    return drop_none(tree)


def _value(fields: Mapping[str, str]) -> dict[str, Any]:
    text = fields.get("value")
    amount = _QUANTITY_PATTERN.fullmatch(text) if text else None
    match fields.get("value_type", "quantity" if amount else "text"):
        case "quantity":
            comparator, number = (amount[1], amount[2]) if amount else (None, text)
            return {"value_quantity": _quantity(number, fields.get("unit"), fields.get("comparator") or comparator)}
        case "text":
            return {"value_string": text}
        case "code":
            return {"value_codeable_concept": {"coding": [{"code": text}], "text": fields.get("note")}}
        case "datetime":
            return {"value_date_time": text}
        case "time":
            return {"value_time": text}
        case other:
            return {"value_type": other}  # an unknown field: load_message names it


def _ranges(fields: Mapping[str, str]) -> list[dict[str, Any]] | None:
    bounds = {end: _quantity(fields[end], fields.get("unit")) for end in ("low", "high") if end in fields}
    found: dict[str, Any] = {**bounds, **({"text": fields["range_text"]} if "range_text" in fields else {})}
    return [found] if found else None


def _quantity(number: str | None, unit: str | None, comparator: str | None = None) -> dict[str, Any]:
    return drop_none({"value": number, "comparator": comparator, "unit": unit})


def drop_none(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is None, in this object and in those directly in it."""
    return {key: drop_none(item) if isinstance(item, dict) else item for key, item in tree.items() if item is not None}

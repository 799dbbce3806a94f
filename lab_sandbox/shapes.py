"""Small questions about the shape of a value, asked by all the rules."""

import re
from datetime import date, datetime
from typing import Any

from lab_sandbox.index import as_list

_DATE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})", re.ASCII)


def is_text(value: Any) -> bool:
    """A string with something in it."""
    return isinstance(value, str) and bool(value.strip())


def is_date(value: Any) -> bool:
    """A calendar date `YYYY-MM-DD`."""
    if not isinstance(value, str) or not re.fullmatch(r"\d{4}-\d{2}-\d{2}", value, re.ASCII):
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def is_instant(value: Any) -> bool:
    """A date-time with offset."""
    if not isinstance(value, str) or not _DATE_TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def is_date_time(value: Any) -> bool:
    """A FHIR dateTime: a year, a month, a date, or a date-time with offset."""
    return (
        is_instant(value)
        or is_date(value)
        or (isinstance(value, str) and bool(re.fullmatch(r"[0-9]{4}(-(0[1-9]|1[0-2]))?", value)))
    )


def is_number(value: Any) -> bool:
    """A JSON number (`true` is none)."""
    return not isinstance(value, bool) and not isinstance(value, str | dict | list) and value is not None


def find_code(concept: Any, system: str) -> str | None:
    """The code of a CodeableConcept in the given system, or None."""
    for coding in as_list(concept.get("coding")) if isinstance(concept, dict) else []:
        if isinstance(coding, dict) and coding.get("system") == system and is_text(coding.get("code")):
            return str(coding["code"])
    return None


def find_identifier_value(identifiers: Any, system: str) -> str | None:
    """The value of the Identifier with the given system, or None."""
    for one in as_list(identifiers):
        if isinstance(one, dict) and one.get("system") == system and is_text(one.get("value")):
            return str(one["value"])
    return None


def reference_text(node: Any) -> str | None:
    """The `reference` of a Reference, or None."""
    text = node.get("reference") if isinstance(node, dict) else None
    return text if isinstance(text, str) else None

"""Is what the partner reads what the laboratory reported? Digit for digit, form for form.

The expectation is the laboratory system's own record of an observation (snake_case keys); the finding is the Observation on
the service (camelCase keys). Everything that was reported must be there, the same; more may be there. Documents are the
exception: their bytes lie behind an address, and are compared by whoever downloads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

from lab_sandbox.partner.plain_json import Json

_VALUE_PREFIX = "value_"
_CONTENT_FIELDS = frozenset({"content", "file"})


def find_differences(reported: Json, observation: Json) -> list[str]:
    """What of a reported observation is missing or different in the Observation; empty when all of it arrived."""
    found = [] if observation.get("status") == reported["status"] else [f"status: {observation.get('status')}"]
    found += _compare(reported["code"], _find_coding(observation, reported["code"]), "code")
    for name in reported:
        if name.startswith(_VALUE_PREFIX) or name == "method":
            found += _compare(reported[name], observation.get(_to_camel_case(name)), _to_camel_case(name))
    ranges = observation.get("referenceRange", [])
    for place, wanted in enumerate(reported.get("reference_ranges", ())):
        found += _compare(wanted, ranges[place] if place < len(ranges) else None, f"referenceRange[{place}]")
    return found


def value_fields(observation: Json) -> list[str]:
    """The value[x] fields of an Observation; exactly one is right."""
    return [name for name in observation if re.match(r"value[A-Z]", name)]


def _find_coding(observation: Json, code: Json) -> Json | None:
    codings: list[Json] = observation.get("code", {}).get("coding", [])
    return next((one for one in codings if one.get("code") == code["code"]), None)


def _compare(expected: Any, actual: Any, where: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name, part in expected.items():
            if name in _CONTENT_FIELDS:
                continue
            yield from _compare(part, actual.get(_to_camel_case(name)), f"{where}.{_to_camel_case(name)}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(actual) >= len(expected):
        for place, part in enumerate(expected):
            yield from _compare(part, actual[place], f"{where}[{place}]")
    elif not _is_equal(expected, actual):
        yield f"{where}: {actual!r} instead of {expected!r}"


def _is_equal(expected: Any, actual: Any) -> bool:
    if isinstance(expected, str) and isinstance(actual, str):
        return expected == actual or _is_same_instant(expected, actual)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, int | Decimal) and isinstance(actual, int | Decimal):
        return str(expected) == str(actual)
    return bool(expected == actual)


def _is_same_instant(expected: str, actual: str) -> bool:
    try:
        return datetime.fromisoformat(expected) == datetime.fromisoformat(actual)
    except (ValueError, TypeError):
        return False


def _to_camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)

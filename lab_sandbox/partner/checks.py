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

_VALUE = "value_"
_BYTES = frozenset({"content", "file"})


def differences(reported: Json, observation: Json) -> list[str]:
    """What of a reported observation is missing or different in the Observation; empty when all of it arrived."""
    found = [] if observation.get("status") == reported["status"] else [f"status: {observation.get('status')}"]
    found += _missing(reported["code"], _with_code(observation, reported["code"]), "code")
    for name in reported:
        if name.startswith(_VALUE) or name == "method":
            found += _missing(reported[name], observation.get(_camel(name)), _camel(name))
    ranges = observation.get("referenceRange", [])
    for place, wanted in enumerate(reported.get("reference_ranges", ())):
        found += _missing(wanted, ranges[place] if place < len(ranges) else None, f"referenceRange[{place}]")
    return found


def value_forms(observation: Json) -> list[str]:
    """The value[x] fields of an Observation; exactly one is right."""
    return [name for name in observation if re.match(r"value[A-Z]", name)]


def _with_code(observation: Json, code: Json) -> Json | None:
    codings: list[Json] = observation.get("code", {}).get("coding", [])
    return next((one for one in codings if one.get("code") == code["code"]), None)


def _missing(wanted: Any, found: Any, where: str) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for name, part in wanted.items():
            if name in _BYTES:
                continue
            yield from _missing(part, found.get(_camel(name)), f"{where}.{_camel(name)}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(found) >= len(wanted):
        for place, part in enumerate(wanted):
            yield from _missing(part, found[place], f"{where}[{place}]")
    elif not _same(wanted, found):
        yield f"{where}: {found!r} instead of {wanted!r}"


def _same(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, str) and isinstance(found, str):
        return wanted == found or _same_moment(wanted, found)
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, int | Decimal) and isinstance(found, int | Decimal):
        return str(wanted) == str(found)
    return bool(wanted == found)


def _same_moment(wanted: str, found: str) -> bool:
    try:
        return datetime.fromisoformat(wanted) == datetime.fromisoformat(found)
    except (ValueError, TypeError):
        return False


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)

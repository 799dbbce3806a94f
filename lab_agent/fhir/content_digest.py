"""Stable identifiers and digests of uploads: the same report has the same identifiers for ever, and a change shows.

Identifiers are ASCII and need no escaping in an address or in a search: what is not a letter, a digit or `-` becomes `_` and its
bytes in hexadecimal, so that different names never collide; `.` only divides the parts.

Digests are of what a resource means, not of how it is written (`content_meaning`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from lab_agent.fhir.content_meaning import answer_displays, clinical_meaning, content_meaning
from lab_agent.shared import exact_json

_MAX_LENGTH = 120
_UNSAFE_CHARACTER = re.compile(r"[^A-Za-z0-9\-]")
_STATUS_AND_ISSUED = frozenset({"status", "issued"})
_DISPLAY_LENGTH = 16
_NON_CONTENT_FIELDS = frozenset({"id", "meta"})


class Digest(NamedTuple):
    """A digest, taken apart. `values` and `content` are empty where it is not known what the service has."""

    status: str
    values: str = ""
    """Of what makes an Observation an amended one (`clinical_meaning`), and what a coded answer is called."""
    content: str = ""
    """Of all that a reader may see."""

    def __str__(self) -> str:
        return ":".join(self)


def stable_identifier(first: str, *rest: str) -> str:
    """Give the identifier value of these parts, `first.second.third`; all but the first are hashed where it would be too long."""
    value = ".".join(_escape(part) for part in (first, *rest))
    if len(value) <= _MAX_LENGTH:
        return value
    return f"{_escape(first)[:40]}.{hashlib.sha256(value.encode()).hexdigest()}"


def content_digest(body: Mapping[str, Any], base_url: str) -> str:
    """Give `<status>:<hash of the values>:<hash of the content>` of a resource on the service at `base_url`.

    The hashes leave out what is not content: id and meta, the status, and of an Observation the time at which it was issued, so
    that a report that is issued again does not amend the values that stayed.
    """
    left = _NON_CONTENT_FIELDS | (_STATUS_AND_ISSUED if body.get("resourceType") == "Observation" else {"status"})
    content = {key: value for key, value in body.items() if key not in left}
    displays = [_hash(display)[:_DISPLAY_LENGTH] if display else "" for _, display in answer_displays(body)]
    values = ".".join([_hash(clinical_meaning(body, base_url)), *(displays if any(displays) else ())])
    return str(Digest(str(body.get("status") or ""), values, _hash(content_meaning(content, base_url))))


def split_digest(text: str) -> Digest:
    """Take a digest apart."""
    return Digest(*[*text.split(":"), "", "", ""][:3])


def are_values_same(one: Digest, other: Digest) -> bool:
    """Whether two digests are of the same values; a display counts only where both have one."""
    values, *called = one.values.split(".")
    other_values, *other_called = other.values.split(".")
    pairs = zip(called, other_called, strict=False)
    return values == other_values and all(not first or not second or first == second for first, second in pairs)


def _hash(meaning: Any) -> str:
    return hashlib.sha256(exact_json.dumps(meaning, sort_keys=True)).hexdigest()


def _escape(part: str) -> str:
    return (
        _UNSAFE_CHARACTER.sub(lambda match: "".join(f"_{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass")), part)
        or "_"
    )

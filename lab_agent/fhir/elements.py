"""Elements of a resource in the types that FHIR gives them, whatever types they came in. Pure.

What can mean only one thing is taken for that: an object where a list belongs is a list of one, a list of one where one belongs
is that one, a number in place of a word is its digits, a text in place of a Reference is its address. Anything else is None, or
left out; whoever asks then tells it (law 11). Nothing is changed in what is sent back (law 4).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

Json = Mapping[str, Any]


def items_of(value: Any) -> list[Any]:
    """The items of a list; a single value is a list of one, and null an empty one."""
    if isinstance(value, list | tuple):
        return list(value)
    return [] if value is None else [value]


def only_one(value: Any) -> Any:
    """The item of a list of one; any other value as it is."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def objects_of(value: Any) -> list[Json]:
    """The objects of a list."""
    return [each for each in items_of(value) if isinstance(each, Mapping)]


def object_of(value: Any) -> Json | None:
    """A single object."""
    found = only_one(value)
    return found if isinstance(found, Mapping) else None


def references_of(value: Any) -> list[Json]:
    """The References of a list."""
    return [
        each if isinstance(each, Mapping) else {"reference": each} for each in items_of(value) if isinstance(each, str | Mapping)
    ]


def text_of(value: Any) -> str | None:
    """A text without the blanks around it; an empty one counts as missing."""
    found = only_one(value)
    return (found.strip() or None) if isinstance(found, str) else None


def word_of(value: Any) -> str | None:
    """A text, or a whole number as its digits: an id, a version, a name."""
    found = only_one(value)
    return str(found) if isinstance(found, int) and not isinstance(found, bool) else text_of(found)


def last_updated(resource: Json) -> str | None:
    """When a resource was changed last, by the service's clock, as it says it."""
    return text_of((object_of(resource.get("meta")) or {}).get("lastUpdated"))


def code_of(value: Any) -> str | None:
    """A code in small letters, as those of FHIR's own lists are."""
    found = text_of(value)
    return None if found is None else found.lower()


def codes_of(concept: Any) -> frozenset[str]:
    """The codes of a CodeableConcept as they are written, whatever their systems."""
    codings = objects_of((object_of(concept) or {}).get("coding"))
    return frozenset(code for each in codings if (code := word_of(each.get("code"))) is not None)


def has_code(concept: Any, codes: Collection[str]) -> bool:
    """Whether a CodeableConcept has one of these codes, in capitals or not."""
    return not {each.lower() for each in codes_of(concept)}.isdisjoint(each.lower() for each in codes)


def number_of(value: Any) -> int | None:
    """A count: a whole number, also as `5.0` or as a text."""
    found = only_one(value)
    if isinstance(found, bool):
        return None
    if isinstance(found, Decimal):
        return int(found) if found.is_finite() and abs(found) < 10**18 and found == found.to_integral_value() else None
    word = word_of(found)
    return int(word) if word is not None and word.isascii() and word.isdigit() and len(word) < 19 else None


def shaped_like(found: Any, ours: Any) -> Any:
    """An element as the service gives it, in the types in which we have sent it: lists of one and single values."""
    if isinstance(ours, list):
        listed = items_of(found)
        return [shaped_like(each, one) for each, one in zip(listed, ours, strict=False)] + listed[len(ours) :]
    found = only_one(found)
    if isinstance(ours, Mapping) and isinstance(found, Mapping):
        return {key: shaped_like(each, ours[key]) if key in ours else each for key, each in found.items()}
    return found

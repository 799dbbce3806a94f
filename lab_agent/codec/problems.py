"""What is wrong with a piece of data, told in the words of the person who has to mend it.

A sentence names the field and never repeats the value: it ends up beside a failed file, on a page and in a log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lab_agent.domain.quoting import quoted
from lab_agent.errors import DataInvalidError, Problem

TAG = "="
"""Marks a part of a pydantic location that names the branch of a union and no place in the data."""

_SENTENCES = {
    "missing": ("is missing", "give it"),
    "string_type": ("is not text", "write it in quotes"),
    "bool_type": ("is neither true nor false", "write true or false, without quotes"),
    "int_type": ("is not a whole number", "write a whole number, without quotes"),
    "tuple_type": ("is not a list", "write a list in square brackets, even for one"),
    "model_type": ("is not an object", "write an object in braces"),
    "union_tag_not_found": ("is not a value that an answer can have", "write text, a number, true, false or a coding"),
}


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that is wrong: its place (keys and list positions), what, and the mend."""

    place: tuple[str | int, ...]
    what: str
    mend: str = ""


def path(place: Iterable[str | int]) -> str:
    """Write a place as `observations[2].value_quantity.value`; the whole is `document`."""
    written = ""
    for part in place:
        if isinstance(part, int):
            written += f"[{part}]"
        elif not part.startswith(TAG):
            written += f".{quoted(part)}" if written else quoted(part)
    return written or "document"


def raise_found(found: Iterable[Found]) -> NoReturn:
    """Raise `DataInvalidError` with all that was found, each thing once."""
    problems = dict.fromkeys(Problem(path(one.place), one.what, one.mend) for one in found)
    raise DataInvalidError(tuple(problems))


def found_by_pydantic(error: ValidationError, names: Collection[str]) -> list[Found]:
    """Translate a validation error; `names` are the field names that an unknown key may have meant."""
    return [_translate(detail, names) for detail in error.errors(include_url=False, include_input=False)]


def did_you_mean(given: str, known: Collection[str]) -> str:
    """Say what a misspelt name may have meant; empty where nothing is near."""
    near = get_close_matches(given, sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else ""


def _translate(detail: ErrorDetails, names: Collection[str]) -> Found:
    kind, place, context = detail["type"], detail["loc"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return Found(place, "is no field here", did_you_mean(str(place[-1]), names) or "leave it out")
    if kind == "enum":
        return Found(place, "is not a word that is known here", f"write {context['expected']}")
    what, mend = _SENTENCES.get(kind, (detail["msg"], str(context.get("mend", ""))))
    return Found(place, what, mend)

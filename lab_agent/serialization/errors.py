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

from lab_agent.domain.text import shorten
from lab_agent.errors import DataInvalidError, Problem

UNION_BRANCH = "="
"""Marks a part of a pydantic location that names the branch of a union and no place in the data."""

_MESSAGES = {
    "missing": ("is missing", "give it"),
    "string_type": ("is not text", "write it in quotes"),
    "bool_type": ("is neither true nor false", "write true or false, without quotes"),
    "int_type": ("is not a whole number", "write a whole number, without quotes"),
    "tuple_type": ("is not a list", "write a list in square brackets, even for one"),
    "dataclass_type": ("is not an object", "write an object in braces"),
    "union_tag_not_found": ("is not a value that an answer can have", "write text, a number, true, false or a coding"),
}


@dataclass(frozen=True, slots=True)
class ValidationIssue:
    """One thing that is wrong: its place (keys and list positions), what, and the mend."""

    location: tuple[str | int, ...]
    what: str
    hint: str = ""


def format_location(location: Iterable[str | int]) -> str:
    """Write a place as `observations[2].value_quantity.value`; the whole is `document`."""
    written = ""
    for part in location:
        if isinstance(part, int):
            written += f"[{part}]"
        elif not part.startswith(UNION_BRANCH):
            written += f".{shorten(part)}" if written else shorten(part)
    return written or "document"


def raise_issues(issues: Iterable[ValidationIssue]) -> NoReturn:
    """Raise `DataInvalidError` with all that was found, each thing once."""
    problems = dict.fromkeys(Problem(format_location(one.location), one.what, one.hint) for one in issues)
    raise DataInvalidError(tuple(problems))


def issues_from_pydantic(error: ValidationError, field_names: Collection[str]) -> list[ValidationIssue]:
    """Translate a validation error; `names` are the field names that an unknown key may have meant."""
    return [_to_issue(detail, field_names) for detail in error.errors(include_url=False, include_input=False)]


def did_you_mean(given: str, known: Collection[str]) -> str:
    """Say what a misspelt name may have meant; empty where nothing is near."""
    near = get_close_matches(given, sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else ""


def _to_issue(detail: ErrorDetails, field_names: Collection[str]) -> ValidationIssue:
    kind, place, context = detail["type"], detail["loc"], detail.get("ctx", {})
    if kind in {"extra_forbidden", "unexpected_keyword_argument"}:
        return ValidationIssue(place, "is no field here", did_you_mean(str(place[-1]), field_names) or "leave it out")
    if kind == "enum":
        return ValidationIssue(place, "is not a word that is known here", f"write {context['expected']}")
    what, mend = _MESSAGES.get(kind, (detail["msg"], str(context.get("mend", ""))))
    return ValidationIssue(place, what, mend)

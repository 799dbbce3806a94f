"""What is wrong with a piece of data, in the words of the person who has to correct it; pydantic's errors in the same words.

A sentence names the field and never repeats the value: it ends up beside a failed file, on a page and in a log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lab_agent.shared.errors import DataInvalidError, Problem, did_you_mean
from lab_agent.shared.text import shorten

UNION_BRANCH = "="
"""Marks a part of a pydantic location that names the branch of a union and no place in the data."""

_TEXT = ("is not text", "write it in quotes")
_BOOLEAN = ("is neither true nor false", "write true or false, without quotes")
_INTEGER = ("is not a whole number", "write a whole number, without quotes")
_NUMBER = ("is not a number", "write a number, without quotes")
_LIST = ("is not a list", "write a list in square brackets, even for one value")
_OBJECT = ("is not an object", "write an object in braces")
_TABLE = ("is not a table", "write its keys below a heading in square brackets")
_MESSAGES: Mapping[str, tuple[str, str]] = {
    "missing": ("is missing", "add it"),
    "string_type": _TEXT,
    "bool_type": _BOOLEAN,
    "bool_parsing": _BOOLEAN,
    "int_type": _INTEGER,
    "int_parsing": _INTEGER,
    "int_from_float": _INTEGER,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "dataclass_type": _OBJECT,
    "dict_type": _TABLE,
    "model_type": _TABLE,
    "model_attributes_type": _TABLE,
    "string_pattern_mismatch": ("does not have the required form", ""),
    "union_tag_not_found": ("is not a possible answer", "write text, a number, true, false or a coding"),
}


@dataclass(frozen=True, slots=True)
class ValidationIssue:
    """One thing that is wrong: its place (keys and list positions), what it is, and how to correct it."""

    location: tuple[str | int, ...]
    what: str
    hint: str = ""

    def to_problem(self) -> Problem:
        """Give it with its place in one piece."""
        return Problem(format_location(self.location), self.what, self.hint)


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
    raise DataInvalidError(tuple(dict.fromkeys(one.to_problem() for one in issues)))


def issues_from_pydantic(error: ValidationError, field_names: Collection[str]) -> list[ValidationIssue]:
    """Translate a validation error; `field_names` are the names that an unknown field may have meant."""
    return [issue_from_detail(detail, field_names) for detail in error.errors(include_url=False)]


def issue_from_detail(detail: ErrorDetails, field_names: Collection[str]) -> ValidationIssue:
    """Translate one of pydantic's errors."""
    location, context = detail["loc"], detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            return ValidationIssue(location, "unknown field", did_you_mean(str(location[-1]), field_names) or "remove it")
        case "enum" | "literal_error":
            expected = str(context["expected"])
            choices = [word.strip(" '") for word in expected.replace(" or ", ", ").split(",")]
            given = detail["input"] if isinstance(detail["input"], str) else ""
            return ValidationIssue(location, "unknown value", did_you_mean(given, choices) or f"write {expected}")
    sentence = detail["msg"].removeprefix("Value error, ")
    what, hint = _MESSAGES.get(detail["type"], (sentence[:1].lower() + sentence[1:], str(context.get("hint", ""))))
    return ValidationIssue(location, what, hint)

"""Validation errors of the models in our own words: the dotted key, what is wrong, and the mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from lab_agent.errors import Problem
from lab_agent.settings.introspection import iter_keys, iter_tables, resolve_location

_MESSAGES = {"string_pattern_mismatch": "does not have the form that it must have"}
"""What we say where the library would show a regular expression, or other words that only a programmer reads."""


def to_problems(error: ValidationError, root: type[BaseModel], origins: Mapping[str, str]) -> tuple[Problem, ...]:
    """Give every error as a `Problem`, in the order of the settings file; values are never repeated."""
    problems = (_to_problem(one, root, origins) for one in error.errors(include_url=False))
    return tuple(dict.fromkeys(problems))


def _to_problem(error: ErrorDetails, root: type[BaseModel], origins: Mapping[str, str]) -> Problem:
    location = error["loc"]
    where = ".".join(str(part) for part in location) or "settings"
    origin = origins.get(where.lower())
    shown = f"{where} ({origin})" if origin else where
    if error["type"] == "extra_forbidden":
        return Problem(shown, "there is no such key", _suggest_key(location, root))
    if error["type"] == "missing":
        return Problem(shown, "is missing", _describe(location, root))
    what = _MESSAGES.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    mend = "" if error["type"] == "value_error" else _suggest_choice(error) or _describe(location, root)
    return Problem(shown, what[:1].lower() + what[1:], mend)


def _suggest_key(location: Sequence[str | int], root: type[BaseModel]) -> str:
    """What an unknown key was probably meant to be: the same name in another table, else a like one in this table."""
    name = str(location[-1])
    elsewhere = [key.path for key in iter_keys(root) if key.name == name]
    elsewhere += [path for path, _ in iter_tables(root) if path.endswith(f".{name}")]
    names = _sibling_keys(location, root)
    if meant := next(iter(elsewhere), None) or closest_match(name, names):
        return f"did you mean {meant}?"
    return f"the keys here are {', '.join(sorted(names))}" if names else "remove it"


def _sibling_keys(location: Sequence[str | int], root: type[BaseModel]) -> list[str]:
    table = resolve_location(root, location[:-1])
    return list(table.model_fields) if isinstance(table, type) else []


def _suggest_choice(error: ErrorDetails) -> str:
    """For a word that is not among the allowed ones, the nearest allowed one."""
    context: dict[str, Any] = error.get("ctx") or {}
    if error["type"] != "literal_error":
        return ""
    words = [word.strip(" '") for word in str(context.get("expected", "")).replace(" or ", ", ").split(",")]
    near = closest_match(str(error["input"]), words)
    return f"did you mean {near}?" if near else ""


def _describe(location: Sequence[str | int], root: type[BaseModel]) -> str:
    found = resolve_location(root, location)
    if found is None and (near := closest_match(str(location[-1]), _sibling_keys(location, root))):
        return f"did you mean {near}?"
    text = found.description if isinstance(found, FieldInfo) else found.__doc__ if found else None
    return " ".join((text or "").split())


def closest_match(word: str, words: Iterable[str]) -> str | None:
    """The word that was probably meant."""
    near = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return near[0] if near else None

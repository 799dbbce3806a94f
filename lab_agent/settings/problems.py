"""Validation errors of the models in our own words: the dotted key, what is wrong, and the mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from lab_agent.errors import Problem
from lab_agent.settings.keys import find, tables, walk

_WORDS = {"string_pattern_mismatch": "does not have the form that it must have"}
"""What we say where the library would show a regular expression, or other words that only a programmer reads."""


def problems_of(error: ValidationError, root: type[BaseModel], origins: Mapping[str, str]) -> tuple[Problem, ...]:
    """Give every error as a `Problem`, in the order of the settings file; values are never repeated."""
    problems = (_problem(one, root, origins) for one in error.errors(include_url=False))
    return tuple(dict.fromkeys(problems))


def _problem(error: ErrorDetails, root: type[BaseModel], origins: Mapping[str, str]) -> Problem:
    location = error["loc"]
    where = ".".join(str(part) for part in location) or "settings"
    origin = origins.get(where.lower())
    shown = f"{where} ({origin})" if origin else where
    if error["type"] == "extra_forbidden":
        return Problem(shown, "there is no such key", _meant(location, root))
    if error["type"] == "missing":
        return Problem(shown, "is missing", _description(location, root))
    what = _WORDS.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    mend = "" if error["type"] == "value_error" else _choice(error) or _description(location, root)
    return Problem(shown, what[:1].lower() + what[1:], mend)


def _meant(location: Sequence[str | int], root: type[BaseModel]) -> str:
    """What an unknown key was probably meant to be: the same name in another table, else a like one in this table."""
    name = str(location[-1])
    elsewhere = [key.path for key in walk(root) if key.name == name]
    elsewhere += [path for path, _ in tables(root) if path.endswith(f".{name}")]
    names = _names_beside(location, root)
    if meant := next(iter(elsewhere), None) or nearest(name, names):
        return f"did you mean {meant}?"
    return f"the keys here are {', '.join(sorted(names))}" if names else "remove it"


def _names_beside(location: Sequence[str | int], root: type[BaseModel]) -> list[str]:
    table = find(root, location[:-1])
    return list(table.model_fields) if isinstance(table, type) else []


def _choice(error: ErrorDetails) -> str:
    """For a word that is not among the allowed ones, the nearest allowed one."""
    context: dict[str, Any] = error.get("ctx") or {}
    if error["type"] != "literal_error":
        return ""
    words = [word.strip(" '") for word in str(context.get("expected", "")).replace(" or ", ", ").split(",")]
    near = nearest(str(error["input"]), words)
    return f"did you mean {near}?" if near else ""


def _description(location: Sequence[str | int], root: type[BaseModel]) -> str:
    found = find(root, location)
    if found is None and (near := nearest(str(location[-1]), _names_beside(location, root))):
        return f"did you mean {near}?"
    text = found.description if isinstance(found, FieldInfo) else found.__doc__ if found else None
    return " ".join((text or "").split())


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The word that was probably meant."""
    near = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return near[0] if near else None

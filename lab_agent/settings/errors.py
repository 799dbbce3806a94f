"""Pydantic's errors about settings in our own words: the dotted key, where its value came from, what is wrong, and a hint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from lab_agent.settings.introspection import iter_keys, iter_tables, resolve_location
from lab_agent.shared.errors import Problem, did_you_mean
from lab_agent.shared.validation_errors import issue_from_detail


def to_problems(
    error: ValidationError, root: type[BaseModel], origins: Mapping[str, str] | None = None, *, prefix: str = ""
) -> tuple[Problem, ...]:
    """Give every error as a `Problem`, in the order of the settings file; values are never repeated.

    `origins` says for a dotted key which variable or credential set it; `prefix` is the path of the table that `root` reads.
    """
    details = error.errors(include_url=False)
    return tuple(dict.fromkeys(_to_problem(detail, root, origins or {}, prefix) for detail in details))


def _to_problem(detail: ErrorDetails, root: type[BaseModel], origins: Mapping[str, str], prefix: str) -> Problem:
    location = detail["loc"]
    where = ".".join(str(part) for part in (prefix, *location) if part not in {"", "[key]"}) or "settings"
    if origin := origins.get(where.lower()):
        where += f" ({origin})"
    issue = issue_from_detail(detail, ())
    match detail["type"]:
        case "extra_forbidden":
            return Problem(where, "unknown key", _suggest_key(location, root))
        case "value_error" | "literal_error":
            return Problem(where, issue.what, issue.hint)
        case _:
            return Problem(where, issue.what, _describe(location, root) or issue.hint)


def _suggest_key(location: Sequence[str | int], root: type[BaseModel]) -> str:
    """What an unknown key was probably meant to be: the same name in another table, else a similar one in this table."""
    name = str(location[-1])
    elsewhere = [key.path for key in iter_keys(root) if key.name == name]
    elsewhere += [path for path, _ in iter_tables(root) if path.endswith(f".{name}")]
    names = _sibling_keys(location, root)
    if elsewhere:
        return f"did you mean {elsewhere[0]!r}?"
    return did_you_mean(name, names) or (f"the keys here are {', '.join(sorted(names))}" if names else "remove it")


def _describe(location: Sequence[str | int], root: type[BaseModel]) -> str:
    """The description of the key, from the docstring under it."""
    found = resolve_location(root, location)
    if found is None:
        return did_you_mean(str(location[-1]), _sibling_keys(location, root)) if location else ""
    text = found.description if isinstance(found, FieldInfo) else found.__doc__
    return " ".join((text or "").split())


def _sibling_keys(location: Sequence[str | int], root: type[BaseModel]) -> list[str]:
    table = resolve_location(root, location[:-1])
    return list(table.model_fields) if isinstance(table, type) else []

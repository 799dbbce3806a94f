"""What the records and codes of a group of modules have in common, without a list of them."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from tests.harness.decisions import GROUPS

_NOTHING: dict[str, Any] = {"tuple": (), "frozenset": frozenset(), "Mapping": {}, "bool": False, "str": "", "int": 0}


def classes_of(group: str) -> Iterator[type[Any]]:
    """The classes that the modules of a group define."""
    for name in GROUPS[group]:
        members = vars(importlib.import_module(name)).values()
        yield from (each for each in members if isinstance(each, type) and each.__module__ == name)


def other_defaults(group: str) -> dict[str, Any]:
    """The defaults of records that are something: neither None where the type allows it, nor else what is empty of the type."""
    found = {}
    for record in classes_of(group):
        for field in dataclasses.fields(record) if dataclasses.is_dataclass(record) else ():
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            kind = str(field.type)
            nothing = None if kind.endswith("| None") else _NOTHING.get(re.split(r"\W", kind)[0], dataclasses.MISSING)
            if default is not dataclasses.MISSING and (default, type(default)) != (nothing, type(nothing)):
                found[f"{record.__name__}.{field.name}"] = default
    return found


def misnamed_codes(group: str) -> list[StrEnum]:
    """The members of enumerations that are not named as their value; values are stored, so a renamed one needs a migration."""
    codes = (each for each in classes_of(group) if issubclass(each, StrEnum))
    return [each for members in codes for each in members if each.name.lower() != each.value.replace(" ", "_")]

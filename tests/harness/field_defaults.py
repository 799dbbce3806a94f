"""What the records and codes of a package have in common, without a list of them."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

_NOTHING: dict[str, Any] = {"tuple": (), "frozenset": frozenset(), "Mapping": {}, "bool": False, "str": "", "int": 0}


def classes_of(package: str) -> Iterator[type[Any]]:
    """The classes that the modules of a package define, without those of packages within it."""
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if not found.ispkg:
            members = vars(importlib.import_module(found.name)).values()
            yield from (each for each in members if isinstance(each, type) and each.__module__ == found.name)


def other_defaults(package: str) -> dict[str, Any]:
    """The defaults of records that are something: neither None where the type allows it, nor else what is empty of the type."""
    found = {}
    for record in classes_of(package):
        for field in dataclasses.fields(record) if dataclasses.is_dataclass(record) else ():
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            kind = str(field.type)
            nothing = None if kind.endswith("| None") else _NOTHING.get(re.split(r"\W", kind)[0], dataclasses.MISSING)
            if default is not dataclasses.MISSING and (default, type(default)) != (nothing, type(nothing)):
                found[f"{record.__name__}.{field.name}"] = default
    return found


def misnamed_codes(package: str) -> list[StrEnum]:
    """The members of enumerations that are not named as their value; values are stored, so a renamed one needs a migration."""
    codes = (each for each in classes_of(package) if issubclass(each, StrEnum))
    return [each for members in codes for each in members if each.name.lower() != each.value.replace(" ", "_")]

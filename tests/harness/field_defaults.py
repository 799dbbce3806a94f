"""What a record's field is where nobody gives it: nothing, of a kind that its type tells."""

from __future__ import annotations

import dataclasses
import re
from types import ModuleType
from typing import Any

_NOTHING: dict[str, Any] = {"tuple": (), "frozenset": frozenset(), "Mapping": {}, "bool": False, "str": "", "int": 0}


def records_of(*modules: ModuleType) -> list[type[Any]]:
    """The dataclasses that the modules define."""
    return [
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and dataclasses.is_dataclass(each) and each.__module__ == module.__name__
    ]


def other_defaults(record: type[Any]) -> dict[str, Any]:
    """The defaults that are something: neither None where the type allows it, nor else what is empty of the type."""
    found = {}
    for field in dataclasses.fields(record):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        kind = str(field.type)
        nothing = None if kind.endswith("| None") else _NOTHING.get(re.split(r"\W", kind)[0], dataclasses.MISSING)
        if default is not dataclasses.MISSING and (default, type(default)) != (nothing, type(nothing)):
            found[field.name] = default
    return found

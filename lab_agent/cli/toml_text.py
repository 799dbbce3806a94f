"""Writing TOML: tables of text, numbers, truth values and lists of text, which is all that a settings file of ours needs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def table(path: Sequence[str], values: Mapping[str, Any], *, repeated: bool = False) -> str:
    """One table with its keys; those without a value are left out."""
    name = ".".join(_key(part) for part in path)
    lines = [f"[[{name}]]" if repeated else f"[{name}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in values.items() if value is not None]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    """A basic string of TOML is written as JSON writes it, except for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

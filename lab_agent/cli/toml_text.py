"""Writing TOML: tables of text, numbers, truth values and lists of text, which is all that a settings file of ours needs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_table(path: Sequence[str], values: Mapping[str, Any], *, repeated: bool = False) -> str:
    """One table with its keys; those without a value are left out."""
    name = ".".join(_toml_key(part) for part in path)
    lines = [f"[[{name}]]" if repeated else f"[{name}]"]
    lines += [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in values.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml_value(name)


def _toml_value(value: Any) -> str:
    """A basic string of TOML is written as JSON writes it, except for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

"""Changes single values in a TOML file as text, so that its comments and order stay."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

TomlValue = str | bool | int | float


def set_values(file: Path, table: str, values: Mapping[str, TomlValue]) -> None:
    """Sets values in one table of the file (`""`: above the first table), which is added if there is none."""
    text = file.read_text(encoding="utf-8")
    for key, value in values.items():
        text = _with_value(text, table, key, json.dumps(value, ensure_ascii=False))
    file.write_text(text, encoding="utf-8")


def _with_value(text: str, table: str, key: str, value: str) -> str:
    lines = text.splitlines()
    if table and f"[{table}]" not in lines:
        return f"{text.rstrip()}\n\n[{table}]\n{key} = {value}\n"
    start = lines.index(f"[{table}]") + 1 if table else 0
    end = next((number for number in range(start, len(lines)) if lines[number].startswith("[")), len(lines))
    there = [number for number in range(start, end) if re.match(rf"{re.escape(key)}\s*=", lines[number])]
    position = there[0] if there else start
    lines[position : position + len(there)] = [f"{key} = {value}"]
    return "\n".join(lines) + "\n"

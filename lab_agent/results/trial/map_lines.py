"""Adds lines to a TOML file of a person: its comments, its order and everything else stay as they are.

The file is edited as text, and then read: if it does not say exactly what it said before and the new lines, nothing is written.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab_agent.settings.sources import deep_merge
from lab_agent.shared.errors import LabAgentError

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
_HEADER = re.compile(r"\s*\[[^\[].*\]\s*(?:#.*)?\Z")


class TomlEditError(LabAgentError):
    """The lines cannot be added by themselves."""


@dataclass(frozen=True, slots=True)
class TomlLine:
    """`key = value` in a table; `value` as TOML writes it."""

    table: tuple[str, ...]
    key: str
    value: str

    def __str__(self) -> str:
        """Give the line."""
        return f"{toml_key(self.key)} = {self.value}"

    @property
    def header(self) -> str:
        """The line that begins its table."""
        return f"[{'.'.join(map(toml_key, self.table))}]"


def toml_key(name: str) -> str:
    """A key as TOML writes it."""
    return name if _BARE_KEY.match(name) else json.dumps(name, ensure_ascii=False)


def toml_value(text: str) -> str:
    """A value as TOML writes it: as it stands if it is one, else as a text."""
    try:
        tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return json.dumps(text, ensure_ascii=False)
    return text


def split_table(name: str) -> tuple[str, ...]:
    """The names in a dotted table name; quoted ones may hold dots."""
    found: list[str] = []
    node: Any = tomllib.loads(f"[{name}]")
    while node:
        found.append(next(iter(node)))
        node = node[found[-1]]
    return tuple(found)


def paste_lines(lines: Iterable[TomlLine]) -> list[str]:
    """The lines under their tables, to paste into a file."""
    shown: list[str] = []
    table: tuple[str, ...] | None = None
    for line in sorted(lines, key=lambda each: each.table):
        if line.table != table:
            shown.append(line.header)
            table = line.table
        shown.append(str(line))
    return shown


def add_lines(text: str, lines: Sequence[TomlLine]) -> str:
    """The text with the lines in their tables; a key that has a value in one line gets the new one. Raises `TomlEditError`."""
    mark, text = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
    try:
        wanted: Mapping[str, Any] = tomllib.loads(text)
        edited = text
        for line in lines:
            wanted = deep_merge(wanted, _as_tree(line))
            edited = _add_line(edited, line)
        same = tomllib.loads(edited) == wanted
    except tomllib.TOMLDecodeError as exc:
        raise TomlEditError(f"the file cannot be edited as text ({exc}): add the lines by hand") from exc
    if not same:
        raise TomlEditError("the file has these tables in a form that is not edited here: add the lines by hand")
    return mark + edited


def _as_tree(line: TomlLine) -> dict[str, Any]:
    tree: dict[str, Any] = {line.key: tomllib.loads(f"value = {line.value}")["value"]}
    for name in reversed(line.table):
        tree = {name: tree}
    return tree


def _add_line(text: str, line: TomlLine) -> str:
    end = "\r\n" if "\r\n" in text else "\n"
    rows = text.splitlines()
    headers = [number for number, row in enumerate(rows) if _HEADER.match(row) and _table_of(row) is not None]
    start = next((number for number in headers if _table_of(rows[number]) == line.table), None)
    if start is None:
        gap = [""] if rows and rows[-1].strip() else []
        rows += [*gap, line.header, str(line)]
    else:
        stop = next((number for number in headers if number > start), len(rows))
        _put_into(rows, start, stop, line)
    return end.join(rows) + end


def _put_into(rows: list[str], start: int, stop: int, line: TomlLine) -> None:
    """Put a line into the table that begins at `start`: in the place of its key, else behind its last key."""
    for number in range(start + 1, stop):
        if _is_key(rows[number], line.key):
            rows[number] = f"{line}{_comment_of(rows[number])}"
            return
    last = max(number for number in range(start, stop) if number == start or _is_content(rows[number]))
    rows.insert(last + 1, str(line))


def _comment_of(row: str) -> str:
    """The comment behind a value, with the blanks before it; empty for none. A `#` within a text is no comment."""
    for found in re.finditer(r"\s*#", row):
        try:
            tomllib.loads(row[: found.start()])
        except tomllib.TOMLDecodeError:
            continue
        return row[found.start() :]
    return ""


def _is_key(row: str, key: str) -> bool:
    name, equals, _ = row.partition("=")
    return bool(equals) and name.strip() in {key, toml_key(key), json.dumps(key), f"'{key}'"}


def _is_content(row: str) -> bool:
    return bool(row.strip()) and not row.lstrip().startswith("#")


def _table_of(row: str) -> tuple[str, ...] | None:
    """The table whose header a row is; None if it is something else, such as a row of an array."""
    try:
        tree: Any = tomllib.loads(row)
    except tomllib.TOMLDecodeError:
        return None
    found: list[str] = []
    while tree:
        found.append(next(iter(tree)))
        tree = tree[found[-1]]
        if not isinstance(tree, dict):
            return None
    return tuple(found)

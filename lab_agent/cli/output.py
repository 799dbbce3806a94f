"""Prints tables for people and JSON for programs. When piped, lines are neither wrapped nor coloured.

Much of what is printed is a partner's or a laboratory's text; what could steer a terminal is escaped here.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions
from rich.table import Table
from rich.text import Text

from lab_agent.cli.columns import GAP, ListColumns, lay_out
from lab_agent.shared import exact_json
from lab_agent.shared.systemd_units import with_typed_commands
from lab_agent.shared.text import escape_unprintable
from lab_agent.shared.values import to_local
from lab_agent.store.read_models import Page

_PIPE_WIDTH = 1_000
Row = Mapping[str, Any]


def console(*, stderr: bool = False) -> Console:
    """The terminal, or when piped a page wide enough that nothing wraps."""
    terminal = Console(stderr=stderr, markup=False, highlight=False)
    return terminal if terminal.is_terminal else Console(stderr=stderr, markup=False, highlight=False, width=_PIPE_WIDTH)


def print_line(text: str) -> None:
    """Print a line on standard output, its commands as they are typed on this machine."""
    console().print(escape_unprintable(with_typed_commands(text)), soft_wrap=True)


def print_error(text: str) -> None:
    """Print a line on standard error, its commands as they are typed on this machine."""
    console(stderr=True).print(escape_unprintable(with_typed_commands(text)), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print JSON."""
    print_raw(json.dumps(to_plain(value), indent=2, ensure_ascii=False))


def print_exact_json(value: Any) -> None:
    """Print JSON whose numbers keep their digits."""
    print_raw(msgspec.json.format(exact_json.dumps(value), indent=2).decode())


def print_raw(text: str) -> None:
    """Print text without wrapping or colours, on standard output."""
    _write(escape_unprintable(text))


def _write(text: str) -> None:
    console().file.write(f"{text}\n")


def print_list(
    rows: Sequence[Row],
    *,
    as_json: bool,
    empty_text: str,
    columns: ListColumns | None = None,
) -> None:
    """Print a list: a JSON array whose keys are the names of the columns, a table, or `empty_text`.

    At a terminal the least important of `columns` are left out until the rest fit, which is said on standard error.
    """
    if as_json:
        print_json(rows)
    elif rows:
        _print_table([{name: escape_unprintable(format_cell(value)) for name, value in row.items()} for row in rows], columns)
    else:
        print_line(empty_text)


def _print_table(rows: Sequence[Mapping[str, str]], columns: ListColumns | None) -> None:
    page = console()
    natural = {name: max(cell_len(name), *(cell_len(row[name]) for row in rows)) for name in rows[0]}
    layout = lay_out(columns, natural, page.width if page.is_terminal else None)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for name, width in layout.widths.items():
        table.add_column(name.replace("_", " "), overflow="fold", width=width, no_wrap=width >= natural[name])
    for row in rows:
        table.add_row(*(Text(row[name]) for name in layout.widths))
    page.size = ConsoleDimensions(max(page.width, sum(layout.widths.values()) + GAP * len(layout.widths)), page.height)
    with page.capture() as printed:
        page.print(table)
    _write("\n".join(line.rstrip() for line in printed.get().splitlines()))
    if layout.left_out:
        print_error(f"columns left out: {', '.join(layout.left_out)}; --wide shows them")


def print_fields(fields: Row, *, as_json: bool) -> None:
    """Print one object: as JSON, or a line for each field that has a value."""
    if as_json:
        print_json(fields)
        return
    page = console()
    width = max(len(name) for name in fields) + 2
    for name, value in fields.items():
        if shown := escape_unprintable(format_cell(value)):
            page.print(f"{name.replace('_', ' '):<{width}}{shown}", soft_wrap=True)


def print_heading(title: str) -> None:
    """Print a heading, with an empty line before it."""
    console().print(f"\n{escape_unprintable(title)}", style="bold")


def print_remaining(page: Page[Any]) -> None:
    """Say on standard error that the list goes on."""
    if page.has_more:
        shown = len(page.items)
        print_error(f"{shown} of {page.total_text} shown; continue with --offset {page.offset + shown}")


def to_plain(value: Any) -> Any:
    """Convert a value for JSON. Bytes are left out: their content is not for lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_plain_key(key): to_plain(item) for key, item in value.items() if not isinstance(item, bytes)}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def format_cell(value: Any) -> str:
    """A value in a table cell: times to the second, in local time."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return to_local(value).isoformat(" ", "seconds")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(format_cell(item) for item in value)
    return str(value.value if isinstance(value, Enum) else value)


def _plain_key(key: Any) -> str:
    return str(key.value if isinstance(key, Enum) else key)

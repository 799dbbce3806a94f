"""The results for people (a table), for documents (Markdown) and for machines (JSON)."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measurement import Measurement, format_number

Results = Mapping[str, Sequence[Measurement]]
_PAGE_BEGIN, _PAGE_END = "<!-- make bench WRITE=1 begins -->", "<!-- make bench WRITE=1 ends -->"
_COLUMNS = ("Measured", "Value", "Unit", "Aim", "")


def print_table(results: Results) -> None:
    """Print all measurements on standard output."""
    table = Table(title="Benchmarks", title_justify="left")
    for column in ("", *_COLUMNS):
        table.add_column(column, justify="right" if column in {"Value", "Aim"} else "left")
    for name, measurements in results.items():
        for number, cells in enumerate(map(_cells, measurements)):
            table.add_row("" if number else name, *cells)
        table.add_section()
    Console().print(table)


def to_json(results: Results, command: str) -> str:
    """All measurements with date, machine and command."""
    rows = [{"benchmark": name, **asdict(each), "outcome": each.outcome} for name, found in results.items() for each in found]
    return json.dumps({**_circumstances(command), "measurements": rows}, indent=2, ensure_ascii=False) + "\n"


def to_markdown(results: Results, command: str) -> str:
    """A table for docs/performance.md, with its circumstances above it."""
    about = _circumstances(command)
    lines = [
        f"{about['date'][:10]}, {about['cores']} cores, Python {about['python']}, {about['system']}; `{command}`.",
        "",
        *_rows(("", *_COLUMNS)),
        "|---|---|---:|---|---:|---|",
    ]
    for name, found in results.items():
        for number, each in enumerate(found):
            lines += _rows(("" if number else f"**{name}**", *_cells(each)))
    return "\n".join(lines) + "\n"


def put_into_page(page: Path, table: str) -> None:
    """Replace what stands between the two markers of a Markdown page. Raises `ValueError` if it lacks them."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(_PAGE_BEGIN)
    _, end, after = rest.partition(_PAGE_END)
    if not begin or not end:
        raise ValueError(f"{page} lacks {_PAGE_BEGIN} or {_PAGE_END}")
    page.write_text(f"{before}{begin}\n{table}{end}{after}", encoding="utf-8")


def _rows(cells: Iterable[str]) -> list[str]:
    return [f"| {' | '.join(cells)} |"]


def _cells(each: Measurement) -> tuple[str, ...]:
    name = f"{each.name} ({each.note})" if each.note else each.name
    return name, format_number(each.value), each.unit, each.aim, each.outcome


def _circumstances(command: str) -> dict[str, Any]:
    """When and on what the numbers were measured, without the name of the machine."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "command": command,
    }

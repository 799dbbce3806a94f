"""Tables of a catalogue as bytes for the store, and back."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from lab_agent import exact_json
from lab_agent.catalogue.sheets import SHEETS, SheetRow, SheetTable
from lab_agent.errors import CatalogueError, DataInvalidError, Problem


def pack_tables(tables: Mapping[str, SheetTable]) -> bytes:
    """Give the tables as bytes: for each sheet its columns, and the cells of each row."""
    sheets = {}
    for sheet in SHEETS:
        names = [column.name for column in sheet.columns]
        rows = [[row.cells.get(name, "") for name in names] for row in tables[sheet.name].rows]
        sheets[sheet.name] = {"columns": names, "rows": rows}
    return zlib.compress(exact_json.dumps(sheets), 6)


def unpack_tables(content: bytes) -> dict[str, SheetTable]:
    """Give the tables back. A sheet or column that this program does not know (any more) is left out.

    Raises `CatalogueError` for bytes that are damaged, or that another program wrote.
    """
    try:
        sheets = exact_json.loads(zlib.decompress(content))
        return {sheet.name: _unpack_table(sheet.name, sheets.get(sheet.name, {})) for sheet in SHEETS}
    except (zlib.error, DataInvalidError, ValueError, TypeError, AttributeError) as exc:
        damaged = Problem("store", "holds a catalogue that cannot be read", "import it again: lab-agent catalogue import SOURCE")
        raise CatalogueError((damaged,)) from exc


def _unpack_table(name: str, packed: Mapping[str, Any]) -> SheetTable:
    columns = packed.get("columns", [])
    rows = [dict(zip(columns, cells, strict=True)) for cells in packed.get("rows", [])]
    if not all(isinstance(text, str) for cells in rows for pair in cells.items() for text in pair):
        raise TypeError("a cell is no text")
    return SheetTable(name, tuple(SheetRow(name, number, cells) for number, cells in enumerate(rows, start=2)))

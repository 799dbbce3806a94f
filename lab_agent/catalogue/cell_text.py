"""What a cell may hold at all, so that a workbook, a CSV file and the store say the same.

A workbook cannot hold control characters, nor more than 32,767 characters in a cell: such a cell would come back as another.
So it is a mistake in a CSV file too. A line end is a line end, however the file writes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lab_agent.catalogue.cells import SpreadsheetProblems
from lab_agent.catalogue.sheets import SheetRow

MAX_CELL_CHARACTERS = 32_767
_INVALID_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class CellError:
    """A cell that cannot be read: what is wrong, and the mend."""

    what: str
    hint: str


def normalize_text(text: str) -> str:
    """The text without blanks around it, its line ends folded to newlines."""
    return (text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text).strip()


def find_cell_error(text: str) -> CellError | None:
    """Why a cell may not hold this text; None if it may."""
    if text.isascii() and text.isprintable() and len(text) <= MAX_CELL_CHARACTERS:
        return None  # nearly every cell
    if found := _INVALID_CHARACTERS.search(text):
        return CellError(f"holds the control character U+{ord(found[0]):04X}", "remove it: write the cell again by hand")
    if (
        len(text) * 2 > MAX_CELL_CHARACTERS and len(text.encode("utf-16-le")) // 2 > MAX_CELL_CHARACTERS
    ):  # as spreadsheet programs count
        return CellError(f"holds more than {MAX_CELL_CHARACTERS} characters", "shorten it")
    return None


def build_row(source: str, number: int, raw_cells: Mapping[str, str | CellError], problems: SpreadsheetProblems) -> SheetRow:
    """The row of these cells. What cannot be read is noted, and marked, so that later checks are silent about it."""
    cells: dict[str, str] = {}
    unread: set[str] = set()
    for name, text in raw_cells.items():
        why = text if isinstance(text, CellError) else find_cell_error(text)
        if why is None:
            cells[name] = str(text)
        else:
            problems.add(SheetRow(source, number, {}), name, why.what, why.hint)
            unread.add(name)
    return SheetRow(source, number, cells, frozenset(unread))

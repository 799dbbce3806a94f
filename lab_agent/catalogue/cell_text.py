"""What a cell may hold at all, so that a workbook, a CSV file and the store say the same.

A workbook cannot hold control characters, nor more than 32,767 characters in a cell: such a cell would come back as another.
So it is a mistake in a CSV file too. A line end is a line end, however the file writes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lab_agent.catalogue.cells import Problems
from lab_agent.catalogue.sheets import Row

MOST_CHARACTERS = 32_767
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Odd:
    """A cell that cannot be read: what is wrong, and the mend."""

    what: str
    mend: str


def tidy(text: str) -> str:
    """The text without blanks around it, its line ends folded to newlines."""
    return (text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text).strip()


def unfit(text: str) -> Odd | None:
    """Why a cell may not hold this text; None if it may."""
    if text.isascii() and text.isprintable() and len(text) <= MOST_CHARACTERS:
        return None  # nearly every cell
    if found := _UNFIT.search(text):
        return Odd(f"holds the control character U+{ord(found[0]):04X}", "remove it: write the cell again by hand")
    if len(text) * 2 > MOST_CHARACTERS and len(text.encode("utf-16-le")) // 2 > MOST_CHARACTERS:  # as spreadsheet programs count
        return Odd(f"holds more than {MOST_CHARACTERS} characters", "shorten it")
    return None


def row_of(source: str, number: int, seen: Mapping[str, str | Odd], problems: Problems) -> Row:
    """The row of these cells. What cannot be read is noted, and marked, so that later checks are silent about it."""
    cells: dict[str, str] = {}
    unread: set[str] = set()
    for name, text in seen.items():
        why = text if isinstance(text, Odd) else unfit(text)
        if why is None:
            cells[name] = str(text)
        else:
            problems.add(Row(source, number, {}), name, why.what, why.mend)
            unread.add(name)
    return Row(source, number, cells, frozenset(unread))

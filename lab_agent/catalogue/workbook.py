"""The catalogue as one XLSX workbook: a sheet for each table, with the same columns as the CSV files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from lab_agent.catalogue.cell_text import Odd, row_of
from lab_agent.catalogue.cells import Problems, did_you_mean
from lab_agent.catalogue.headers import columns_of
from lab_agent.catalogue.sheets import SHEETS, Column, Row, Sheet, Table
from lab_agent.catalogue.workbook_cells import shown
from lab_agent.catalogue.workbook_file import Line, Seen, WorkbookFile
from lab_agent.errors import Problem

READ_ME = "read me"
"""Name of the sheet that explains the others; like every sheet whose name begins with #, it is not read."""


def read(path: Path, problems: Problems) -> dict[str, Table]:
    """Read every sheet; what is wrong is noted with sheet, row and column. Raises `CatalogueError` for what is no workbook."""
    with closing(WorkbookFile(path)) as book:
        named: dict[str, str] = {}
        for title in book.titles:
            if named.setdefault(title.strip().lower(), title) != title:
                problems.note(title, Problem(f"sheet {title}", "is there twice", "remove one"))
        _note_strangers(named, problems)
        return {sheet.name: _table(sheet, book, named, problems) for sheet in SHEETS}


def _note_strangers(named: Mapping[str, str], problems: Problems) -> None:
    names = [sheet.name for sheet in SHEETS]
    for low, title in named.items():
        if low not in names and low != READ_ME and not low.startswith("#"):
            mend = did_you_mean(low, names) or "remove it, or begin its name with #"
            problems.note(title, Problem(f"sheet {title}", "is not a sheet of the catalogue", mend))


def _table(sheet: Sheet, book: WorkbookFile, named: Mapping[str, str], problems: Problems) -> Table:
    if sheet.name not in named:
        if not sheet.optional:
            mend = "add it; `lab-agent catalogue template` shows it"
            problems.note(sheet.name, Problem(f"sheet {sheet.name}", "is missing", mend))
        return Table(sheet.name, whole=sheet.optional)
    lines = book.lines(named[sheet.name])
    header = [str(cell.value or "").strip() for cell in (lines[0] if lines else ())]
    while header and not header[-1]:
        header.pop()
    wrong: list[Problem] = []
    columns = columns_of(sheet.name, header, sheet, wrong)
    for each in wrong:
        problems.note(sheet.name, each, 1)
    if columns is None:
        return Table(sheet.name, whole=False)
    return Table(sheet.name, tuple(_rows(sheet, columns, lines[1:], problems)))


def _rows(sheet: Sheet, columns: Sequence[Column], lines: Sequence[Line], problems: Problems) -> Iterator[Row]:
    for number, line in enumerate(lines, start=2):
        row = row_of(sheet.name, number, dict(_cells(columns, line)), problems)
        if row.unread or any(row.cells.values()):
            yield row


def _cells(columns: Sequence[Column], line: Line) -> Iterator[tuple[str, str | Odd]]:
    for column, cell in zip(columns, line, strict=False):
        if cell.value is not None or cell.kind == "f":
            yield column.name, shown(*cell, column.holds)
    if any(_filled(cell) for cell in line[len(columns) :]):
        yield "", "surplus"


def _filled(cell: Seen) -> bool:
    return cell.kind == "f" or (cell.value is not None and bool(str(cell.value).strip()))

"""The catalogue as one XLSX workbook: a sheet for each table, with the same columns as the CSV files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from lab_agent.catalogue.cell_text import CellError, build_row
from lab_agent.catalogue.cells import SpreadsheetProblems, did_you_mean
from lab_agent.catalogue.headers import resolve_header
from lab_agent.catalogue.sheets import SHEETS, Column, Sheet, SheetRow, SheetTable
from lab_agent.catalogue.workbook_cells import cell_to_text
from lab_agent.catalogue.workbook_file import WorkbookCell, WorkbookFile, WorkbookRow
from lab_agent.errors import Problem

README_SHEET = "read me"
"""Name of the sheet that explains the others; like every sheet whose name begins with #, it is not read."""


def read_workbook(path: Path, problems: SpreadsheetProblems) -> dict[str, SheetTable]:
    """Read every sheet; what is wrong is noted with sheet, row and column. Raises `CatalogueError` for what is no workbook."""
    with closing(WorkbookFile(path)) as book:
        named: dict[str, str] = {}
        for title in book.sheet_titles:
            if named.setdefault(title.strip().lower(), title) != title:
                problems.add_to_source(title, Problem(f"sheet {title}", "is there twice", "remove one"))
        _report_unknown_sheets(named, problems)
        return {sheet.name: _read_sheet(sheet, book, named, problems) for sheet in SHEETS}


def _report_unknown_sheets(titles: Mapping[str, str], problems: SpreadsheetProblems) -> None:
    names = [sheet.name for sheet in SHEETS]
    for low, title in titles.items():
        if low not in names and low != README_SHEET and not low.startswith("#"):
            mend = did_you_mean(low, names) or "remove it, or begin its name with #"
            problems.add_to_source(title, Problem(f"sheet {title}", "is not a sheet of the catalogue", mend))


def _read_sheet(sheet: Sheet, book: WorkbookFile, titles: Mapping[str, str], problems: SpreadsheetProblems) -> SheetTable:
    if sheet.name not in titles:
        if not sheet.optional:
            mend = "add it; `lab-agent catalogue template` shows it"
            problems.add_to_source(sheet.name, Problem(f"sheet {sheet.name}", "is missing", mend))
        return SheetTable(sheet.name, is_complete=sheet.optional)
    lines = book.rows(titles[sheet.name])
    header = [str(cell.value or "").strip() for cell in (lines[0] if lines else ())]
    while header and not header[-1]:
        header.pop()
    wrong: list[Problem] = []
    columns = resolve_header(sheet.name, header, sheet, wrong)
    for each in wrong:
        problems.add_to_source(sheet.name, each, 1)
    if columns is None:
        return SheetTable(sheet.name, is_complete=False)
    return SheetTable(sheet.name, tuple(_build_rows(sheet, columns, lines[1:], problems)))


def _build_rows(
    sheet: Sheet, columns: Sequence[Column], lines: Sequence[WorkbookRow], problems: SpreadsheetProblems
) -> Iterator[SheetRow]:
    for number, line in enumerate(lines, start=2):
        row = build_row(sheet.name, number, dict(_cell_texts(columns, line)), problems)
        if row.unreadable_columns or any(row.cells.values()):
            yield row


def _cell_texts(columns: Sequence[Column], line: WorkbookRow) -> Iterator[tuple[str, str | CellError]]:
    for column, cell in zip(columns, line, strict=False):
        if cell.value is not None or cell.data_type == "f":
            yield column.name, cell_to_text(*cell, column.type)
    if any(_has_content(cell) for cell in line[len(columns) :]):
        yield "", "surplus"


def _has_content(cell: WorkbookCell) -> bool:
    return cell.data_type == "f" or (cell.value is not None and bool(str(cell.value).strip()))

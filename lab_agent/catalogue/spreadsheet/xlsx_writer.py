"""Write a catalogue as a workbook, or an empty one to begin with: headings, explanations, and lists to choose from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from openpyxl import Workbook
from openpyxl.cell.cell import Cell
from openpyxl.comments import Comment
from openpyxl.styles import Alignment, Font, PatternFill
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.worksheet import Worksheet

from lab_agent.catalogue.spreadsheet.cells import SpreadsheetProblems, find_cell_error, normalize_text
from lab_agent.catalogue.spreadsheet.schema import SHEETS, Column, ColumnType, Sheet, SheetTable
from lab_agent.catalogue.spreadsheet.xlsx_reader import README_SHEET
from lab_agent.shared.errors import CatalogueError

_LAST_VALIDATED_ROW = 20_000
_BOLD = Font(bold=True)
_REQUIRED_FILL = PatternFill("solid", fgColor="FFD9E8F5")
_OPTIONAL_FILL = PatternFill("solid", fgColor="FFF0F0F0")
_WRAP = Alignment(wrap_text=True, vertical="top")
_README_LINES = (
    "The laboratory's catalogue. Each sheet is a table; the darker headings must be filled in every row.",
    "Codes are text: leave the format of their columns as it is, so that 042.036 stays 042.036.",
    "Sheets whose names begin with # are yours and are not read.",
    "To check it: lab-agent catalogue check FILE. To see what would change: lab-agent catalogue diff FILE.",
    "To put it in force: lab-agent catalogue import FILE.",
)
_PLAIN_NUMBER = re.compile(r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,10})?")
_MAX_DIGITS = 15  # what a number of a workbook keeps
_ESCAPE_LOOKALIKE = re.compile("_(?=x[0-9A-Fa-f]{4}_)")


def write_workbook(path: Path, tables: Mapping[str, SheetTable]) -> None:
    """Write the workbook; sheets that `tables` leaves out have only their headings.

    Raises `CatalogueError`, and writes nothing, for a cell that a workbook cannot hold. Only an old import can have one: today
    such a cell is rejected.
    """
    _check_cells(tables)
    book = Workbook()
    _write_readme(book.worksheets[0])
    for sheet in SHEETS:
        page = book.create_sheet(sheet.name)
        _write_headings(page, sheet)
        for number, row in enumerate(tables.get(sheet.name, SheetTable(sheet.name)).rows, start=2):
            for place, column in enumerate(sheet.columns, start=1):
                if text := row.cells.get(column.name, ""):
                    _write_cell(page.cell(number, place), text, column)
    book.save(path)


def _check_cells(tables: Mapping[str, SheetTable]) -> None:
    problems = SpreadsheetProblems()
    for table in tables.values():
        for row in table.rows:
            for name, text in row.cells.items():
                if error := find_cell_error(normalize_text(text)):
                    problems.add(row, name, error.what, f"a workbook cannot hold it: write CSV files, and there {error.hint}")
    if problems:
        raise CatalogueError(problems.ordered)


def _write_readme(page: Worksheet) -> None:
    page.title = README_SHEET
    page.column_dimensions["A"].width, page.column_dimensions["B"].width = 24, 24
    page.column_dimensions["C"].width = 100
    for line in _README_LINES:
        page.append([line])
    for sheet in SHEETS:
        page.append([])
        page.append([sheet.name, "", sheet.description + (" (may be left empty)" if sheet.optional else "")])
        page.cell(page.max_row, 1).font = _BOLD
        for column in sheet.columns:
            page.append(["", column.name, column.description + (" — always filled" if column.required else "")])


def _write_headings(page: Worksheet, sheet: Sheet) -> None:
    page.freeze_panes = "A2"
    for place, column in enumerate(sheet.columns, start=1):
        cell, letter = page.cell(1, place, column.name), get_column_letter(place)
        cell.font, cell.fill = _BOLD, _REQUIRED_FILL if column.required else _OPTIONAL_FILL
        cell.comment = Comment(column.description, "lab-agent", width=320, height=80)
        page.column_dimensions[letter].width = max(14, len(column.name) + 3)
        if column.type in {ColumnType.CODE, ColumnType.DATE_TIME}:
            page.column_dimensions[letter].number_format = "@"
        if rule := _list_validation(column):
            page.add_data_validation(rule)
            rule.add(f"{letter}2:{letter}{_LAST_VALIDATED_ROW}")


def _list_validation(column: Column) -> DataValidation | None:
    """The list to choose from; a code that its sheet does not have yet only causes a warning."""
    words = ("yes", "no") if column.type is ColumnType.YES_NO else column.allowed_values
    if words:
        return DataValidation("list", formula1=f'"{",".join(words)}"', allow_blank=True, showErrorMessage=True)
    if column.references_sheet:
        listed = f"{column.references_sheet}!$A$2:$A${_LAST_VALIDATED_ROW}"
        return DataValidation("list", formula1=listed, allow_blank=True, showErrorMessage=True, errorStyle="warning")
    return None


def _write_cell(cell: Cell, text: str, column: Column) -> None:
    if column.type is ColumnType.NUMBER and _PLAIN_NUMBER.fullmatch(text) and len(text.replace(".", "")) <= _MAX_DIGITS:
        places = len(text.partition(".")[2])
        cell.value = Decimal(text)
        cell.number_format = f"0.{'0' * places}" if places else "0"
        return
    # The file format escapes a text that looks like one of its own escapes.
    cell.value = _ESCAPE_LOOKALIKE.sub("_x005F_", normalize_text(text))
    cell.data_type = "s"  # also where it looks like a formula
    cell.number_format = "@"
    if "\n" in text:
        cell.alignment = _WRAP

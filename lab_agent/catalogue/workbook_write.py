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

from lab_agent.catalogue.cell_text import tidy, unfit
from lab_agent.catalogue.cells import Problems
from lab_agent.catalogue.sheets import SHEETS, Column, Holds, Sheet, Table
from lab_agent.catalogue.workbook import READ_ME
from lab_agent.errors import CatalogueError

_LAST = 20_000
_BOLD = Font(bold=True)
_MUST = PatternFill("solid", fgColor="FFD9E8F5")
_MAY = PatternFill("solid", fgColor="FFF0F0F0")
_WRAP = Alignment(wrap_text=True, vertical="top")
_ABOUT = (
    "The laboratory's catalogue. Each sheet is a table; the darker headings must be filled in every row.",
    "Codes are text: leave the format of their columns as it is, so that 042.036 stays 042.036.",
    "Sheets whose names begin with # are yours and are not read.",
    "Check: lab-agent catalogue check FILE. See what would change: lab-agent catalogue diff FILE. Take over: … import FILE.",
)
_PLAIN_NUMBER = re.compile(r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,10})?")
_MOST_DIGITS = 15  # that a number of a workbook keeps
_ESCAPE = re.compile("_(?=x[0-9A-Fa-f]{4}_)")


def write(path: Path, tables: Mapping[str, Table]) -> None:
    """Write the workbook; sheets that `tables` leaves out are empty but for their headings.

    Raises `CatalogueError`, and writes nothing, for a cell that a workbook cannot hold: one of an older import, for there is no
    importing one today.
    """
    _refuse_unfit(tables)
    book = Workbook()
    _read_me(book.worksheets[0])
    for sheet in SHEETS:
        page = book.create_sheet(sheet.name)
        _headings(page, sheet)
        for number, row in enumerate(tables.get(sheet.name, Table(sheet.name)).rows, start=2):
            for place, column in enumerate(sheet.columns, start=1):
                if text := row.cells.get(column.name, ""):
                    _fill(page.cell(number, place), text, column)
    book.save(path)


def _refuse_unfit(tables: Mapping[str, Table]) -> None:
    problems = Problems()
    for table in tables.values():
        for row in table.rows:
            for name, text in row.cells.items():
                if why := unfit(tidy(text)):
                    problems.add(row, name, why.what, f"a workbook cannot hold it: write CSV files, and there {why.mend}")
    if problems:
        raise CatalogueError(problems.found)


def _read_me(page: Worksheet) -> None:
    page.title = READ_ME
    page.column_dimensions["A"].width, page.column_dimensions["B"].width = 24, 24
    page.column_dimensions["C"].width = 100
    for line in _ABOUT:
        page.append([line])
    for sheet in SHEETS:
        page.append([])
        page.append([sheet.name, "", sheet.about + (" (may be left empty)" if sheet.optional else "")])
        page.cell(page.max_row, 1).font = _BOLD
        for column in sheet.columns:
            page.append(["", column.name, column.about + (" — always filled" if column.filled else "")])


def _headings(page: Worksheet, sheet: Sheet) -> None:
    page.freeze_panes = "A2"
    for place, column in enumerate(sheet.columns, start=1):
        cell, letter = page.cell(1, place, column.name), get_column_letter(place)
        cell.font, cell.fill = _BOLD, _MUST if column.filled else _MAY
        cell.comment = Comment(column.about, "lab-agent", width=320, height=80)
        page.column_dimensions[letter].width = max(14, len(column.name) + 3)
        if column.holds in {Holds.CODE, Holds.MOMENT}:
            page.column_dimensions[letter].number_format = "@"
        if rule := _choices(column):
            page.add_data_validation(rule)
            rule.add(f"{letter}2:{letter}{_LAST}")


def _choices(column: Column) -> DataValidation | None:
    """The list to choose from; a code that its sheet does not have yet is only warned of."""
    words = ("yes", "no") if column.holds is Holds.YES else column.words
    if words:
        return DataValidation("list", formula1=f'"{",".join(words)}"', allow_blank=True, showErrorMessage=True)
    if column.refers:
        listed = f"{column.refers}!$A$2:$A${_LAST}"
        return DataValidation("list", formula1=listed, allow_blank=True, showErrorMessage=True, errorStyle="warning")
    return None


def _fill(cell: Cell, text: str, column: Column) -> None:
    if column.holds is Holds.NUMBER and _PLAIN_NUMBER.fullmatch(text) and len(text.replace(".", "")) <= _MOST_DIGITS:
        places = len(text.partition(".")[2])
        cell.value = Decimal(text)
        cell.number_format = f"0.{'0' * places}" if places else "0"
        return
    cell.value = _ESCAPE.sub("_x005F_", tidy(text))  # as the format writes a text that looks like its own escapes
    cell.data_type = "s"  # also where it looks like a formula
    cell.number_format = "@"
    if "\n" in text:
        cell.alignment = _WRAP

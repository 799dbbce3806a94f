"""The catalogue as one XLSX workbook: a sheet for each table, with the same columns as the CSV files."""

from __future__ import annotations

import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from openpyxl import load_workbook
from openpyxl.utils.exceptions import InvalidFileException

from lab_agent.catalogue.cells import did_you_mean
from lab_agent.catalogue.headers import columns_of
from lab_agent.catalogue.sheets import SHEETS, Column, Row, Sheet, Table
from lab_agent.catalogue.workbook_cells import shown
from lab_agent.errors import CatalogueError, Problem

READ_ME = "read me"
"""Name of the sheet that explains the others; like every sheet whose name begins with #, it is not read."""
_BROKEN = (InvalidFileException, zipfile.BadZipFile, zlib.error, ParseError, KeyError, ValueError, EOFError)


def read(path: Path) -> dict[str, Table]:
    """Read every sheet. Raises `CatalogueError` with every problem, each with sheet, row and column."""
    problems: list[Problem] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # drop-down lists of other programs, which we have no use for
            tables, formulas = _tables(path, problems, values=False)
            if formulas:  # read again for the values that the spreadsheet program kept with them
                problems.clear()
                tables, _ = _tables(path, problems, values=True, formulas=formulas)
    except OSError as exc:
        raise CatalogueError((Problem(str(path), f"cannot be read: {exc.strerror or exc}", "name a workbook"),)) from exc
    except _BROKEN as exc:
        raise CatalogueError((Problem(str(path), "is not an XLSX workbook", "save it as an Excel workbook (.xlsx)"),)) from exc
    if problems:
        raise CatalogueError(tuple(problems))
    return tables


_Places = set[tuple[str, int, int]]


def _tables(
    path: Path, problems: list[Problem], *, values: bool, formulas: _Places | None = None
) -> tuple[dict[str, Table], _Places]:
    found: _Places = set()
    with closing(load_workbook(path, read_only=True, data_only=values)) as book:
        named = {title.strip().lower(): title for title in book.sheetnames}
        problems += _strangers(named)
        tables = {}
        for sheet in SHEETS:
            tables[sheet.name] = Table(sheet.name)
            if sheet.name in named:
                lines = book[named[sheet.name]].iter_rows()
                tables[sheet.name] = Table(sheet.name, tuple(_rows(sheet, lines, problems, formulas or set(), found)))
            elif not sheet.optional:
                problems.append(Problem(f"sheet {sheet.name}", "is missing", "add it; `lab-agent catalogue template` shows it"))
    return tables, found


def _strangers(named: dict[str, str]) -> Iterator[Problem]:
    names = [sheet.name for sheet in SHEETS]
    for low, title in named.items():
        if low not in names and low != READ_ME and not low.startswith("#"):
            mend = did_you_mean(low, names) or "remove it, or begin its name with #"
            yield Problem(f"sheet {title}", "is not a sheet of the catalogue", mend)


def _rows(sheet: Sheet, lines: Iterable[Any], problems: list[Problem], formulas: _Places, found: _Places) -> Iterator[Row]:
    rest = iter(lines)
    header = [str(cell.value or "").strip() for cell in next(rest, ())]
    while header and not header[-1]:
        header.pop()
    columns = columns_of(sheet.name, header, sheet, problems)
    if columns is None:
        return
    for number, line in enumerate(rest, start=2):
        cells: dict[str, str] = {}
        for place, cell in enumerate(line):
            at = (sheet.name, number, place)
            if cell.data_type == "f":
                found.add(at)
            if cell.value is None and at not in formulas:
                continue
            if place >= len(columns):
                cells[""] = "surplus"
            else:
                cells[columns[place].name] = _text(cell, columns[place], Row(sheet.name, number, {}), problems, at in formulas)
        if any(cells.values()):
            yield Row(sheet.name, number, cells)


def _text(cell: Any, column: Column, row: Row, problems: list[Problem], formula: bool) -> str:
    kind = "f" if formula and cell.value is None else cell.data_type
    text = shown(cell.value, kind, getattr(cell, "number_format", ""), column.holds)
    if isinstance(text, str):
        return text
    problems.append(Problem(row.where(column.name), text.what, text.mend))
    return ""

"""The catalogue as a folder of CSV files, one for each sheet; and the entry point that reads such a folder or a workbook.

The files are what spreadsheet programs save: UTF-8 with or without a byte order mark, separated by commas or semicolons.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping
from pathlib import Path

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.spreadsheet.cells import SURPLUS_COLUMN, SpreadsheetProblems, build_rows, normalize_text, resolve_header
from lab_agent.catalogue.spreadsheet.parser import build_catalogue
from lab_agent.catalogue.spreadsheet.schema import SHEETS, Sheet, SheetTable
from lab_agent.shared.errors import CatalogueError, Problem, did_you_mean


def load_catalogue(source: Path) -> Catalogue:
    """Load a catalogue. Raises `CatalogueError` with every problem, each with file (or sheet), row and column."""
    tables = read_tables(source)
    return build_catalogue(tables, content_version(tables))


def read_tables(source: Path) -> dict[str, SheetTable]:
    """Read the tables of a folder, or of a workbook.

    Raises `CatalogueError` for what cannot be read, together with the problems of all that can be read.
    """
    problems = SpreadsheetProblems()
    tables = _read_workbook(source, problems) if source.suffix.lower() == ".xlsx" else _read_folder(source, problems)
    if problems:
        build_catalogue(tables, "", problems)  # raises
    return tables


def _read_workbook(source: Path, problems: SpreadsheetProblems) -> dict[str, SheetTable]:
    from lab_agent.catalogue.spreadsheet import xlsx_reader  # noqa: PLC0415 - its library takes a while, and a server reads from the store

    return xlsx_reader.read_workbook(source, problems)


def _read_folder(source: Path, problems: SpreadsheetProblems) -> dict[str, SheetTable]:
    if not source.is_dir():
        hint = "name an .xlsx workbook, or the folder that holds items.csv and the others"
        raise CatalogueError((Problem(str(source), "is not a folder", hint),))
    for each in _unknown_files(source):
        problems.add_to_source(each.where, each)
    return {sheet.name: _read_csv_table(source, sheet, problems) for sheet in SHEETS}


def write_csv_folder(folder: Path, tables: Mapping[str, SheetTable]) -> None:
    """Write a folder of CSV files; what is there under their names is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for sheet in SHEETS:
        names = [column.name for column in sheet.columns]
        with (folder / f"{sheet.name}.csv").open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(names)
            lines.writerows([row.cells.get(name, "") for name in names] for row in tables[sheet.name].rows)


def content_version(tables: Mapping[str, SheetTable]) -> str:
    """A short digest of every cell; blanks around cells and the file format do not count."""
    digest = hashlib.sha256()
    for sheet in SHEETS:
        for row in tables[sheet.name].rows:
            cells = (row.cells.get(column.name, "") for column in sheet.columns)
            digest.update("\x1f".join((sheet.name, *cells)).encode() + b"\x1e")
    return digest.hexdigest()[:16]


def _unknown_files(folder: Path) -> list[Problem]:
    names = {f"{sheet.name}.csv" for sheet in SHEETS}
    found = sorted(path.name for path in folder.glob("*.csv") if path.name not in names)
    return [Problem(name, "is not a sheet of the catalogue", did_you_mean(name, names) or "remove it") for name in found]


def _read_csv_table(folder: Path, sheet: Sheet, problems: SpreadsheetProblems) -> SheetTable:
    source = f"{sheet.name}.csv"
    try:
        text = (folder / source).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if sheet.optional:
            return SheetTable(source)
        broken = Problem(source, "is missing", f"add it; its columns are {_column_names(sheet)}")
    except UnicodeDecodeError:
        broken = Problem(source, "is not UTF-8", "save it as CSV UTF-8")
    except OSError as exc:
        broken = Problem(source, f"cannot be read: {exc.strerror}", "correct the file's permissions")
    else:
        return _parse_csv(source, text, sheet, problems)
    problems.add_to_source(source, broken)
    return SheetTable(source, is_complete=False)


def _parse_csv(source: str, text: str, sheet: Sheet, problems: SpreadsheetProblems) -> SheetTable:
    first = text.split("\n", 1)[0]
    separator = ";" if first.count(";") > first.count(",") else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        lines = list(reader)
    except csv.Error as exc:
        broken = Problem(f"{source} line {reader.line_num}", f"is not CSV: {exc}", "close the quotation marks")
        problems.add_to_source(source, broken)
        return SheetTable(source, is_complete=False)
    header = [name.strip() for name in lines[0]] if lines else []
    if resolve_header(source, header, sheet, problems) is None:
        return SheetTable(source, is_complete=False)
    return SheetTable(source, build_rows(source, (_cell_texts(header, line) for line in lines[1:]), problems))


def _cell_texts(header: list[str], line: list[str]) -> dict[str, str]:
    cells = {name: normalize_text(cell) for name, cell in zip(header, line, strict=False)}
    if any(cell.strip() for cell in line[len(header) :]):
        cells[SURPLUS_COLUMN] = "surplus"
    return cells


def _column_names(sheet: Sheet) -> str:
    return ", ".join(column.name for column in sheet.columns)

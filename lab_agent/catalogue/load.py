"""Read the catalogue from one workbook, or from a folder of CSV files, one for each sheet; and write such a folder.

The files are what spreadsheet programs save: UTF-8 with or without a mark, separated by commas or semicolons.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from lab_agent.catalogue.assemble import assemble
from lab_agent.catalogue.cell_text import row_of, tidy
from lab_agent.catalogue.cells import Problems, did_you_mean
from lab_agent.catalogue.headers import columns_of
from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogue.sheets import SHEETS, Row, Sheet, Table
from lab_agent.errors import CatalogueError, Problem


def load(source: Path) -> Catalogue:
    """Load a catalogue. Raises `CatalogueError` with every problem, each with file (or sheet), row and column."""
    tables = read(source)
    return assemble(tables, version(tables))


def read(source: Path) -> dict[str, Table]:
    """Read the tables of a folder, or of a workbook.

    Raises `CatalogueError` for what cannot be read; it has the mistakes of all that can be read, too.
    """
    problems = Problems()
    tables = _read_workbook(source, problems) if source.suffix.lower() == ".xlsx" else _read_folder(source, problems)
    if problems:
        assemble(tables, "", problems)  # raises
    return tables


def _read_workbook(source: Path, problems: Problems) -> dict[str, Table]:
    from lab_agent.catalogue import workbook  # noqa: PLC0415 - its library takes a while, and a server reads from the store

    return workbook.read(source, problems)


def _read_folder(source: Path, problems: Problems) -> dict[str, Table]:
    if not source.is_dir():
        mend = "name an .xlsx workbook, or the folder that holds items.csv and the others"
        raise CatalogueError((Problem(str(source), "is not a folder", mend),))
    for each in _strangers(source):
        problems.note(each.where, each)
    return {sheet.name: _table(source, sheet, problems) for sheet in SHEETS}


def write(folder: Path, tables: Mapping[str, Table]) -> None:
    """Write a folder of CSV files; what is there under their names is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for sheet in SHEETS:
        names = [column.name for column in sheet.columns]
        with (folder / f"{sheet.name}.csv").open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(names)
            lines.writerows([row.cells.get(name, "") for name in names] for row in tables[sheet.name].rows)


def version(tables: Mapping[str, Table]) -> str:
    """A short digest of every cell; blanks around cells and the way a file is saved do not count."""
    digest = hashlib.sha256()
    for sheet in SHEETS:
        for row in tables[sheet.name].rows:
            cells = (row.cells.get(column.name, "") for column in sheet.columns)
            digest.update("\x1f".join((sheet.name, *cells)).encode() + b"\x1e")
    return digest.hexdigest()[:16]


def _strangers(folder: Path) -> list[Problem]:
    names = {f"{sheet.name}.csv" for sheet in SHEETS}
    found = sorted(path.name for path in folder.glob("*.csv") if path.name not in names)
    return [Problem(name, "is not a sheet of the catalogue", did_you_mean(name, names) or "remove it") for name in found]


def _table(folder: Path, sheet: Sheet, problems: Problems) -> Table:
    source = f"{sheet.name}.csv"
    try:
        text = (folder / source).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if sheet.optional:
            return Table(source)
        broken = Problem(source, "is missing", f"add it; its columns are {_names(sheet)}")
    except UnicodeDecodeError:
        broken = Problem(source, "is not UTF-8", "save it as CSV UTF-8")
    except OSError as exc:
        broken = Problem(source, f"cannot be read: {exc.strerror}", "mend the rights of the file")
    else:
        return _parsed(source, text, sheet, problems)
    problems.note(source, broken)
    return Table(source, whole=False)


def _parsed(source: str, text: str, sheet: Sheet, problems: Problems) -> Table:
    first = text.split("\n", 1)[0]
    separator = ";" if first.count(";") > first.count(",") else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        lines = list(reader)
    except csv.Error as exc:
        broken = Problem(f"{source} line {reader.line_num}", f"is not CSV: {exc}", "close the quotation marks")
        problems.note(source, broken)
        return Table(source, whole=False)
    header = [name.strip() for name in lines[0]] if lines else []
    wrong: list[Problem] = []
    if columns_of(source, header, sheet, wrong) is None:
        for each in wrong:
            problems.note(source, each, 1)
        return Table(source, whole=False)
    return Table(source, tuple(_rows(source, header, lines[1:], problems)))


def _rows(source: str, header: list[str], lines: list[list[str]], problems: Problems) -> Iterator[Row]:
    for number, line in enumerate(lines, start=2):
        row = row_of(source, number, _cells(header, line), problems)
        if row.unread or any(row.cells.values()):
            yield row


def _cells(header: list[str], line: list[str]) -> dict[str, str]:
    cells = {name: tidy(cell) for name, cell in zip(header, line, strict=False)}
    return {**cells, **({"": "surplus"} if any(cell.strip() for cell in line[len(header) :]) else {})}


def _names(sheet: Sheet) -> str:
    return ", ".join(column.name for column in sheet.columns)

"""The catalogue as one XLSX workbook: a sheet for each table, with the same columns as the CSV files.

`WorkbookFile` is the only place that meets openpyxl for reading: it raises nothing but `CatalogueError` for a damaged file.

`cell_to_text` gives what a person sees in a cell, and nothing that a spreadsheet program made of it. A number has the 15 digits
that every spreadsheet program shows: what a formula left behind them (451.00000000000006) comes from how the machine counts, and
nobody has seen it. It is written as its format shows it (480.00, 042.036), unless that would lose digits. A cell from which
nobody can tell what was meant is a problem: a code that became a decimal number or a date, a formula without a value.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

from openpyxl import load_workbook
from openpyxl.cell.read_only import EMPTY_CELL

from lab_agent.catalogue.spreadsheet.cells import (
    SURPLUS_COLUMN,
    CellError,
    CellText,
    SpreadsheetProblems,
    build_rows,
    normalize_text,
    resolve_header,
)
from lab_agent.catalogue.spreadsheet.schema import SHEETS, Column, ColumnType, Sheet, SheetTable
from lab_agent.shared.errors import CatalogueError, Problem, did_you_mean

README_SHEET = "read me"
"""Name of the sheet that explains the others; like every sheet whose name begins with #, it is not read."""

_MAX_ROWS = 1_048_576  # of the format itself; openpyxl would count up to any number that a damaged file names
_MAX_COLUMNS = 200
_MAX_CELLS = 2_000_000
_MAX_UNPACKED_BYTES = 64_000_000
_MAX_MARKUP = 4_000_000
"""Tags and attributes of all parts: some 500,000 cells. Each may become an object in memory, however small the file is."""
_PORTION = 1_000_000
_NUMBER_FORMAT = re.compile(r"(?:#,##)?(#{0,30}0{0,30})(?:\.(0{1,30}))?")
_FORMAT_DECORATION = re.compile(r'"[^"]*"|\[\$[^\]]*\]|\[[A-Za-z]+\]|\\.|_.|\*.|[\s$€£¥₽₴₸₾֏]')
"""What a format shows beside the digits: a text, a currency with its language, a colour, a blank as wide as another character."""
_ESCAPED_CHARACTER = re.compile(r"_x([0-9A-Fa-f]{4})_")
_EXACT_CONTEXT = Context(prec=100)  # the digits of a number that is rounded here, and of the longest format
_MAX_DIGITS = 40


def read_workbook(path: Path, problems: SpreadsheetProblems) -> dict[str, SheetTable]:
    """Read every sheet; problems are added with sheet, row and column. Raises `CatalogueError` for what is not a workbook."""
    with closing(WorkbookFile(path)) as book:
        named: dict[str, str] = {}
        for title in book.sheet_titles:
            if named.setdefault(title.strip().lower(), title) != title:
                problems.add_to_source(title, Problem(f"sheet {title}", "appears twice", "remove one"))
        _report_unknown_sheets(named, problems)
        return {sheet.name: _read_sheet(sheet, book, named, problems) for sheet in SHEETS}


def _report_unknown_sheets(titles: Mapping[str, str], problems: SpreadsheetProblems) -> None:
    names = [sheet.name for sheet in SHEETS]
    for low, title in titles.items():
        if low not in names and low != README_SHEET and not low.startswith("#"):
            hint = did_you_mean(low, names) or "remove it, or begin its name with #"
            problems.add_to_source(title, Problem(f"sheet {title}", "is not a sheet of the catalogue", hint))


def _read_sheet(sheet: Sheet, book: WorkbookFile, titles: Mapping[str, str], problems: SpreadsheetProblems) -> SheetTable:
    if sheet.name not in titles:
        if not sheet.optional:
            hint = "add it; `lab-agent catalogue template` shows it"
            problems.add_to_source(sheet.name, Problem(f"sheet {sheet.name}", "is missing", hint))
        return SheetTable(sheet.name, is_complete=sheet.optional)
    lines = book.rows(titles[sheet.name])
    header = [str(cell.value or "").strip() for cell in (lines[0] if lines else ())]
    while header and not header[-1]:
        header.pop()
    columns = resolve_header(sheet.name, header, sheet, problems)
    if columns is None:
        return SheetTable(sheet.name, is_complete=False)
    return SheetTable(sheet.name, build_rows(sheet.name, (dict(_cell_texts(columns, line)) for line in lines[1:]), problems))


def _cell_texts(columns: Sequence[Column], line: WorkbookRow) -> Iterator[tuple[str, CellText]]:
    for column, cell in zip(columns, line, strict=False):
        if cell.value is not None or cell.data_type == "f":
            yield column.name, cell_to_text(*cell, column.type)
    if any(_has_content(cell) for cell in line[len(columns) :]):
        yield SURPLUS_COLUMN, "surplus"


def _has_content(cell: WorkbookCell) -> bool:
    return cell.data_type == "f" or (cell.value is not None and bool(str(cell.value).strip()))


class WorkbookCell(NamedTuple):
    """One cell. `data_type` is what the file says: e for an error, f for a formula; ? stands for an unknown format."""

    value: Any
    data_type: str
    number_format: str


_BLANK_CELL = WorkbookCell(None, "n", "")
WorkbookRow = list[WorkbookCell]
_NO_CELLS: WorkbookRow = []


class WorkbookFile:
    """An open workbook. A cell with a formula has the value that the spreadsheet program kept with it; None if it kept none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._workbooks: dict[bool, Any] = {}
        try:
            self._content = path.read_bytes()  # the library leaves a file open that it cannot read
        except OSError as exc:
            raise CatalogueError((Problem(str(path), f"cannot be read: {exc.strerror}", "name a workbook"),)) from exc
        with _translate_errors(path):
            is_too_large = _is_too_large(self._content)
        if is_too_large:
            raise _too_large_error(path)
        self._cells = 0
        with _translate_errors(path):
            self.sheet_titles: list[str] = list(self._workbook(values=False).sheetnames)

    def close(self) -> None:
        """Close the file."""
        for book in self._workbooks.values():
            book.close()

    def rows(self, title: str) -> list[WorkbookRow]:
        """The rows of a sheet, from the first. Raises `CatalogueError`."""
        lines = self._read_rows(title, values=False)
        if any(cell.data_type == "f" for line in lines for cell in line):
            kept = self._read_rows(title, values=True)  # the library gives either the formulas of a file or their values
            pairs = zip_longest(lines, kept, fillvalue=_NO_CELLS)
            return [[_with_stored_value(*pair) for pair in zip_longest(*both, fillvalue=_BLANK_CELL)] for both in pairs]
        return lines

    def _workbook(self, *, values: bool) -> Any:
        if values not in self._workbooks:
            self._workbooks[values] = load_workbook(BytesIO(self._content), read_only=True, data_only=values)
        return self._workbooks[values]

    def _read_rows(self, title: str, *, values: bool) -> list[WorkbookRow]:
        """The rows up to the last with content, each up to its last cell with content."""
        lines: list[WorkbookRow] = []
        blank_lines = 0
        with _translate_errors(self._path, f" (sheet {title})"):
            page = self._workbook(values=values)[title]
            page.reset_dimensions()  # some programs write a wrong size, and cells beyond it would be left out
            for line in page.iter_rows():
                row = _read_row(line)
                if len(lines) + blank_lines == _MAX_ROWS:
                    raise ValueError("a row beyond the last")
                if not row:
                    blank_lines += 1
                    continue
                self._cells += len(row)
                if len(row) > _MAX_COLUMNS or self._cells > _MAX_CELLS:
                    break
                lines += [_NO_CELLS] * blank_lines
                lines.append(row)
                blank_lines = 0
            else:
                return lines
        raise _too_large_error(self._path, f" (sheet {title})")


def _is_too_large(content: bytes) -> bool:
    """Whether its parts are larger than a catalogue's, counted as they are unpacked: a small file may hold any amount."""
    size = markup = 0
    with ZipFile(BytesIO(content)) as archive:
        for name in archive.namelist():
            with archive.open(name) as part:
                while portion := part.read(_PORTION):
                    size += len(portion)
                    markup += portion.count(b"<") + portion.count(b"=")
                    if size > _MAX_UNPACKED_BYTES or markup > _MAX_MARKUP:
                        return True
    return False


def _too_large_error(path: Path, where: str = "") -> CatalogueError:
    what = f"is larger than a catalogue can be{where}: cells to column {_MAX_COLUMNS}, {_MAX_UNPACKED_BYTES} bytes unpacked"
    hint = "remove columns, pictures and formats that are not needed, or use CSV files"
    return CatalogueError((Problem(str(path), what, hint),))


def _read_row(line: Sequence[Any]) -> WorkbookRow:
    end = len(line)
    while end and line[end - 1].value is None and line[end - 1].data_type != "f":
        end -= 1
    return [_BLANK_CELL if cell is EMPTY_CELL else _read_cell(cell) for cell in line[:end]]


def _with_stored_value(cell: WorkbookCell, stored: WorkbookCell) -> WorkbookCell:
    if cell.data_type != "f":
        return cell
    return WorkbookCell(None, "f", "") if stored.value is None else stored


def _read_cell(cell: Any) -> WorkbookCell:
    value, kind = cell.value, cell.data_type
    if value is None or isinstance(value, str):
        return WorkbookCell(value, kind, "")  # the format of a text says nothing, and takes time to find
    try:
        return WorkbookCell(value, kind, cell.number_format)
    except IndexError:
        return WorkbookCell(value, "?", "")


@contextmanager
def _translate_errors(path: Path, where: str = "") -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about drop-down lists of other programs
            yield
    # The library documents no errors: a damaged file makes it raise whatever its parts stumble over, from TypeError on.
    # Little but the library runs inside, so that no mistake of ours is taken for a damaged file.
    except Exception as exc:
        what = f"is not an XLSX workbook that can be read{where}"
        raise CatalogueError((Problem(str(path), what, "save it as an Excel workbook (.xlsx)"),)) from exc


def cell_to_text(value: Any, data_type: str, number_format: str, column_type: ColumnType) -> CellText:
    """Give the text of a cell; the arguments but the last are those of a `WorkbookCell`."""
    if isinstance(value, str) and data_type != "e":
        return normalize_text(_ESCAPED_CHARACTER.sub(lambda found: chr(int(found[1], 16)), value) if "_x" in value else value)
    if error := _unreadable_value(value, data_type):
        return error
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, date | time):
        return _date_to_text(value, column_type)
    if isinstance(value, int | float | Decimal):
        return _number_to_text(Decimal(format(value, ".15g") if isinstance(value, float) else value), number_format, column_type)
    return normalize_text(str("" if value is None else value))


def _unreadable_value(value: Any, data_type: str) -> CellError | None:
    if value is None and data_type == "f":
        return CellError("holds a formula without a value", "open the file in a spreadsheet program and save it")
    if data_type == "e":
        return CellError(f"holds the error {value}", "correct the formula, or write the value")
    if data_type == "?":
        return CellError("has a format that the workbook does not define", "format the cell again")
    if isinstance(value, timedelta):
        return CellError("holds a duration", "format the column as text, and write the cell again")
    return None


def _date_to_text(value: date | time, column_type: ColumnType) -> CellText:
    """A date of a date column has no offset in a workbook, so it is a time of this machine's zone."""
    if column_type is not ColumnType.DATE_TIME:
        return CellError("holds a date", "format the column as text, and write the cell again")
    if isinstance(value, time):
        return CellError("holds a time without a date", "write it as 2026-11-20T08:00+03:00")
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)  # noqa: DTZ001 - made aware below
    try:
        return moment.astimezone().isoformat(timespec="minutes")
    except (OverflowError, ValueError, OSError):  # the ends of the calendar, and years that this machine does not know
        return CellError(f"holds the year {value.year}", "write it as 2026-11-20T08:00+03:00")


def _number_to_text(value: Decimal, number_format: str, column_type: ColumnType) -> CellText:
    if not value.is_finite() or value.adjusted() > _MAX_DIGITS or value.adjusted() < -_MAX_DIGITS:
        return CellError("holds a number that is too large or too small", "write the number")
    value = value or Decimal(0)  # -0 is 0
    shown_format = _FORMAT_DECORATION.sub("", number_format) if column_type is ColumnType.NUMBER else number_format
    shown = _apply_number_format(value, shown_format)
    if shown is not None:
        return shown
    plain = value.to_integral_value() if value == value.to_integral_value() else value
    if column_type is ColumnType.CODE and plain.as_tuple().exponent != 0:
        what = f"holds the number {format(plain, 'f')}, and a code may have had zeros around it"
        return CellError(what, "format the column as text, and write the code again")
    return format(plain, "f")


def _apply_number_format(value: Decimal, number_format: str) -> str | None:
    """The number as its format shows it; None where the format is another kind, or shows fewer digits than there are."""
    found = _NUMBER_FORMAT.fullmatch(number_format.split(";", maxsplit=1)[0])
    if not found or value < 0:
        return None
    digits, places = found[1].count("0"), len(found[2] or "")
    rounded = value.quantize(Decimal((0, (1,), -places)), context=_EXACT_CONTEXT)
    if rounded != value:
        return None
    whole, _, rest = format(rounded, "f").partition(".")
    return whole.zfill(digits) + (f".{rest}" if rest else "")

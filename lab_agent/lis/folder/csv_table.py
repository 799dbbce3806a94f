"""A CSV file as rows of named fields: its encoding, delimiter and headings, and dates as spreadsheets write them.

Pure. What the file says of itself wins over the settings: a byte order mark, and a first line such as `sep=;`.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab_agent.lis.folder.settings import CsvSettings
from lab_agent.lis.value_reading import BLANKS
from lab_agent.shared.errors import DataInvalidError, Problem

_DATE_FIELDS = ("effective", "issued", "observed_at", "patient_birth_date")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins like that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SEPARATOR_LINE = re.compile(r'"?sep=(?P<delimiter>[^"\r\n])"?(?P<end>\r\n|\r|\n|$)', re.IGNORECASE)
_CUT_OFF_HINT = "have it written again; if the LIS never ends the last row, set csv.last_line_end to false"

Row = Sequence[str]


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """How a file is written: what is needed to write some of its rows again."""

    encoding: str
    delimiter: str
    separator_line: bool = False


@dataclass(frozen=True, slots=True)
class CsvTable:
    """The rows of a file, each with the number of its line, and the index of each field's column."""

    layout: CsvLayout
    headings: Row | None
    rows: Sequence[tuple[int, Row]]
    columns: Mapping[str, int]
    width: int
    """The number of columns: what every row has, but for empty cells behind the last one."""
    cut_off: int | None = None
    """The number of the last row if it has no line end: its writer was interrupted, or leaves the last one out."""

    def check_row(self, number: int, row: Row) -> None:
        """Raise `DataInvalidError` for a row of which nobody can say that its cells are whole and in their columns.

        A comma within a number shifts all cells behind it, and half a row ends with half a number.
        """
        empty = next((count for count, cell in enumerate(reversed(row)) if cell.strip()), len(row))
        cells = len(row) - (0 if self.layout.delimiter == "," else empty)  # a decimal comma makes a cell more, before empty ones
        if number == self.cut_off:
            raise data_error(f"row {number}", "has no line end: it may be cut off", _CUT_OFF_HINT)
        if cells > self.width:
            what = f"has {cells} cells, and there are {self.width} columns"
            raise data_error(f"row {number}", what, "put cells that contain the delimiter into quotation marks")
        if len(row) <= max(self.columns.values()):
            what = f"has {len(row)} cells, and a column of csv.columns is behind them"
            raise data_error(f"row {number}", what, "write all cells of a row, the empty ones too")

    def cell(self, row: Row, field: str) -> str:
        """A cell without the white space around it; empty if the row is short, or there is no such column."""
        index = self.columns.get(field)
        return row[index].strip(BLANKS) if index is not None and index < len(row) else ""

    def cells(self, row: Row) -> dict[str, str]:
        """The cells of a row by field, without the empty ones."""
        return {name: text for name in self.columns if (text := self.cell(row, name))}

    def write(self, rows: Sequence[Row]) -> bytes:
        """Write some of the rows as a file like this one, under the same headings."""
        text = io.StringIO(newline="")
        if self.layout.separator_line:
            text.write(f"sep={self.layout.delimiter}\r\n")
        csv.writer(text, delimiter=self.layout.delimiter).writerows([*([self.headings] if self.headings else []), *rows])
        return text.getvalue().encode(self.layout.encoding)


def detect_encoding(data: bytes, configured: str) -> str:
    """The encoding that a byte order mark says, else the configured one."""
    return next((encoding for mark, encoding in _BYTE_ORDER_MARKS if data.startswith(mark)), configured)


def read_table(data: bytes, settings: CsvSettings) -> CsvTable:
    """Read a file. Raises `DataInvalidError` if it is not valid CSV, or lacks a column."""
    layout, text = _decode(data, settings)
    rows = _parse_rows(text, layout, settings.max_rows)
    headings, body = (rows[0][1], rows[1:]) if settings.headings else (None, rows)
    cut_off = rows[-1][0] if settings.last_line_end and not text.endswith(("\n", "\r")) else None
    width = len(headings) if headings else max(Counter(len(row) for _, row in rows).items(), key=lambda one: one[::-1])[0]
    return CsvTable(layout, headings, body, _column_indexes(settings, headings), width, cut_off)


def row_fields(table: CsvTable, row: Row, settings: CsvSettings) -> dict[str, str]:
    """The fields of a row that are not empty, its dates in the form of the published schema; others stay as they are."""
    fields = table.cells(row)
    if settings.dates is not None:
        dates = (*_DATE_FIELDS, *(["value"] if fields.get("value_type") == "datetime" else []))
        fields |= {name: settings.dates.to_iso(fields[name]) for name in dates if name in fields}
    return fields


def _decode(data: bytes, settings: CsvSettings) -> tuple[CsvLayout, str]:
    encoding = detect_encoding(data, settings.encoding)
    try:
        text = data.decode(encoding)
    except (UnicodeDecodeError, ValueError):
        raise data_error(
            "document", f"is not encoded as {encoding}", "set csv.encoding to the encoding that the LIS uses"
        ) from None
    if "\0" in text:
        raise data_error("document", "contains a NUL character", "remove it, or set csv.encoding to utf-16-le if that is used")
    if found := _SEPARATOR_LINE.match(text):
        return CsvLayout(encoding, found["delimiter"], separator_line=True), "\n" + text[found.end() :]
    return CsvLayout(encoding, settings.delimiter), text


def _parse_rows(text: str, layout: CsvLayout, max_rows: int) -> list[tuple[int, Row]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=layout.delimiter, strict=True)
    rows: list[tuple[int, Row]] = []
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((reader.line_num, row))
            if len(rows) > max_rows:
                raise data_error("document", f"has more than {max_rows} rows", "send smaller files")
    except csv.Error:
        raise data_error(f"row {reader.line_num}", "is not a valid CSV row", "check its quotation marks") from None
    if not rows:
        raise data_error("document", "is empty", "write at least one row")
    return rows


def _column_indexes(settings: CsvSettings, head: Row | None) -> dict[str, int]:
    """The index of each field's column."""
    if head is None:
        wrong = [name for name, column in settings.columns.items() if not column.isdecimal() or int(column) < 1]
        if wrong:
            raise data_error("csv.columns", f"{wrong[0]} is not a column number", "write the column's number from 1, in quotes")
        return {name: int(column) - 1 for name, column in settings.columns.items()}
    headings = [cell.strip() for cell in head]
    for name, column in settings.columns.items():
        if headings.count(column) != 1:
            what = "is missing" if column not in headings else "occurs more than once"
            raise data_error("row 1", f"the column for {name} {what}", "set csv.columns to the headings that the LIS uses")
    return {name: headings.index(column) for name, column in settings.columns.items()}


def data_error(where: str, what: str, hint: str) -> DataInvalidError:
    """Make the error of one problem."""
    return DataInvalidError((Problem(where, what, hint),))

"""From cells to values: the header of a sheet, its rows, and each cell as the type that its column holds.

What is wrong with a cell is collected with its place, and a harmless value stands in for it, so that laboratory staff get all
problems at once. CSV files, workbooks and the store share this module, so that they accept the same cells.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from lab_agent.catalogue.spreadsheet.schema import SHEETS, Column, Sheet, SheetRow, SheetTable
from lab_agent.shared.errors import Problem, did_you_mean, fold_rows

MAX_CELL_CHARACTERS = 32_767
"""What a cell of a workbook can hold; the limit of CSV files too, so that any catalogue can be written as a workbook."""
MAX_HOURS = Decimal(100 * 366 * 24)
"""A century: what is longer is a slip, and would not fit into the calendar."""
SURPLUS_COLUMN = ""
"""The name under which `build_rows` finds cells beyond the last column of the header."""

_YES_WORDS = frozenset({"yes", "y", "true", "1", "x", "да"})
_NO_WORDS = frozenset({"", "no", "n", "false", "0", "-", "нет"})
_MAX_SHOWN_CHARACTERS = 100
_MAX_SUGGESTIONS = 20  # a close match among thousands of codes takes its time; a long list of errors needs none
_MAX_NUMBER = Decimal(10) ** 12
_NUMBER_PATTERN = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?")
_INVALID_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # a workbook cannot hold them
_SHEET_ORDER = {sheet.name: place for place, sheet in enumerate(SHEETS)}
_EPOCH = datetime.fromisoformat("1970-01-01T00:00+00:00")


@dataclass(slots=True)
class SpreadsheetProblems:
    """What is wrong so far. `partial_sheets` are those whose codes are not all known: nothing is said to be missing in them."""

    partial_sheets: frozenset[str] = frozenset()
    _entries: list[tuple[int, int, Problem]] = field(default_factory=list)

    @property
    def ordered(self) -> tuple[Problem, ...]:
        """All problems, in the order of the sheets and their rows; what belongs to no sheet comes first."""
        return fold_rows(problem for _, _, problem in sorted(self._entries, key=lambda each: each[:2]))

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, row: SheetRow, column: str | None, what: str, hint: str) -> None:
        """Add a problem of a cell, or of a whole row; none of a cell that could not be read, which is a problem already."""
        if column not in row.unreadable_columns:
            self.add_to_source(row.source, Problem.in_cell(row.cell(column), what, hint), row.number)

    def add_to_source(self, source: str, problem: Problem, row: int = 0) -> None:
        """Add a problem of a file or sheet."""
        self._entries.append((_SHEET_ORDER.get(source.removesuffix(".csv"), -1), row, problem))


@dataclass(frozen=True, slots=True)
class CellError:
    """Why a cell cannot be read, and what to do about it."""

    what: str
    hint: str


CellText = str | CellError


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads the cells of one row."""

    row: SheetRow
    problems: SpreadsheetProblems

    def text(self, column: str) -> str:
        """The text, without blanks around it; empty for a cell that could not be read."""
        return self.row.cells.get(column, "")

    def has_unreadable(self, *columns: str) -> bool:
        """Whether one of these cells could not be read."""
        return not self.row.unreadable_columns.isdisjoint(columns)

    def add_problem(self, column: str | None, what: str, hint: str) -> None:
        """Add a problem of a cell, or of the whole row."""
        self.problems.add(self.row, column, what, hint)

    def optional_text(self, column: str) -> str | None:
        """The text, or None if the cell is empty."""
        return self.text(column) or None

    def boolean(self, column: str) -> bool:
        """Yes or no; an empty cell is no."""
        text = self.text(column).lower()
        if text not in _YES_WORDS | _NO_WORDS:
            self.add_problem(column, f"{_quote_shortened(text)} is neither yes nor no", "write yes or no")
        return text in _YES_WORDS

    def lines(self, column: str) -> tuple[str, ...]:
        """Texts, one per line or separated by `|`."""
        return tuple(part for each in re.split(r"[\n\r|]", self.text(column)) if (part := each.strip()))

    def codes(self, column: str) -> tuple[str, ...]:
        """Codes, separated by blanks or semicolons."""
        return tuple(filter(None, re.split(r"[\s;]+", self.text(column))))

    def number(self, column: str, maximum: Decimal = _MAX_NUMBER) -> Decimal:
        """A decimal from 0 to `maximum`, with a point or a comma; 0 for an empty or bad cell."""
        text = self.text(column)
        if not text:
            return Decimal(0)
        plain = text.replace(",", ".") if text.count(",") == 1 and "." not in text else text
        value = Decimal(plain) if _NUMBER_PATTERN.fullmatch(plain) else None
        if value is None or not 0 <= value <= maximum:
            range_ = "of 0 or more" if maximum == _MAX_NUMBER else f"from 0 to {maximum}"
            self.add_problem(column, f"{_quote_shortened(text)} is not a number {range_}", "write digits, as in 2.5")
            return Decimal(0)
        return abs(value)  # -0.00 would be sent as it stands

    def whole_number(self, column: str) -> int:
        """A whole number without leading zeros; 0 for an empty or bad cell."""
        text = self.text(column)
        if text and not re.fullmatch(r"0|[1-9][0-9]{0,11}", text):
            self.add_problem(column, f"{_quote_shortened(text)} is not a whole number", "write digits without leading zeros")
            return 0
        return int(text or 0)

    def date_time(self, column: str) -> datetime:
        """A date and time with UTC offset. An empty cell is a problem already (`check_required_cells`)."""
        if not self.text(column):
            return _EPOCH
        try:
            value = datetime.fromisoformat(self.text(column))
            value.astimezone(UTC)  # in another zone, the first and the last day are beyond the calendar
        except (ValueError, OverflowError):
            value = None
        if value is None or value.tzinfo is None:
            what = f"{_quote_shortened(self.text(column))} is not a date and time with UTC offset"
            self.add_problem(column, what, "write it as 2026-11-20T08:00+03:00")
            return _EPOCH
        return value

    def one_of(self, column: str, allowed: Iterable[str]) -> str:
        """One of the allowed words; the first of them in place of anything else. An empty cell is a problem already."""
        words, text = tuple(allowed), self.text(column).lower()
        if text in words or not text:
            return text or words[0]
        self.add_problem(column, f"{_quote_shortened(text)} is not one of {', '.join(words)}", f"write {' or '.join(words)}")
        return words[0]

    def reference(self, column: str, known_codes: Collection[str], sheet: str) -> str | None:
        """A code that another sheet defines; None if it does not (a problem), or if the cell is empty.

        No problem where that sheet was read in part: the code may be in what is missing.
        """
        text = self.text(column)
        if not text or text in known_codes:
            return text or None
        if sheet.partition(" ")[0] not in self.problems.partial_sheets:
            close = did_you_mean(text, known_codes) if len(self.problems) < _MAX_SUGGESTIONS else ""
            hint = close or f"add it to the sheet {sheet}, or correct the code"
            self.add_problem(column, f"{_quote_shortened(text)} is not in the sheet {sheet}", hint)
        return None


def rows_by_key(table: SheetTable, column: str, problems: SpreadsheetProblems) -> Iterator[tuple[str | None, RowReader]]:
    """The rows with their key; None for a row without one or with one of an earlier row, so that its cells are checked too."""
    first: dict[str, int] = {}
    for row in table.rows:
        cells = RowReader(row, problems)
        key = cells.text(column)
        if key in first:
            cells.add_problem(column, f"{key!r} is already in row {first[key]}", "keep one of the two")
            yield None, cells
            continue
        if key:
            first[key] = row.number
        yield key or None, cells


def check_required_cells(tables: Iterable[tuple[Sheet, SheetTable]], problems: SpreadsheetProblems) -> None:
    """Add a problem for each empty cell of a required column, and for each row with more cells than the header."""
    for sheet, table in tables:
        required = [column for column in sheet.columns if column.required]
        for row in table.rows:
            if SURPLUS_COLUMN in row.cells:
                problems.add(row, None, "has more cells than the header", "quote cells that hold the separator")
            for column in required:
                if not row.cells.get(column.name) and column.name not in row.unreadable_columns:
                    problems.add(row, column.name, "is empty", f"fill it: {column.description}")


def partially_read_sheets(tables: Mapping[str, SheetTable]) -> frozenset[str]:
    """The sheets of which some codes are not known: they were not read whole, or a cell that identifies a row was not."""
    return frozenset(
        sheet.name
        for sheet in SHEETS
        if not tables[sheet.name].is_complete
        or any(not row.unreadable_columns.isdisjoint((*sheet.key, "type")) for row in tables[sheet.name].rows)
    )


def resolve_header(source: str, header: Collection[str], sheet: Sheet, problems: SpreadsheetProblems) -> list[Column] | None:
    """The columns in the order of the header; None, with the problems added, if it is not right."""
    columns = {column.name: column for column in sheet.columns}
    wrong = list(_header_problems(source, list(header), sheet, columns))
    for each in wrong:
        problems.add_to_source(source, each, 1)
    return None if wrong else [columns[name] for name in header]


def _header_problems(source: str, header: list[str], sheet: Sheet, columns: Mapping[str, Column]) -> Iterator[Problem]:
    where = f"{source} row 1"
    for name in header:
        if name not in columns:
            hint = did_you_mean(name, columns) or "remove it"
            yield Problem(f"{where}, column {name or '(empty)'}", "is not a column of this sheet", hint)
    for column in sheet.columns:
        if column.required and column.name not in header and (header or not sheet.optional):
            yield Problem(where, f"the column {column.name} is missing", f"add it: {column.description}")
    for name in columns:
        if header.count(name) > 1:
            yield Problem(f"{where}, column {name}", "appears twice", "remove one")


def build_rows(source: str, lines: Iterable[Mapping[str, CellText]], problems: SpreadsheetProblems) -> tuple[SheetRow, ...]:
    """The rows below the header, without the empty ones."""
    rows = (_build_row(source, number, cells, problems) for number, cells in enumerate(lines, start=2))
    return tuple(row for row in rows if row.unreadable_columns or any(row.cells.values()))


def _build_row(source: str, number: int, cells: Mapping[str, CellText], problems: SpreadsheetProblems) -> SheetRow:
    """The row of these cells. One that cannot be read is a problem, and marked, so that no later check complains of it again."""
    texts: dict[str, str] = {}
    unreadable: set[str] = set()
    for name, text in cells.items():
        error = text if isinstance(text, CellError) else find_cell_error(text)
        if error is None:
            texts[name] = str(text)
        else:
            problems.add(SheetRow(source, number, {}), name, error.what, error.hint)
            unreadable.add(name)
    return SheetRow(source, number, texts, frozenset(unreadable))


def normalize_text(text: str) -> str:
    """The text without blanks around it, its line ends folded to newlines."""
    return (text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text).strip()


def find_cell_error(text: str) -> CellError | None:
    """Why no cell may hold this text; None if one may."""
    if text.isascii() and text.isprintable() and len(text) <= MAX_CELL_CHARACTERS:
        return None  # nearly every cell
    if found := _INVALID_CHARACTERS.search(text):
        return CellError(f"holds the control character U+{ord(found[0]):04X}", "remove it: write the cell again by hand")
    if len(text) * 2 > MAX_CELL_CHARACTERS and _utf16_length(text) > MAX_CELL_CHARACTERS:
        return CellError(f"holds more than {MAX_CELL_CHARACTERS} characters", "shorten it")
    return None


def _utf16_length(text: str) -> int:
    """The number of characters as spreadsheet programs count them."""
    return len(text.encode("utf-16-le")) // 2


def _quote_shortened(text: str) -> str:
    return repr(text) if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]!r}…"

"""Cells of a spreadsheet into values. A bad cell is noted with its place and gives a harmless value, so that all come at once.

What a cell may hold at all, so that a workbook, a CSV file and the store say the same.

A workbook cannot hold control characters, nor more than 32,767 characters in a cell: such a cell would come back as another.
So it is a mistake in a CSV file too. A line end is a line end, however the file writes it.

The first row of a sheet: which column is where, and what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from lab_agent.catalogue.spreadsheet.schema import SHEETS, Column, Sheet, SheetRow, SheetTable
from lab_agent.errors import Problem, did_you_mean

_YES_WORDS = frozenset({"yes", "y", "true", "1", "x", "да"})
_NO_WORDS = frozenset({"", "no", "n", "false", "0", "-", "нет"})
_MAX_SHOWN_CHARACTERS = 100
_MAX_SUGGESTIONS = 20  # a close match among thousands of codes takes its time; a long list of errors needs none
_MAX_NUMBER = Decimal(10) ** 12
MAX_HOURS = Decimal(100 * 366 * 24)
"""A century: what is longer is a slip, and would not fit a moment of the calendar."""
_NUMBER_PATTERN = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?")
_SHEET_ORDER = {sheet.name: place for place, sheet in enumerate(SHEETS)}
_EPOCH = datetime.fromisoformat("1970-01-01T00:00+00:00")


@dataclass(slots=True)
class SpreadsheetProblems:
    """What is wrong so far. `partial` names the sheets whose codes are not all known: nobody can say what they lack."""

    partial_sheets: frozenset[str] = frozenset()
    _entries: list[tuple[int, int, Problem]] = field(default_factory=list)

    @property
    def ordered(self) -> tuple[Problem, ...]:
        """All of them, in the order of the sheets and their rows; what belongs to no sheet comes first."""
        return tuple(problem for _, _, problem in sorted(self._entries, key=lambda each: each[:2]))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._entries)

    def add(self, row: SheetRow, column: str | None, what: str, hint: str) -> None:
        """Note a problem of a cell, or of a whole row; of a cell that could not be read, enough was said."""
        if column not in row.unreadable_columns:
            self.add_to_source(row.source, Problem(row.where(column), what, hint), row.number)

    def add_to_source(self, source: str, problem: Problem, row: int = 0) -> None:
        """Note a problem of a file or sheet."""
        self._entries.append((_SHEET_ORDER.get(source.removesuffix(".csv"), -1), row, problem))


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads the cells of one row."""

    row: SheetRow
    problems: SpreadsheetProblems

    def text(self, column: str) -> str:
        """The text, without blanks around it; nothing for a cell that could not be read."""
        return self.row.cells.get(column, "")

    def has_unreadable(self, *columns: str) -> bool:
        """Whether one of these cells could not be read."""
        return not self.row.unreadable_columns.isdisjoint(columns)

    def optional_text(self, column: str) -> str | None:
        """The text, or None if the cell is empty."""
        return self.text(column) or None

    def boolean(self, column: str) -> bool:
        """Yes or no; an empty cell is no."""
        text = self.text(column).lower()
        if text not in _YES_WORDS | _NO_WORDS:
            self.problems.add(self.row, column, f"{_quote_shortened(text)} is neither yes nor no", "write yes or no")
        return text in _YES_WORDS

    def lines(self, column: str) -> tuple[str, ...]:
        """Texts, one per line or separated by `|`."""
        return tuple(part for each in re.split(r"[\n\r|]", self.text(column)) if (part := each.strip()))

    def codes(self, column: str) -> tuple[str, ...]:
        """Codes, separated by blanks or semicolons."""
        return tuple(filter(None, re.split(r"[\s;]+", self.text(column))))

    def number(self, column: str, maximum: Decimal = _MAX_NUMBER) -> Decimal:
        """A decimal from 0 to `most`, with a point or a comma; 0 for an empty or bad cell."""
        text = self.text(column)
        if not text:
            return Decimal(0)
        plain = text.replace(",", ".") if text.count(",") == 1 and "." not in text else text
        value = Decimal(plain) if _NUMBER_PATTERN.fullmatch(plain) else None
        if value is None or not 0 <= value <= maximum:
            range_ = "from 0" if maximum == _MAX_NUMBER else f"from 0 to {maximum}"
            self.problems.add(self.row, column, f"{_quote_shortened(text)} is not a number {range_}", "write digits, as in 2.5")
            return Decimal(0)
        return abs(value)  # -0.00 would be sent as it stands

    def whole_number(self, column: str) -> int:
        """A whole number without leading zeros; 0 for an empty or bad cell."""
        text = self.text(column)
        if text and not re.fullmatch(r"0|[1-9][0-9]{0,11}", text):
            self.problems.add(
                self.row, column, f"{_quote_shortened(text)} is not a whole number", "write digits without leading zeros"
            )
            return 0
        return int(text or 0)

    def date_time(self, column: str) -> datetime:
        """A date and time with offset; an empty cell was noted already."""
        if not self.text(column):
            return _EPOCH
        try:
            value = datetime.fromisoformat(self.text(column))
            value.astimezone(UTC)  # the first and the last day of the calendar are beyond it in another zone
        except (ValueError, OverflowError):
            value = None
        if value is None or value.tzinfo is None:
            what = f"{_quote_shortened(self.text(column))} is not a date and time with offset"
            self.problems.add(self.row, column, what, "write it as 2026-11-20T08:00+03:00")
            return _EPOCH
        return value

    def one_of(self, column: str, allowed: Iterable[str]) -> str:
        """One of the words that are allowed; the first of them in place of anything else. An empty cell was noted already."""
        words, text = tuple(allowed), self.text(column).lower()
        if text in words or not text:
            return text or words[0]
        self.problems.add(
            self.row, column, f"{_quote_shortened(text)} is not one of {', '.join(words)}", f"write {' or '.join(words)}"
        )
        return words[0]

    def reference(self, column: str, known_codes: Collection[str], sheet: str) -> str | None:
        """A code that another sheet defines; None (noted) if it does not, None if the cell is empty.

        Nothing is noted where that sheet was not read whole: the code may be in what is missing.
        """
        text = self.text(column)
        if not text:
            return None
        if text in known_codes:
            return text
        if sheet.partition(" ")[0] in self.problems.partial_sheets:
            return None
        close = did_you_mean(text, known_codes) if len(self.problems) < _MAX_SUGGESTIONS else ""
        mend = close or f"add it to the sheet {sheet}, or correct the code"
        self.problems.add(self.row, column, f"{_quote_shortened(text)} is not in the sheet {sheet}", mend)
        return None


def check_required_cells(tables: Iterable[tuple[Sheet, SheetTable]], problems: SpreadsheetProblems) -> None:
    """Note each empty cell of a column that must be filled, and each row with more cells than the header."""
    for sheet, table in tables:
        must = [column for column in sheet.columns if column.required]
        for row in table.rows:
            if "" in row.cells:
                problems.add(row, None, "has more cells than the header", "quote cells that hold the separator")
            for column in must:
                if not row.cells.get(column.name) and column.name not in row.unreadable_columns:
                    problems.add(row, column.name, "is empty", f"fill it: {column.description}")


def partially_read_sheets(tables: Mapping[str, SheetTable]) -> frozenset[str]:
    """The sheets of which some codes are not known: they were not read whole, or a cell was not that tells rows apart."""
    return frozenset(
        sheet.name
        for sheet in SHEETS
        if not tables[sheet.name].is_complete
        or any(
            not row.unreadable_columns.isdisjoint((*sheet.key, "type"))
            for row in tables[sheet.name].rows
            if row.unreadable_columns
        )
    )


def _quote_shortened(text: str) -> str:
    return repr(text) if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]!r}…"


MAX_CELL_CHARACTERS = 32_767
_INVALID_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class CellError:
    """A cell that cannot be read: what is wrong, and the mend."""

    what: str
    hint: str


def normalize_text(text: str) -> str:
    """The text without blanks around it, its line ends folded to newlines."""
    return (text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text).strip()


def find_cell_error(text: str) -> CellError | None:
    """Why a cell may not hold this text; None if it may."""
    if text.isascii() and text.isprintable() and len(text) <= MAX_CELL_CHARACTERS:
        return None  # nearly every cell
    if found := _INVALID_CHARACTERS.search(text):
        return CellError(f"holds the control character U+{ord(found[0]):04X}", "remove it: write the cell again by hand")
    if (
        len(text) * 2 > MAX_CELL_CHARACTERS and len(text.encode("utf-16-le")) // 2 > MAX_CELL_CHARACTERS
    ):  # as spreadsheet programs count
        return CellError(f"holds more than {MAX_CELL_CHARACTERS} characters", "shorten it")
    return None


def build_row(source: str, number: int, raw_cells: Mapping[str, str | CellError], problems: SpreadsheetProblems) -> SheetRow:
    """The row of these cells. What cannot be read is noted, and marked, so that later checks are silent about it."""
    cells: dict[str, str] = {}
    unread: set[str] = set()
    for name, text in raw_cells.items():
        why = text if isinstance(text, CellError) else find_cell_error(text)
        if why is None:
            cells[name] = str(text)
        else:
            problems.add(SheetRow(source, number, {}), name, why.what, why.hint)
            unread.add(name)
    return SheetRow(source, number, cells, frozenset(unread))


def resolve_header(source: str, header: list[str], sheet: Sheet, problems: list[Problem]) -> list[Column] | None:
    """The columns in the order of the header; None, with the problems noted, if it is not right."""
    known = {column.name: column for column in sheet.columns}
    wrong = [
        Problem(
            f"{source} row 1, column {name or '(empty)'}",
            "is not a column of this sheet",
            did_you_mean(name, known) or "remove it",
        )
        for name in header
        if name not in known
    ]
    wrong += [
        Problem(f"{source} row 1", f"the column {column.name} is missing", f"add it: {column.description}")
        for column in sheet.columns
        if column.required and column.name not in header and (header or not sheet.optional)
    ]
    wrong += [
        Problem(f"{source} row 1, column {name}", "is there twice", "remove one") for name in known if header.count(name) > 1
    ]
    problems += wrong
    return None if wrong else [known[name] for name in header]

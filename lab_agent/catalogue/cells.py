"""Cells of a spreadsheet into values. A bad cell is noted with its place and gives a harmless value, so that all come at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from difflib import get_close_matches

from lab_agent.catalogue.sheets import SHEETS, Row, Sheet, Table
from lab_agent.errors import Problem

_YES = frozenset({"yes", "y", "true", "1", "x", "да"})
_NO = frozenset({"", "no", "n", "false", "0", "-", "нет"})
_SHOWN = 100
_SUGGESTIONS = 20  # a close match among thousands of codes takes its time; a long list of errors needs none
_LARGEST = Decimal(10) ** 12
LONGEST_HOURS = Decimal(100 * 366 * 24)
"""A century: what is longer is a slip, and would not fit a moment of the calendar."""
_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?")
_ORDER = {sheet.name: place for place, sheet in enumerate(SHEETS)}
_EPOCH = datetime.fromisoformat("1970-01-01T00:00+00:00")


@dataclass(slots=True)
class Problems:
    """What is wrong so far. `partial` names the sheets whose codes are not all known: nobody can say what they lack."""

    partial: frozenset[str] = frozenset()
    _noted: list[tuple[int, int, Problem]] = field(default_factory=list)

    @property
    def found(self) -> tuple[Problem, ...]:
        """All of them, in the order of the sheets and their rows; what belongs to no sheet comes first."""
        return tuple(problem for _, _, problem in sorted(self._noted, key=lambda each: each[:2]))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._noted)

    def add(self, row: Row, column: str | None, what: str, mend: str) -> None:
        """Note a problem of a cell, or of a whole row; of a cell that could not be read, enough was said."""
        if column not in row.unread:
            self.note(row.source, Problem(row.where(column), what, mend), row.number)

    def note(self, source: str, problem: Problem, row: int = 0) -> None:
        """Note a problem of a file or sheet."""
        self._noted.append((_ORDER.get(source.removesuffix(".csv"), -1), row, problem))


@dataclass(frozen=True, slots=True)
class Cells:
    """Reads the cells of one row."""

    row: Row
    problems: Problems

    def text(self, column: str) -> str:
        """The text, without blanks around it; nothing for a cell that could not be read."""
        return self.row.cells.get(column, "")

    def unread(self, *columns: str) -> bool:
        """Whether one of these cells could not be read."""
        return not self.row.unread.isdisjoint(columns)

    def maybe(self, column: str) -> str | None:
        """The text, or None if the cell is empty."""
        return self.text(column) or None

    def yes(self, column: str) -> bool:
        """Yes or no; an empty cell is no."""
        text = self.text(column).lower()
        if text not in _YES | _NO:
            self.problems.add(self.row, column, f"{_short(text)} is neither yes nor no", "write yes or no")
        return text in _YES

    def lines(self, column: str) -> tuple[str, ...]:
        """Texts, one per line or separated by `|`."""
        return tuple(part for each in re.split(r"[\n\r|]", self.text(column)) if (part := each.strip()))

    def codes(self, column: str) -> tuple[str, ...]:
        """Codes, separated by blanks or semicolons."""
        return tuple(filter(None, re.split(r"[\s;]+", self.text(column))))

    def number(self, column: str, most: Decimal = _LARGEST) -> Decimal:
        """A decimal from 0 to `most`, with a point or a comma; 0 for an empty or bad cell."""
        text = self.text(column)
        if not text:
            return Decimal(0)
        plain = text.replace(",", ".") if text.count(",") == 1 and "." not in text else text
        value = Decimal(plain) if _NUMBER.fullmatch(plain) else None
        if value is None or not 0 <= value <= most:
            range_ = "from 0" if most == _LARGEST else f"from 0 to {most}"
            self.problems.add(self.row, column, f"{_short(text)} is not a number {range_}", "write digits, as in 2.5")
            return Decimal(0)
        return abs(value)  # -0.00 would be sent as it stands

    def whole(self, column: str) -> int:
        """A whole number without leading zeros; 0 for an empty or bad cell."""
        text = self.text(column)
        if text and not re.fullmatch(r"0|[1-9][0-9]{0,11}", text):
            self.problems.add(self.row, column, f"{_short(text)} is not a whole number", "write digits without leading zeros")
            return 0
        return int(text or 0)

    def moment(self, column: str) -> datetime:
        """A date and time with offset; an empty cell was noted already."""
        if not self.text(column):
            return _EPOCH
        try:
            value = datetime.fromisoformat(self.text(column))
            value.astimezone(UTC)  # the first and the last day of the calendar are beyond it in another zone
        except (ValueError, OverflowError):
            value = None
        if value is None or value.tzinfo is None:
            what = f"{_short(self.text(column))} is not a date and time with offset"
            self.problems.add(self.row, column, what, "write it as 2026-11-20T08:00+03:00")
            return _EPOCH
        return value

    def one_of(self, column: str, allowed: Iterable[str]) -> str:
        """One of the words that are allowed; the first of them in place of anything else. An empty cell was noted already."""
        words, text = tuple(allowed), self.text(column).lower()
        if text in words or not text:
            return text or words[0]
        self.problems.add(self.row, column, f"{_short(text)} is not one of {', '.join(words)}", f"write {' or '.join(words)}")
        return words[0]

    def known(self, column: str, names: Collection[str], sheet: str) -> str | None:
        """A code that another sheet defines; None (noted) if it does not, None if the cell is empty.

        Nothing is noted where that sheet was not read whole: the code may be in what is missing.
        """
        text = self.text(column)
        if not text:
            return None
        if text in names:
            return text
        if sheet.partition(" ")[0] in self.problems.partial:
            return None
        close = did_you_mean(text, names) if len(self.problems) < _SUGGESTIONS else ""
        mend = close or f"add it to the sheet {sheet}, or correct the code"
        self.problems.add(self.row, column, f"{_short(text)} is not in the sheet {sheet}", mend)
        return None


def check_filled(tables: Iterable[tuple[Sheet, Table]], problems: Problems) -> None:
    """Note each empty cell of a column that must be filled, and each row with more cells than the header."""
    for sheet, table in tables:
        must = [column for column in sheet.columns if column.filled]
        for row in table.rows:
            if "" in row.cells:
                problems.add(row, None, "has more cells than the header", "quote cells that hold the separator")
            for column in must:
                if not row.cells.get(column.name) and column.name not in row.unread:
                    problems.add(row, column.name, "is empty", f"fill it: {column.about}")


def partly_read(tables: Mapping[str, Table]) -> frozenset[str]:
    """The sheets of which some codes are not known: they were not read whole, or a cell was not that tells rows apart."""
    return frozenset(
        sheet.name
        for sheet in SHEETS
        if not tables[sheet.name].whole
        or any(not row.unread.isdisjoint((*sheet.key, "type")) for row in tables[sheet.name].rows if row.unread)
    )


def _short(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """A suggestion, or nothing."""
    close = get_close_matches(text[:50], list(known), n=1, cutoff=0.75)
    return f"did you mean {close[0]!r}?" if close else ""

"""The rim to openpyxl: the cells of a workbook's sheets, and nothing but `CatalogueError` for a file that is damaged."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from openpyxl import load_workbook
from openpyxl.cell.read_only import EMPTY_CELL

from lab_agent.errors import CatalogueError, Problem

_LAST_ROW = 1_048_576  # of the format itself; openpyxl would count up to any number that a damaged file names


class Seen(NamedTuple):
    """One cell. `kind` is the data type that the file gives it: e for an error, f for a formula, ? for an unknown format."""

    value: Any
    kind: str
    number_format: str


_EMPTY = Seen(None, "n", "")
Line = list[Seen]


class WorkbookFile:
    """An open workbook. A cell with a formula has the value that the spreadsheet program kept with it; None if it kept none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._books: dict[bool, Any] = {}
        try:
            self._content = path.read_bytes()  # the library leaves a file open that it cannot read
        except OSError as exc:
            raise CatalogueError((Problem(str(path), f"cannot be read: {exc.strerror}", "name a workbook"),)) from exc
        with _translated(path):
            self.titles: list[str] = list(self._book(values=False).sheetnames)

    def close(self) -> None:
        """Close the file."""
        for book in self._books.values():
            book.close()

    def lines(self, title: str) -> list[Line]:
        """The rows of a sheet, from the first. Raises `CatalogueError`."""
        lines = self._lines(title, values=False)
        if any(cell.kind == "f" for line in lines for cell in line):
            kept = self._lines(title, values=True)  # the library gives either the formulas of a file or their values
            return [[_valued(*pair) for pair in zip(*both, strict=False)] for both in zip(lines, kept, strict=False)]
        return lines

    def _book(self, *, values: bool) -> Any:
        if values not in self._books:
            self._books[values] = load_workbook(BytesIO(self._content), read_only=True, data_only=values)
        return self._books[values]

    def _lines(self, title: str, *, values: bool) -> list[Line]:
        lines: list[Line] = []
        with _translated(self._path, f" (sheet {title})"):
            page = self._book(values=values)[title]
            page.reset_dimensions()  # some programs write a wrong size, and cells beyond it would be left out
            for line in page.iter_rows():
                if len(lines) == _LAST_ROW:
                    raise ValueError("a row beyond the last")
                lines.append([_EMPTY if cell is EMPTY_CELL else _seen(cell) for cell in line])
        return lines


def _valued(cell: Seen, kept: Seen) -> Seen:
    if cell.kind != "f":
        return cell
    return Seen(None, "f", "") if kept.value is None else kept


def _seen(cell: Any) -> Seen:
    value, kind = cell.value, cell.data_type
    if value is None or isinstance(value, str):
        return Seen(value, kind, "")  # its format says nothing, and takes its time
    try:
        return Seen(value, kind, cell.number_format)
    except IndexError:
        return Seen(value, "?", "")


@contextmanager
def _translated(path: Path, where: str = "") -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # drop-down lists of other programs, which we have no use for
            yield
    # The library documents no errors: a damaged file makes it raise whatever its parts stumble over, from TypeError on.
    # Little but the library runs inside, so that no mistake of ours is taken for a damaged file.
    except Exception as exc:
        what = f"is not an XLSX workbook that can be read{where}"
        raise CatalogueError((Problem(str(path), what, "save it as an Excel workbook (.xlsx)"),)) from exc

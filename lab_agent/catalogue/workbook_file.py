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

_MAX_ROWS = 1_048_576  # of the format itself; openpyxl would count up to any number that a damaged file names


class WorkbookCell(NamedTuple):
    """One cell. `kind` is the data type that the file gives it: e for an error, f for a formula, ? for an unknown format."""

    value: Any
    data_type: str
    number_format: str


_BLANK_CELL = WorkbookCell(None, "n", "")
WorkbookRow = list[WorkbookCell]


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
            return [[_with_stored_value(*pair) for pair in zip(*both, strict=False)] for both in zip(lines, kept, strict=False)]
        return lines

    def _workbook(self, *, values: bool) -> Any:
        if values not in self._workbooks:
            self._workbooks[values] = load_workbook(BytesIO(self._content), read_only=True, data_only=values)
        return self._workbooks[values]

    def _read_rows(self, title: str, *, values: bool) -> list[WorkbookRow]:
        lines: list[WorkbookRow] = []
        with _translate_errors(self._path, f" (sheet {title})"):
            page = self._workbook(values=values)[title]
            page.reset_dimensions()  # some programs write a wrong size, and cells beyond it would be left out
            for line in page.iter_rows():
                if len(lines) == _MAX_ROWS:
                    raise ValueError("a row beyond the last")
                lines.append([_BLANK_CELL if cell is EMPTY_CELL else _read_cell(cell) for cell in line])
        return lines


def _with_stored_value(cell: WorkbookCell, stored: WorkbookCell) -> WorkbookCell:
    if cell.data_type != "f":
        return cell
    return WorkbookCell(None, "f", "") if stored.value is None else stored


def _read_cell(cell: Any) -> WorkbookCell:
    value, kind = cell.value, cell.data_type
    if value is None or isinstance(value, str):
        return WorkbookCell(value, kind, "")  # its format says nothing, and takes its time
    try:
        return WorkbookCell(value, kind, cell.number_format)
    except IndexError:
        return WorkbookCell(value, "?", "")


@contextmanager
def _translate_errors(path: Path, where: str = "") -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # drop-down lists of other programs, which we have no use for
            yield
    # The library documents no errors: a damaged file makes it raise whatever its parts stumble over, from TypeError on.
    # Little but the library runs inside, so that no mistake of ours is taken for a damaged file.
    except Exception as exc:
        what = f"is not an XLSX workbook that can be read{where}"
        raise CatalogueError((Problem(str(path), what, "save it as an Excel workbook (.xlsx)"),)) from exc

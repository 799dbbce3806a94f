"""Mapping tables from a folder of CSV files, as spreadsheet programs save them; all problems are reported at once.

`codes.csv`, `units.csv` and `answers.csv` may each be missing. UTF-8 with or without a byte order mark, commas or semicolons.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import structlog

from lab_agent.results.mapping_tables import LOINC, LocalAnswer, LocalCode, MappingTables, is_loinc, is_ucum, is_visible_ascii
from lab_agent.shared.errors import Cell, Problem, ProblemsError, fold_rows
from lab_agent.shared.values import Coding

log = structlog.get_logger(__name__)

K = TypeVar("K")
V = TypeVar("V")
Row = Mapping[str, str]

COLUMNS: Mapping[str, Mapping[str, bool]] = {
    "codes.csv": {"code": True, "loinc": True, "display": False, "system": False},
    "units.csv": {"unit": True, "ucum": True},
    "answers.csv": {
        "answer": True, "system": True, "code": True, "display": False, "observation": False, "answer_system": False,
    },
}  # fmt: skip
"""Each table's columns, and whether their cells must be filled."""
_INVISIBLE_CHARACTERS = "\u00a0\u200b\u200c\u200d\u2060\ufeff\u00ad"


class MappingsError(ProblemsError):
    """The mapping tables are not valid:"""


def load_mapping_tables(folder: Path) -> MappingTables:
    """Load the tables. Raises `MappingsError` with every problem, each with file, row and column."""
    if not folder.is_dir():
        raise MappingsError((Problem(str(folder), "is not a folder", "name the folder that contains codes.csv and the others"),))
    problems = _find_unknown_files(folder)
    texts = {name: _read_text(folder / name, problems) for name in COLUMNS}
    sheets = {name: _parse_rows(name, text, problems) for name, text in texts.items() if text is not None}
    parser = _TableParser(problems)
    found = MappingTables(
        codes=parser.parse(sheets, "codes.csv", _code_key, _parse_code),
        units=parser.parse(sheets, "units.csv", lambda row: row["unit"], _parse_unit),
        answers=parser.parse(sheets, "answers.csv", _answer_key, _parse_answer),
        version=hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:16],
    )
    if problems:
        raise MappingsError(fold_rows(problems))
    return found


class MappingCache:
    """The tables of one folder; without a folder, codes pass unchanged. A reload that fails keeps the old tables."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._tables = MappingTables() if folder is None else None

    def current(self) -> MappingTables | None:
        """The current tables, read at the first use; None while the folder could not be read: reports are held then."""
        if self._tables is None:
            self.reload()
        return self._tables

    def reload(self) -> bool:
        """Read the folder again; False, and the problems are logged, if it could not be read."""
        if self._folder is None:
            return True
        try:
            fresh = load_mapping_tables(self._folder)
        except MappingsError as exc:
            log.error("mapping tables not read", action="mappings_invalid", reason=str(exc))  # noqa: TRY400 - an error of the data
            return False
        if self._tables is None or self._tables.version != fresh.version:
            log.info("mapping tables read", action="mappings_read", version=fresh.version)
        self._tables = fresh
        return True


class _TableParser:
    """Makes tables of rows, collecting the problems."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems

    def parse(
        self,
        sheets: Mapping[str, list[tuple[int, Row]]],
        name: str,
        key_of: Callable[[Row], K],
        value_of: Callable[[Row], tuple[V, list[tuple[str, str, str]]]],
    ) -> dict[K, V] | None:
        if name not in sheets:
            return None
        made: dict[K, V] = {}
        seen: dict[K, int] = {}
        for number, row in sheets[name]:
            if not self._is_filled(name, number, row):
                continue
            key, (value, wrong) = key_of(row), value_of(row)
            self._problems += [Problem.in_cell(_cell(name, number, column), what, hint) for column, what, hint in wrong]
            if key in seen:
                first = next(iter(COLUMNS[name]))
                what = f"{row[first]!r} is in row {seen[key]} already"
                self._problems.append(Problem.in_cell(_cell(name, number, first), what, "keep one of the two rows"))
            seen.setdefault(key, number)
            made.setdefault(key, value)
        return made

    def _is_filled(self, name: str, number: int, row: Row) -> bool:
        columns = COLUMNS[name]
        empty = [column for column, must in columns.items() if must and not row.get(column)]
        self._problems += [
            Problem.in_cell(_cell(name, number, column), "is empty", "fill it, or remove the row") for column in empty
        ]
        hidden = [column for column in columns if any(sign in row.get(column, "") for sign in _INVISIBLE_CHARACTERS)]
        hint = "type the cell again"
        self._problems += [
            Problem.in_cell(_cell(name, number, column), "contains an invisible character", hint) for column in hidden
        ]
        if "" in row:
            self._problems.append(
                Problem.in_cell(Cell(name, number, None, number), "has more cells than the header", "quote its cells")
            )
        return not empty


def _code_key(row: Row) -> LocalCode:
    return (row.get("system") or None, row["code"])


def _parse_code(row: Row) -> tuple[Coding, list[tuple[str, str, str]]]:
    code, wrong = row["loinc"], []
    if not is_visible_ascii(code):
        wrong.append(("loinc", f"{code!r} is not plain ASCII", "type it again, with an ordinary hyphen"))
    elif not is_loinc(code):
        wrong.append(("loinc", f"{code!r} is not a LOINC code: its form or its check digit is wrong", "check the code"))
    return Coding(system=LOINC, code=code, display=row.get("display") or None), wrong


def _parse_unit(row: Row) -> tuple[str, list[tuple[str, str, str]]]:
    code = row["ucum"]
    if is_ucum(code):
        return code, []
    hint = "write it in plain ASCII without blanks, brackets in pairs, as in 10*9/L"
    return code, [("ucum", f"{code!r} is not a UCUM code", hint)]


def _answer_key(row: Row) -> LocalAnswer:
    return (row.get("observation") or None, row.get("answer_system") or None, row["answer"])


def _parse_answer(row: Row) -> tuple[Coding, list[tuple[str, str, str]]]:
    wrong = [
        (column, f"{row[column]!r} is not plain ASCII", "type it again, without blanks")
        for column in ("system", "code")
        if not is_visible_ascii(row[column])
    ]
    if not wrong and ":" not in row["system"]:
        wrong.append(("system", f"{row['system']!r} is not a URI", "write one such as http://snomed.info/sct"))
    return Coding(system=row["system"], code=row["code"], display=row.get("display") or None), wrong


def _find_unknown_files(folder: Path) -> list[Problem]:
    unknown = sorted(path.name for path in folder.glob("*.csv") if path.name not in COLUMNS)
    return [Problem(name, "is not a mapping table", f"the tables are {', '.join(COLUMNS)}") for name in unknown]


def _read_text(path: Path, problems: list[Problem]) -> str | None:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        problems.append(Problem(path.name, "is not UTF-8", "save it as CSV UTF-8"))
    except OSError as exc:
        problems.append(Problem(path.name, f"cannot be read: {exc.strerror}", "check the permissions of the file"))
    return None


def _parse_rows(name: str, text: str, problems: list[Problem]) -> list[tuple[int, Row]]:
    """Rows with their numbers as a spreadsheet shows them; none if the header is wrong."""
    first = text.partition("\n")[0]
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=";" if ";" in first else ",", strict=True))
    except csv.Error as exc:
        problems.append(Problem(name, f"is not CSV: {exc}", "close the quotation marks"))
        return []
    header = [cell.strip() for cell in lines[0]] if lines else []
    wrong = [Problem(f"{name} row 1", f"has no column {each}", "add it") for each in _missing_columns(name, header)]
    wrong += [
        Problem.in_cell(_cell(name, 1, each), "is not a column of this table", f"the columns are {', '.join(COLUMNS[name])}")
        for each in header
        if each not in COLUMNS[name]
    ]
    wrong += [
        Problem.in_cell(_cell(name, 1, each), "is there twice", "remove one") for each in set(header) if header.count(each) > 1
    ]
    problems += wrong
    if wrong:
        return []
    return [(number, _to_row(header, line)) for number, line in enumerate(lines[1:], start=2) if any(map(str.strip, line))]


def _missing_columns(name: str, header: list[str]) -> list[str]:
    return [column for column, must in COLUMNS[name].items() if must and column not in header]


def _to_row(header: list[str], line: list[str]) -> Row:
    cells = {column: cell.strip(" \t\r\n") for column, cell in zip(header, line, strict=False)}
    surplus = any(cell.strip() for cell in line[len(header) :])
    return {**cells, "": "surplus"} if surplus else cells


def _cell(name: str, number: int, column: str) -> Cell:
    return Cell(name, number, column or "(empty)", number)

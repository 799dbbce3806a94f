"""Rows that the mapping tables lack, and adding them to the files: nothing that is there changes, and the result is checked."""

from __future__ import annotations

import csv
import io
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab_agent.lis.lab_messages import ReportedObservation
from lab_agent.results.code_translation import MissingKind, MissingMapping
from lab_agent.results.mapping_loader import COLUMNS, MappingsError, load_mapping_tables
from lab_agent.results.mapping_tables import is_loinc, is_ucum, is_visible_ascii
from lab_agent.results.trial.trial_outcomes import PartOutcome
from lab_agent.results.well_known_codes import propose_answer, propose_ucum
from lab_agent.shared.atomic_file import rewrite_atomically
from lab_agent.shared.errors import Problem

_FILES = {MissingKind.CODE: "codes.csv", MissingKind.UNIT: "units.csv", MissingKind.ANSWER: "answers.csv"}
_TARGETS = {"codes.csv": "loinc", "units.csv": "ucum", "answers.csv": "code"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A row for a mapping table; `about` is what people call the code. `cells` may lack the target: a person fills it."""

    file: str
    cells: Mapping[str, str]
    about: str = ""

    @property
    def key(self) -> str:
        """The laboratory's own word."""
        return self.cells[next(iter(COLUMNS[self.file]))]

    @property
    def is_complete(self) -> bool:
        """Whether every cell that must be filled is."""
        return all(self.cells.get(column) for column, must in COLUMNS[self.file].items() if must)

    def fill(self, target: str) -> TableRow:
        """The row with its target; for an answer, `SYSTEM|CODE`. Raises `ValueError`."""
        cells = dict(self.cells)
        if self.file == "answers.csv":
            cells["system"], _, cells["code"] = target.rpartition("|")
        else:
            cells[_TARGETS[self.file]] = target
        filled = replace(self, cells=cells)
        if not filled.is_complete or not _is_target(self.file, cells):
            raise ValueError(f"{target!r} cannot be the {_TARGETS[self.file]} of {self.key}")
        return filled


def _is_target(file: str, cells: Mapping[str, str]) -> bool:
    if file == "codes.csv":
        return is_loinc(cells["loinc"])
    if file == "units.csv":
        return is_ucum(cells["ucum"])
    return ":" in cells["system"] and is_visible_ascii(cells["system"]) and is_visible_ascii(cells["code"])


def rows_for(outcomes: Iterable[PartOutcome]) -> tuple[TableRow, ...]:
    """The rows that are missing for these parts, each once."""
    found: dict[tuple[str, str, str], TableRow] = {}
    for outcome in outcomes:
        named = [each.reported for each in outcome.observations]
        for missing in outcome.missing:
            if missing.kind in _FILES:
                row = _row_for(missing, named)
                found.setdefault((row.file, row.key, row.cells.get("observation", "")), row)
    return tuple(found.values())


def _row_for(missing: MissingMapping, reported: Sequence[ReportedObservation]) -> TableRow:
    file = _FILES[missing.kind]
    if missing.kind is MissingKind.CODE:
        about = next((each.code.display or "" for each in reported if each.code.code == missing.value), "")
        return TableRow(file=file, cells={"code": missing.value}, about=about)
    if missing.kind is MissingKind.UNIT:
        return TableRow(file=file, cells={"unit": missing.value, "ucum": propose_ucum(missing.value) or ""})
    text = _answer_text(missing, reported)
    system, code, display = propose_answer(missing.value, text) or ("", "", "")
    cells = {
        "answer": missing.value,
        "system": system,
        "code": code,
        "display": display,
        "observation": missing.observation or "",
    }
    return TableRow(file=file, cells=cells, about=text)


def _answer_text(missing: MissingMapping, reported: Sequence[ReportedObservation]) -> str:
    for each in reported:
        concept = each.value_codeable_concept
        if concept and each.code.code == missing.observation:
            for coding in concept.coding:
                if coding.code == missing.value:
                    return coding.display or concept.text or ""
    return ""


def csv_lines(file: str, rows: Iterable[TableRow], columns: Sequence[str], delimiter: str = ",") -> list[str]:
    """The rows as lines of their file, in the order of its columns."""
    lines = []
    for row in rows:
        if row.file == file:
            page = io.StringIO()
            csv.writer(page, delimiter=delimiter, lineterminator="").writerow([row.cells.get(column, "") for column in columns])
            lines.append(page.getvalue())
    return lines


@dataclass(frozen=True, slots=True)
class TableChange:
    """The lines to add to one file, and its whole text after that."""

    path: Path
    lines: tuple[str, ...]
    text: str


def plan_changes(folder: Path, rows: Iterable[TableRow]) -> tuple[TableChange, ...]:
    """What the files would be with these rows, in their own columns, delimiter and line ends; a new file gets its header.

    Raises `MappingsError` where the tables are not valid, before or with the rows.
    """
    listed = list(rows)
    changes = tuple(_plan_file(folder / file, [row for row in listed if row.file == file]) for file in _present(listed))
    _check(folder, changes)
    return changes


def write_changes(changes: Iterable[TableChange]) -> None:
    """Put each file in the place of what is there, at once and with its permissions. Raises `OSError`."""
    for change in changes:
        change.path.parent.mkdir(parents=True, exist_ok=True)
        rewrite_atomically(change.path, change.text.encode("utf-8"))


def _present(rows: Sequence[TableRow]) -> Iterator[str]:
    return (file for file in COLUMNS if any(row.file == file for row in rows))


def _plan_file(path: Path, rows: Sequence[TableRow]) -> TableChange:
    text = path.read_bytes().decode("utf-8") if path.exists() else ""
    end = "\r\n" if "\r\n" in text else "\n"
    if not text.strip():
        text = ",".join(COLUMNS[path.name]) + end
    header = text.removeprefix("\ufeff").splitlines()[0]
    delimiter = ";" if ";" in header else ","
    columns = [cell.strip() for cell in next(csv.reader([header], delimiter=delimiter))]
    lines = csv_lines(path.name, rows, columns, delimiter)
    before = text if text.endswith("\n") else text + end
    return TableChange(path, tuple(lines), before + "".join(line + end for line in lines))


def _check(folder: Path, changes: Sequence[TableChange]) -> None:
    """Load the tables as they would be."""
    with tempfile.TemporaryDirectory() as name:
        trial = Path(name)
        for file in folder.glob("*.csv") if folder.is_dir() else ():
            shutil.copyfile(file, trial / file.name)
        for change in changes:
            (trial / change.path.name).write_bytes(change.text.encode("utf-8"))
        load_mapping_tables(trial)


def require_folder(folder: Path | None) -> Path:
    """The folder of the tables. Raises `MappingsError` where none is set."""
    if folder is None:
        hint = "set it to a folder, or name one with --tables"
        raise MappingsError((Problem("results.mappings", "is not set: there are no mapping tables to add to", hint),))
    return folder

"""Results as CSV: the rows of a file become messages, one for each report. Pure.

A report with an invalid row is rejected as a whole, and alone: the other reports of the file are accepted (law 9).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from lab_agent.lis.folder.csv_table import CsvTable, Row, data_error, read_table, row_fields
from lab_agent.lis.folder.settings import CsvSettings
from lab_agent.lis.lab_messages import LabMessage
from lab_agent.lis.patient_columns import PATIENT_FIELDS, to_patient
from lab_agent.lis.serialization import load_message
from lab_agent.lis.tabular_values import OBSERVATION_FIELDS, drop_none, read_observations
from lab_agent.lis.value_reading import ValueRules
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError, Problem

_PARTIAL_DATE = re.compile(r"\d{4}(-\d\d){0,2}", re.ASCII)
NumberedRow = tuple[int, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class CsvReport:
    """The rows of one report, and what they became: a message, or the problems for which they are rejected.

    `name` is short and stable, and unique in the file.
    """

    name: str
    rows: tuple[tuple[int, Row], ...]
    message: LabMessage | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def place(self) -> str:
        """Where its rows stand in the file."""
        numbers = [str(number) for number, _ in self.rows]
        return f"rows {', '.join(numbers[:20])}{', …' if len(numbers) > 20 else ''}"


@dataclass(frozen=True, slots=True)
class CsvResults:
    """A parsed file."""

    table: CsvTable
    reports: tuple[CsvReport, ...]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of all reports, each with its rows."""
        return tuple(
            Problem(f"{report.place}: {one.where}", one.what, one.hint) for report in self.reports for one in report.problems
        )

    @property
    def rejected_rows(self) -> bytes | None:
        """The invalid rows under the same headings, in the same encoding: once corrected, a file to read again."""
        rows = [row for report in self.reports if report.problems for _, row in report.rows]
        return self.table.write(rows) if rows else None


def parse_csv(data: bytes, settings: CsvSettings, zone: tzinfo | None, file_time: datetime) -> CsvResults:
    """Parse a file. `file_time` is when a report was issued that says nothing but days.

    Raises `DataInvalidError` if it is not valid CSV at all.
    """
    table = read_table(data, settings)
    reader = _ReportReader(table, settings, zone, file_time)
    return CsvResults(table, tuple(reader.read(name, rows) for name, rows in _group_by_report(table).items()))


def _group_by_report(table: CsvTable) -> dict[str, tuple[tuple[int, Row], ...]]:
    """Group the rows by report id, and by version if there is such a column."""
    groups: dict[str, list[tuple[int, Row]]] = {}
    for number, row in table.rows:
        name = "|".join(table.cell(row, field) for field in ("report_id", "version") if field in table.columns)
        groups.setdefault(name, []).append((number, row))
    return {name: tuple(rows) for name, rows in groups.items()}


@dataclass(frozen=True, slots=True)
class _ReportReader:
    table: CsvTable
    settings: CsvSettings
    zone: tzinfo | None
    file_time: datetime

    def read(self, name: str, rows: tuple[tuple[int, Row], ...]) -> CsvReport:
        """Read the rows of one report."""
        short = hashlib.sha256(name.encode()).hexdigest()[:16]
        try:
            for number, row in rows:
                self.table.check_row(number, row)
            fields = [(number, row_fields(self.table, row, self.settings)) for number, row in rows]
            return CsvReport(short, rows, load_message(exact_json.dumps(self._to_json(fields)), time_zone=self.zone))
        except DataInvalidError as exc:
            return CsvReport(short, rows, problems=exc.problems)

    def _to_json(self, rows: Sequence[NumberedRow]) -> dict[str, Any]:
        effective = _single_value(rows, "effective")
        head = {
            "report_id": _single_value(rows, "report_id"),
            "version": _parse_version(_single_value(rows, "version")),
            "status": _single_value(rows, "status") or "final",
            **{name: _single_value(rows, name) for name in ("order", "accession", "barcode")},
            "effective": effective,
            "issued": _single_value(rows, "issued") or self._issued(effective),
            "patient": to_patient({name: _single_value(rows, name) for name in PATIENT_FIELDS}),
        }
        parts = {
            "lines": _distinct_values(rows, "line"),
            "items": _distinct_values(rows, "item") if not _distinct_values(rows, "line") else None,
            "observations": self._observations(rows),
            "not_performed": list(_not_performed(rows)),
        }
        return drop_none({**head, **{name: item for name, item in parts.items() if item}})

    def _observations(self, rows: Sequence[NumberedRow]) -> list[dict[str, Any]]:
        """The values. Raises `DataInvalidError`, with all that cannot be read for certain."""
        system = {"code_system": self.settings.code_system}
        given = [{name: fields[name] for name in OBSERVATION_FIELDS if name in fields} for _, fields in rows if has_value(fields)]
        read = read_observations(({**system, **fields} for fields in given), ValueRules(self.settings.decimal_comma))
        if read.problems:
            raise DataInvalidError(read.problems)
        return read.observations

    def _issued(self, effective: str | None) -> str | None:
        """When a report was issued that does not say it: at the time of its values, or, if that is a day, of its file."""
        return self.file_time.isoformat() if effective and _PARTIAL_DATE.fullmatch(effective) else effective


def has_value(fields: Mapping[str, str]) -> bool:
    """Whether the row is a value: a code without one lacks it, unless the test was not performed."""
    return "value" in fields or ("code" in fields and "not_performed" not in fields)


def _not_performed(rows: Sequence[NumberedRow]) -> Iterator[dict[str, Any]]:
    for number, fields in rows:
        if reason := fields.get("not_performed"):
            if "code" in fields and not {"line", "item"} & set(fields):
                what = "has a reason and a code, but neither a line nor an item"
                raise data_error("not_performed", f"row {number} {what}", "fill in line or item; a code names no ordered test")
            yield drop_none({"line": fields.get("line"), "item": fields.get("item"), "reason": reason})


def _single_value(rows: Sequence[NumberedRow], name: str) -> str | None:
    values = dict.fromkeys(fields[name] for _, fields in rows if name in fields)
    if len(values) > 1:
        raise data_error(name, "differs between the rows of this report", "give each report its own report_id")
    return next(iter(values), None)


def _distinct_values(rows: Sequence[NumberedRow], name: str) -> list[str] | None:
    return list(dict.fromkeys(fields[name] for _, fields in rows if name in fields)) or None


def _parse_version(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else text

"""Results as CSV: the rows of a file become messages, one for each report. Pure.

A report with an invalid row is rejected as a whole, and alone: the other reports of the file are accepted (law 9).
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from lab_agent import exact_json
from lab_agent.domain.lab_messages import LabMessage
from lab_agent.errors import DataInvalidError, Problem
from lab_agent.lis.folder.settings import CsvSettings
from lab_agent.lis.patient_columns import PATIENT_FIELDS, to_patient
from lab_agent.lis.tabular_values import OBSERVATION_FIELDS, drop_none, to_observation
from lab_agent.serialization import load_message

_DECIMAL_COMMA = re.compile(r"([<>]=?\s*)?[+-]?\d+,\d+", re.ASCII)
_NUMERIC_FIELDS = ("value", "low", "high")

NumberedRow = tuple[int, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class CsvResults:
    """A parsed file: its messages by short stable names, the problems of the others, and their rows."""

    messages: Mapping[str, LabMessage]
    problems: tuple[Problem, ...]
    rejected_rows: bytes | None
    """The invalid rows under the same headings, in the same encoding: once corrected, a file to read again."""


def parse_csv(data: bytes, settings: CsvSettings, zone: ZoneInfo | None) -> CsvResults:
    """Parse a file. Raises `DataInvalidError` if it is not valid CSV at all."""
    rows = _parse_rows(data, settings)
    head, body = (rows[0], rows[1:]) if settings.headings else (None, rows)
    places = _column_indexes(settings, head[1] if head else None)
    messages: dict[str, LabMessage] = {}
    problems: list[Problem] = []
    bad: list[Sequence[str]] = []
    for name, group in _group_by_report(body, places).items():
        fields = [(number, _row_fields(row, places, settings)) for number, row in group]
        try:
            messages[hashlib.sha256(name.encode()).hexdigest()[:16]] = _parse_message(fields, settings, zone)
        except DataInvalidError as exc:
            where = f"rows {', '.join(str(number) for number, _ in group[:20])}"
            problems += [Problem(f"{where}: {one.where}", one.what, one.hint) for one in exc.problems]
            bad += [row for _, row in group]
    rejected = _write_rows([*([head[1]] if head else []), *bad], settings) if bad else None
    return CsvResults(messages, tuple(problems), rejected)


def _parse_rows(data: bytes, settings: CsvSettings) -> list[tuple[int, list[str]]]:
    try:
        text = data.decode(settings.encoding)
    except (UnicodeDecodeError, ValueError):
        raise _data_error(
            "document", f"is not encoded as {settings.encoding}", "set csv.encoding to the encoding that the LIS uses"
        ) from None
    if "\0" in text:
        raise _data_error("document", "contains a NUL character", "remove it")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=settings.delimiter, strict=True)
    rows: list[tuple[int, list[str]]] = []
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((reader.line_num, row))
            if len(rows) > settings.max_rows:
                raise _data_error("document", f"has more than {settings.max_rows} rows", "send smaller files")
    except csv.Error:
        raise _data_error(f"row {reader.line_num}", "is not a valid CSV row", "check its quotation marks") from None
    if not rows:
        raise _data_error("document", "is empty", "write at least one row")
    return rows


def _column_indexes(settings: CsvSettings, head: Sequence[str] | None) -> dict[str, int]:
    """The index of each field's column."""
    if head is None:
        wrong = [name for name, column in settings.columns.items() if not column.isdecimal() or int(column) < 1]
        if wrong:
            raise _data_error("csv.columns", f"{wrong[0]} is not a column number", "write the column's number from 1, in quotes")
        return {name: int(column) - 1 for name, column in settings.columns.items()}
    headings = [cell.strip() for cell in head]
    for name, column in settings.columns.items():
        if headings.count(column) != 1:
            what = "is missing" if column not in headings else "occurs more than once"
            raise _data_error("row 1", f"the column for {name} {what}", "set csv.columns to the headings that the LIS uses")
    return {name: headings.index(column) for name, column in settings.columns.items()}


def _group_by_report(
    rows: Sequence[tuple[int, list[str]]], column_indexes: Mapping[str, int]
) -> dict[str, list[tuple[int, list[str]]]]:
    """Group the rows by report id, and by version if there is such a column."""
    groups: dict[str, list[tuple[int, list[str]]]] = {}
    for number, row in rows:
        name = "|".join(_cell(row, column_indexes[field]) for field in ("report_id", "version") if field in column_indexes)
        groups.setdefault(name, []).append((number, row))
    return groups


def _row_fields(row: Sequence[str], column_indexes: Mapping[str, int], settings: CsvSettings) -> dict[str, str]:
    fields = {name: text for name, place in column_indexes.items() if (text := _cell(row, place))}
    if settings.decimal_comma:
        numbers = {name: fields[name] for name in _NUMERIC_FIELDS if name in fields and _DECIMAL_COMMA.fullmatch(fields[name])}
        fields |= {name: text.replace(",", ".") for name, text in numbers.items()}
    return fields


def _parse_message(rows: Sequence[NumberedRow], settings: CsvSettings, zone: ZoneInfo | None) -> LabMessage:
    head = {
        "report_id": _single_value(rows, "report_id"),
        "version": _parse_version(_single_value(rows, "version")),
        "status": _single_value(rows, "status") or "final",
        **{name: _single_value(rows, name) for name in ("order", "accession", "barcode")},
        "effective": _single_value(rows, "effective"),
        "issued": _single_value(rows, "issued") or _single_value(rows, "effective"),
        "patient": to_patient({name: _single_value(rows, name) for name in PATIENT_FIELDS}),
    }
    parts = {
        "lines": _distinct_values(rows, "line"),
        "items": _distinct_values(rows, "item") if not _distinct_values(rows, "line") else None,
        "observations": [_observation(fields, settings) for _, fields in rows if _has_value(fields)],
        "not_performed": list(_not_performed(rows)),
    }
    tree = drop_none({**head, **{name: item for name, item in parts.items() if item}})
    return load_message(exact_json.dumps(tree), time_zone=zone)


def _observation(fields: Mapping[str, str], settings: CsvSettings) -> dict[str, Any]:
    return to_observation(
        {"code_system": settings.code_system, **{name: fields[name] for name in OBSERVATION_FIELDS if name in fields}}
    )


def _has_value(fields: Mapping[str, str]) -> bool:
    """Whether the row is a value: a code without one lacks it, unless the test was not performed."""
    return "value" in fields or ("code" in fields and "not_performed" not in fields)


def _not_performed(rows: Sequence[NumberedRow]) -> Iterator[dict[str, Any]]:
    for number, fields in rows:
        if reason := fields.get("not_performed"):
            if "code" in fields and not {"line", "item"} & set(fields):
                what = "has a reason and a code, but neither a line nor an item"
                raise _data_error("not_performed", f"row {number} {what}", "fill in line or item; a code names no ordered test")
            yield drop_none({"line": fields.get("line"), "item": fields.get("item"), "reason": reason})


def _single_value(rows: Sequence[NumberedRow], name: str) -> str | None:
    values = dict.fromkeys(fields[name] for _, fields in rows if name in fields)
    if len(values) > 1:
        raise _data_error(name, "differs between the rows of this report", "give each report its own report_id")
    return next(iter(values), None)


def _distinct_values(rows: Sequence[NumberedRow], name: str) -> list[str] | None:
    return list(dict.fromkeys(fields[name] for _, fields in rows if name in fields)) or None


def _parse_version(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else text


def _cell(row: Sequence[str], index: int) -> str:
    return row[index].strip() if index < len(row) else ""


def _write_rows(rows: Sequence[Sequence[str]], settings: CsvSettings) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=settings.delimiter).writerows(rows)
    return text.getvalue().encode(settings.encoding)


def _data_error(where: str, what: str, hint: str) -> DataInvalidError:
    return DataInvalidError((Problem(where, what, hint),))

"""What the settings of CSV files lack, judged by a file: encoding, delimiter, headings, numbers, dates and zone. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from lab_agent.lis.code_page_guess import CodePageGuess, guess_code_pages
from lab_agent.lis.folder.csv_results import parse_csv
from lab_agent.lis.folder.csv_table import CsvTable, detect_encoding, read_table
from lab_agent.lis.folder.settings import CsvSettings
from lab_agent.lis.laboratory_system import MapSuggestion
from lab_agent.lis.raw_messages import time_zone_suggestion
from lab_agent.lis.value_reading import suggests_decimal_comma
from lab_agent.shared.errors import DataInvalidError

_DELIMITERS = (";", ",", "\t", "|")
_DATES = (
    (re.compile(r"\d\d?\.\d\d?\.\d{4}\b.*"), "%d.%m.%Y"),
    (re.compile(r"\d{4}\.\d\d?\.\d\d?\b.*"), "%Y.%m.%d"),
    (re.compile(r"\d{14}"), "%Y%m%d%H%M%S"),
    (re.compile(r"\d{12}"), "%Y%m%d%H%M"),
    (re.compile(r"\d{8}"), "%Y%m%d"),
    (re.compile(r"(?:1[3-9]|2\d|3[01])/\d\d?/\d{4}\b.*"), "%d/%m/%Y"),
)
_SLASH_DATE = re.compile(r"\d\d?/\d\d?/\d{4}\b.*")
_NEEDED_COLUMNS = ("report_id", "barcode", "effective", "code", "value", "unit")
_LOINC = CsvSettings.model_fields["code_system"].default
_LOINC_FORM = re.compile(r"\d{1,7}-\d", re.ASCII)
_NOISE = re.compile(rb"[\x00-\x08\x0e-\x1f]")
"""Control characters that no text has: noise is full of letters in any code page, and proposes nothing."""


def suggest_csv_settings(data: bytes, settings: CsvSettings, zone: ZoneInfo | None, table: str) -> tuple[MapSuggestion, ...]:
    """The lines to add: of the table `csv`, and of the adapter's own `table`. Values are written as in TOML."""
    found: list[MapSuggestion] = []

    def apply(changes: Iterator[tuple[str, Any, str]]) -> None:
        nonlocal settings
        for key, value, reason in changes:
            settings = settings.model_copy(update={key: value} if value is not None else {})
            found.append(_suggestion(f"{table}.csv", key, value, reason))

    apply(_encoding(data, settings))
    apply(_delimiter(data, settings))
    found += _columns(data, settings, f"{table}.csv.columns")
    if (read := _read(data, settings)) is not None:
        apply(_numbers(read, settings))
        apply(_dates(read, settings))
        apply(_code_system(read, settings))
        if zone is None and _problem_count(data, settings, None) > _problem_count(data, settings, UTC):
            found.append(time_zone_suggestion(table))
    return tuple(found)


def suggest_csv_table(data: bytes, table: str) -> tuple[MapSuggestion, ...]:
    """The columns that the table `csv` needs at least, for a file that it does not describe yet."""
    settings = CsvSettings.model_construct(columns={}, headings=False)
    lines = [(key, value, reason) for key, value, reason in _encoding(data, settings)]
    settings = settings.model_copy(update={key: value for key, value, _ in lines if value is not None})
    lines += _delimiter(data, settings)
    settings = settings.model_copy(update={key: value for key, value, _ in lines if value is not None})
    reason = f"a column each; the first row is: {', '.join(_head(data, settings, settings.delimiter))}"
    found = [_suggestion(f"{table}.csv", key, value, why) for key, value, why in lines]
    return (*found, *(_suggestion(f"{table}.csv.columns", name, None, reason) for name in _NEEDED_COLUMNS))


def guess_encoding(data: bytes, encoding: str) -> CodePageGuess | None:
    """In which encoding the file can be read, if it cannot be read in this one."""
    if _decode(data, detect_encoding(data, encoding)) is not None or _NOISE.search(data):
        return None
    return guess_code_pages(data)


def _suggestion(table: str, key: str, value: Any, reason: str) -> MapSuggestion:
    written = None if value is None else json.dumps(value, ensure_ascii=False)
    return MapSuggestion(table=table, key=key, value=written, reason=reason)


def _encoding(data: bytes, settings: CsvSettings) -> Iterator[tuple[str, Any, str]]:
    if (guess := guess_encoding(data, settings.encoding)) is not None:
        yield "encoding", guess.page, f"the file is not encoded as {settings.encoding}; {guess.reason}"


def _decode(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, ValueError):
        return None


def _head(data: bytes, settings: CsvSettings, delimiter: str) -> list[str]:
    """The cells of the first row, with another delimiter and no headings known."""
    plain = settings.model_copy(update={"delimiter": delimiter, "headings": False, "columns": {}})
    table = _read(data, plain)
    return [cell.strip() for cell in table.rows[0][1]] if table else []


def _delimiter(data: bytes, settings: CsvSettings) -> Iterator[tuple[str, Any, str]]:
    counts = {one: len(_head(data, settings, one)) for one in dict.fromkeys((settings.delimiter, *_DELIMITERS))}
    best = max(counts, key=lambda one: counts[one])
    if counts[settings.delimiter] <= 1 < counts[best]:
        yield "delimiter", best, "the first row has no other separator that occurs as often"


def _columns(data: bytes, settings: CsvSettings, table: str) -> list[MapSuggestion]:
    """The columns that are missing, each with its heading where only its writing differs: a person answers for anything else."""
    headings = _head(data, settings, settings.delimiter) if settings.headings else []
    unused = [heading for heading in headings if heading not in settings.columns.values()]
    missing = {name: column for name, column in settings.columns.items() if headings and column not in headings}
    return [_column(table, name, column, unused) for name, column in missing.items()]


def _column(table: str, name: str, column: str, unused: Sequence[str]) -> MapSuggestion:
    alike = [heading for heading in unused if _letters(heading) == _letters(column)]
    heading = alike[0] if len(alike) == 1 else None
    return _suggestion(table, name, heading, f"no column has the heading {column}; not used yet: {', '.join(unused)}")


def _letters(heading: str) -> str:
    """A heading without what people write differently: case, spaces and punctuation."""
    return "".join(char for char in unicodedata.normalize("NFKC", heading).casefold() if char.isalnum())


def _numbers(table: CsvTable, settings: CsvSettings) -> Iterator[tuple[str, Any, str]]:
    comma = False if settings.decimal_comma else suggests_decimal_comma(_cells(table, ("value", "low", "high")))
    if comma is not False:
        reason = "numbers have a decimal comma" if comma else "numbers have a comma before three digits: decimals, or thousands?"
        yield "decimal_comma", comma, reason


def _dates(table: CsvTable, settings: CsvSettings) -> Iterator[tuple[str, Any, str]]:
    written = list(_cells(table, ("effective", "issued", "observed_at")))
    if settings.dates is not None or not written:
        return
    reason = "dates are not written as in ISO 8601 (2024-05-17)"
    formats = [form for pattern, form in _DATES if any(map(pattern.fullmatch, written))]
    if formats:
        yield "date_format", formats[0], reason
    elif any(map(_SLASH_DATE.fullmatch, written)):
        yield "date_format", None, f"{reason}: nobody can tell the day from the month here"


def _code_system(table: CsvTable, settings: CsvSettings) -> Iterator[tuple[str, Any, str]]:
    """The codes cannot be LOINC's: nobody but the laboratory knows whose they are."""
    if settings.code_system != _LOINC:
        return
    codes = (table.cell(row, "code") for _, row in table.rows if not table.cell(row, "code_system"))
    own = next((code for code in codes if code and not _LOINC_FORM.fullmatch(code)), None)
    if own is not None:
        reason = f"{own} is no LOINC code: name the laboratory's own code system, such as urn:lab:codes"
        yield "code_system", None, reason


def _cells(table: CsvTable, fields: Sequence[str]) -> Iterator[str]:
    return (text for _, row in table.rows for field in fields if (text := table.cell(row, field)))


def _read(data: bytes, settings: CsvSettings) -> CsvTable | None:
    try:
        return read_table(data, settings)
    except DataInvalidError:
        return None


def _problem_count(data: bytes, settings: CsvSettings, zone: Any) -> int:
    return len(parse_csv(data, settings, zone, datetime.now(UTC)).problems)

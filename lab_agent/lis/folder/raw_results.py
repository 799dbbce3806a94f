"""What a result file says, read from its bytes alone: the same for a file that arrives and for one that an operator looks at."""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePath

from lab_agent.lis.folder.csv_results import CsvReport, CsvResults, has_value, parse_csv
from lab_agent.lis.folder.csv_suggestions import guess_encoding, suggest_csv_settings, suggest_csv_table
from lab_agent.lis.folder.csv_table import detect_encoding
from lab_agent.lis.folder.documents import DocumentReader, MissingDocuments
from lab_agent.lis.folder.files import SettleTracker, matches_pattern
from lab_agent.lis.folder.settings import CsvSettings, FolderSettings
from lab_agent.lis.lab_messages import LabMessage, LabReport
from lab_agent.lis.laboratory_system import MapSuggestion, ParsedMessage, ParsedPart, TraceLine
from lab_agent.lis.patient_columns import PATIENT_FIELDS
from lab_agent.lis.raw_messages import (
    describe_observation,
    format_problems,
    message_id,
    name_words,
    names_somebody,
    parse_json_message,
)
from lab_agent.lis.serialization import load_message
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError, Problem

_FILE_ID = re.compile(r"(?P<name>.+):(?P<mtime>\d+):\d+:[0-9a-f]{16}", re.ASCII | re.DOTALL)


def to_utf8(data: bytes, encoding: str) -> bytes:
    """A JSON file in UTF-8. A byte order mark wins over `encoding`. Raises `DataInvalidError` if it is encoded otherwise."""
    encoding = detect_encoding(data, encoding)
    if codecs.lookup(encoding).name == "utf-8":
        return data
    try:
        return data.decode(encoding).encode("utf-8")
    except (UnicodeDecodeError, UnicodeEncodeError):
        problem = Problem("document", f"is not encoded as {encoding}", "set encoding to the encoding that the LIS uses")
        raise DataInvalidError((problem,)) from None


def load_json_result(data: bytes, settings: FolderSettings) -> LabMessage:
    """Read a JSON file; its documents are still named by file. Raises `DataInvalidError`."""
    return load_message(to_utf8(data, settings.encoding), time_zone=settings.zone)


def is_json(data: bytes, encoding: str) -> bool:
    """Whether a file is JSON at all: half a file is not."""
    try:
        exact_json.loads(exact_json.strip_byte_order_mark(to_utf8(data, encoding)))
    except DataInvalidError:
        return False
    return True


def to_file_time(mtime_ns: int) -> datetime:
    """When a file was written, in whole seconds."""
    return datetime.fromtimestamp(mtime_ns // 1_000_000_000, UTC)


def accepted_id(file_id: str) -> str:
    """The message id of what a file says: a digest, as its name may be a patient's, and ids are shown to everybody (law 7).

    A file that is rejected keeps its name as it is: that is sealed with its text.
    """
    return f"file:{hashlib.sha256(file_id.encode()).hexdigest()[:32]}"


def part_id(file_id: str, report: CsvReport) -> str:
    """The message id of one report of a CSV file."""
    return f"{accepted_id(file_id)}#{report.name}"


class RawResultParser:
    """Reads files and touches nothing. `table` is the adapter's table of the settings."""

    def __init__(self, settings: FolderSettings, table: str) -> None:
        self._settings = settings
        self._table = table
        refused = settings.model_copy(update={"results": settings.failed_folder, "done": None, "failed": None})
        self._documents = [DocumentReader(one, SettleTracker(0)) for one in (settings, refused)]

    def parse(self, raw: bytes, name: str) -> ParsedMessage:
        """Read a file. `name` is its name or path, or the id that it was rejected under."""
        known = _FILE_ID.fullmatch(name)
        file_name = PurePath(known["name"] if known else name).name
        file_id = message_id(name if known else file_name, raw)
        csv = self._settings.csv_rules
        if csv is None and matches_pattern(file_name, self._settings.csv_files):
            part = ParsedPart(
                message_id=accepted_id(file_id), problem="the table csv is missing — it says what is in which column"
            )
            return ParsedMessage(parts=(part,), suggestions=suggest_csv_table(raw, self._table))
        if csv is not None and self._is_csv(file_name, raw):
            file_time = to_file_time(int(known["mtime"])) if known else datetime.now(UTC).replace(microsecond=0)
            return self._parse_csv(raw, file_id, csv, file_time)
        return self._parse_json(raw, file_id)

    def _is_csv(self, name: str, raw: bytes) -> bool:
        """By the name, as for a file that arrives; a text without a name is JSON if it begins like an object."""
        if matches_pattern(name, self._settings.csv_files):
            return True
        return not matches_pattern(name, self._settings.result_files) and not raw.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")

    def _parse_json(self, raw: bytes, file_id: str) -> ParsedMessage:
        try:
            data = to_utf8(raw, self._settings.encoding)
        except DataInvalidError as exc:
            part = ParsedPart(message_id=accepted_id(file_id), problem=format_problems(exc))
            return ParsedMessage(parts=(part,), suggestions=self._suggest_encoding(raw))
        read = parse_json_message(data, file_id, zone=self._settings.zone, table=self._table)
        part = self._with_documents(replace(read.parts[0], message_id=accepted_id(file_id)))
        return replace(read, parts=(part,), suggestions=(*self._suggest_encoding(raw), *read.suggestions))

    def _suggest_encoding(self, raw: bytes) -> tuple[MapSuggestion, ...]:
        guess = guess_encoding(raw, self._settings.encoding)
        if guess is None:
            return ()
        reason = f"the file is not encoded as {self._settings.encoding}; {guess.reason}"
        value = f'"{guess.page}"' if guess.page else None
        return (MapSuggestion(table=self._table, key="encoding", value=value, reason=reason),)

    def _with_documents(self, part: ParsedPart) -> ParsedPart:
        """The part with the documents that it names by file, from the folder for results or where rejected files are."""
        if part.content is None:
            return part
        loaded = [reader.load_documents(part.content) for reader in self._documents]
        found = next((one for one in loaded if not isinstance(one, MissingDocuments)), None)
        if found is not None:
            return replace(part, content=found.content)
        missing = loaded[0]
        problems = missing.problems if isinstance(missing, MissingDocuments) else ()
        return replace(part, content=None, problem=format_problems(DataInvalidError(problems)))

    def _parse_csv(self, raw: bytes, file_id: str, csv: CsvSettings, file_time: datetime) -> ParsedMessage:
        suggestions = suggest_csv_settings(raw, csv, self._settings.zone, self._table)
        try:
            results = parse_csv(raw, csv, self._settings.zone, file_time)
        except DataInvalidError as exc:
            part = ParsedPart(message_id=accepted_id(file_id), problem=format_problems(exc))
            return ParsedMessage(parts=(part,), suggestions=suggestions)
        return parsed_csv(results, file_id, suggestions)


def parsed_csv(results: CsvResults, file_id: str, suggestions: tuple[MapSuggestion, ...]) -> ParsedMessage:
    """The reports of a CSV file as parts, and its rows as a trace."""
    parts = tuple(
        ParsedPart(
            message_id=part_id(file_id, report),
            place=report.place,
            content=report.message,
            problem=format_problems(DataInvalidError(report.problems)) if report.problems else None,
        )
        for report in results.reports
    )
    names = _names_in(results)
    traced = (line for report in results.reports for line in _trace_report(results, report, names))
    rows = sorted(traced, key=lambda line: line[0])
    trace = (*_trace_headings(results), *(line for _, line in rows))
    return ParsedMessage(parts=parts, trace=trace, suggestions=suggestions, names=names)


def _names_in(results: CsvResults) -> frozenset[str]:
    table = results.table
    return name_words(table.cell(row, field) for _, row in table.rows for field in ("patient_family", "patient_given"))


def _trace_headings(results: CsvResults) -> Iterator[TraceLine]:
    fields = {index: name for name, index in results.table.columns.items()}
    for index, heading in enumerate(results.table.headings or ()):
        name = fields.get(index)
        yield TraceLine(place=f"column {index + 1}", text=heading, meaning=name or "", skipped=name is None)


def _trace_report(results: CsvResults, report: CsvReport, names: frozenset[str]) -> Iterator[tuple[int, TraceLine]]:
    """The rows of a report; its observations are in the sequence of the rows that have one."""
    observations = iter(report.message.observations if isinstance(report.message, LabReport) else ())
    table = results.table
    is_open = {index for name, index in table.columns.items() if name not in PATIENT_FIELDS}
    for number, cells in report.rows:
        observation = next(observations, None) if has_value(table.cells(cells)) else None
        words = [describe_observation(observation)] if observation else []
        words += ["not performed"] if table.cell(cells, "not_performed") else []
        # What is in a column that nobody reads may name the patient.
        shown = [each if index in is_open and not names_somebody(each, names) else "…" for index, each in enumerate(cells)]
        yield (
            number,
            TraceLine(
                place=f"row {number}",
                text=table.layout.delimiter.join(cells),
                meaning=", ".join(words),
                skipped=report.message is not None and not words,
                personal=any(each != seen and each.strip() for each, seen in zip(cells, shown, strict=True)),
                open_text=table.layout.delimiter.join(shown),
            ),
        )

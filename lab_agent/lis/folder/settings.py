"""Settings of a `[lis.<name>]` table of the folder adapter, and of its table `csv`."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from lab_agent.lis.folder.date_formats import DateFormat
from lab_agent.lis.folder.files import is_temporary
from lab_agent.lis.patient_columns import PATIENT_FIELDS
from lab_agent.lis.tabular_values import OBSERVATION_FIELDS
from lab_agent.lis.time_zones import TimeZoneName, to_zone
from lab_agent.shared.errors import did_you_mean

REPORT_FIELDS = (
    "report_id", "version", "status", "order", "line", "accession", "barcode", "item", "effective", "issued",
)  # fmt: skip
"""Fields of the report; equal in all rows of a report, except `line` and `item`, which are collected."""
REJECTION_FIELDS = ("not_performed",)
ALL_FIELDS = (*REPORT_FIELDS, *PATIENT_FIELDS, *REJECTION_FIELDS, *OBSERVATION_FIELDS)
REQUIRED_FIELDS = ("report_id", "effective")


def validate_encoding(value: str) -> str:
    """Check the name of an encoding."""
    try:
        codecs.lookup(value)
        "".encode(value)
    except (LookupError, ValueError, TypeError):
        raise ValueError("is not a known encoding such as utf-8 or cp1251") from None
    return value


def _validate_columns(value: Mapping[str, str]) -> Mapping[str, str]:
    for name in value:
        if name not in ALL_FIELDS:
            raise ValueError(f"unknown field {name} {did_you_mean(name, ALL_FIELDS)}".rstrip())
    if missing := [name for name in REQUIRED_FIELDS if name not in value]:
        raise ValueError(f"needs a column for {' and '.join(missing)}")
    if not {"order", "line", "accession", "barcode"} & set(value):
        raise ValueError("needs a column for at least one of order, line, accession and barcode")
    return value


def _validate_date_format(value: str) -> str:
    DateFormat(value)
    return value


_EXCEL = {"delimiter": ";", "decimal_comma": True, "date_format": "%d.%m.%Y"}
_DIALECTS: Mapping[str, Mapping[str, Any]] = {
    "excel-de": {**_EXCEL, "encoding": "cp1252"},
    "excel-ru": {**_EXCEL, "encoding": "cp1251"},
}


class CsvSettings(BaseModel):
    """CSV files of results: one row is one value."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    columns: Annotated[dict[str, str], AfterValidator(_validate_columns)]
    """Field names, each with the heading of its column (or, without headings, the column's number from 1, in quotes)."""
    dialect: Literal["excel-de", "excel-ru"] | None = None
    """What Excel writes in Germany or Russia: other defaults of `encoding`, `delimiter`, `decimal_comma` and `date_format`."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ";"
    """Character between two columns; a first line such as `sep=,` overrides it."""
    encoding: Annotated[str, AfterValidator(validate_encoding)] = "utf-8-sig"
    """Encoding of the files; a byte order mark (UTF-8, UTF-16) overrides it."""
    headings: bool = True
    """Whether the first row contains headings."""
    decimal_comma: bool = False
    """Whether numbers have a decimal comma; the digits stay as written."""
    date_format: Annotated[str, AfterValidator(_validate_date_format)] | None = None
    """Format of dates, as strptime writes it (`%d.%m.%Y`); a time of day may follow. ISO 8601 is read in any case."""
    code_system: str = "http://loinc.org"
    """Code system of `code`, unless a column says it."""
    max_rows: Annotated[int, Field(gt=0)] = 100_000
    """Maximum number of rows in one file."""
    last_line_end: bool = True
    """Whether the last row has a line end, too. One without is refused then: half a row ends with half a number."""

    @property
    def dates(self) -> DateFormat | None:
        """The format of dates, if one is set."""
        return DateFormat(self.date_format) if self.date_format else None

    @model_validator(mode="before")
    @classmethod
    def _apply_dialect(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        dialect = given.get("dialect")
        return {**_DIALECTS.get(dialect, {}), **given} if isinstance(dialect, str) else given


_KEY_PLACEHOLDER = "{key}"
_PLACEHOLDER_PATTERN = re.compile(r"\{[^{}]*\}")
FILE_NAME_PLACEHOLDERS = ("key", "requisition", "contract", "date")
"""Placeholders in the file name of an order."""


def _validate_file_name(value: str) -> str:
    words = re.findall(r"\{([^{}]*)\}", value)
    if value.count(_KEY_PLACEHOLDER) != 1 or {"/", "\\", "\0"} & set(value) or is_temporary(value):
        raise ValueError("must be a file name that contains {key} once, such as {key}.json")
    if unknown := set(words) - set(FILE_NAME_PLACEHOLDERS) or set(_PLACEHOLDER_PATTERN.sub("", value)) & set("{}"):
        raise ValueError(
            f"has an unknown placeholder ({', '.join(sorted(unknown))}); valid are {', '.join(FILE_NAME_PLACEHOLDERS)}"
        )
    return value


def _validate_cancel_name(value: str) -> str:
    if set(re.findall(r"\{([^{}]*)\}", _validate_file_name(value))) != {"key"}:
        raise ValueError("may contain no placeholder but {key}: nothing else is known when an order is cancelled")
    return value


def _validate_result_pattern(value: str) -> str:
    if not value or {"/", "\\", "\0"} & set(value) or value.startswith("."):
        raise ValueError("is not a file name pattern such as *.json or RES_*.txt")
    return value


def _validate_complete_marker(value: str) -> str:
    names = re.findall(r"\{([^{}]*)\}", value)
    fixed = _PLACEHOLDER_PATTERN.sub("", value)
    if len(names) != 1 or names[0] not in {"name", "stem"} or not fixed or {"/", "\\", "\0", "{", "}"} & set(fixed):
        raise ValueError("must be a file name that contains {name} (with the suffix) or {stem} (without it), such as {name}.ok")
    return value


_PAUSE_FACTOR = 30


class FolderSettings(BaseModel):
    """The folders of the adapter, and how files are named, encoded and waited for."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    orders: Path
    """Folder that orders are written to; it must exist."""
    results: Path
    """Folder that the LIS writes results to; it must exist."""
    done: Path | None = None
    """Folder for processed files, on the same file system; `done` in `results` if not set."""
    failed: Path | None = None
    """Folder for rejected files, each with its reason beside it; `failed` in `results` if not set."""
    file_name: Annotated[str, AfterValidator(_validate_file_name)] = "{key}.json"
    """File name of an order; it contains `{key}`, and may contain `{requisition}`, `{contract}` and `{date}`."""
    cancel_name: Annotated[str, AfterValidator(_validate_cancel_name)] | None = None
    """File name of a cancellation; if not set, that of the order with `.cancel` after the key."""
    encoding: Annotated[str, AfterValidator(validate_encoding)] = "utf-8"
    """Encoding of the JSON files, both ways; characters it lacks are written as JSON escapes."""
    result_files: Annotated[str, AfterValidator(_validate_result_pattern)] = "*.json"
    """File name pattern of results in JSON (any case)."""
    csv_files: Annotated[str, AfterValidator(_validate_result_pattern)] = "*.csv"
    """File name pattern of results in CSV; they are read if the table `csv` is set."""
    csv: CsvSettings | None = None
    """Format of the CSV results; none are read if not set."""
    file_mode: Annotated[int, Field(ge=0, le=0o777)] = 0o640
    """Permissions of the files that the agent writes (in TOML: 0o640)."""
    settle: Annotated[float, Field(ge=0, le=3600)] = 2.0
    """Seconds for which a file's size and time must be unchanged before it is read."""
    writer_pause: Annotated[float, Field(ge=0, le=86400)] | None = None
    """Seconds for which a writer may pause within a file: half a file is not judged before. Thirty times `settle` if not set."""
    complete_marker: Annotated[str, AfterValidator(_validate_complete_marker)] | None = None
    """Name of the file that the LIS writes once a result is complete, such as `{name}.ok` or `{stem}.ok`; none if not set."""
    document_wait: Annotated[float, Field(ge=0, le=86400)] = 60.0
    """Seconds for which a report waits for its documents; after that it is rejected."""
    time_zone: TimeZoneName | None = None
    """Time zone of times that the LIS writes without one; if not set, such a time is rejected."""
    max_result_bytes: Annotated[int, Field(gt=0)] = 16_000_000
    """Largest result file accepted, in bytes."""
    max_document_bytes: Annotated[int, Field(gt=0)] = 50_000_000
    """Largest total size of one report's documents, in bytes."""
    batch: Annotated[int, Field(gt=0)] = 200
    """Maximum number of result files processed at a time."""

    @property
    def csv_rules(self) -> CsvSettings | None:
        """How CSV files are read; a marker says that a file is whole, whatever its last row ends with."""
        marked = self.csv is not None and self.complete_marker is not None
        return self.csv.model_copy(update={"last_line_end": False}) if self.csv and marked else self.csv

    @property
    def longest_pause(self) -> float:
        """Seconds for which a writer may pause within a file."""
        return self.settle * _PAUSE_FACTOR if self.writer_pause is None else self.writer_pause

    def marker_name(self, path: Path) -> str | None:
        """File name of the marker that a result file is complete; None if there are no markers."""
        return self.complete_marker and self.complete_marker.replace("{name}", path.name).replace("{stem}", path.stem)

    @property
    def cancel_file_name(self) -> str:
        """File name of a cancellation."""
        of_an_order = self.file_name if set(_PLACEHOLDER_PATTERN.findall(self.file_name)) == {_KEY_PLACEHOLDER} else "{key}.json"
        return self.cancel_name or of_an_order.replace(_KEY_PLACEHOLDER, "{key}.cancel")

    @property
    def done_folder(self) -> Path:
        """The folder for processed files."""
        return self.done or self.results / "done"

    @property
    def failed_folder(self) -> Path:
        """The folder for rejected files."""
        return self.failed or self.results / "failed"

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone of times without one."""
        return to_zone(self.time_zone)

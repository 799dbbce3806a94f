"""The keys of a `[lis.<name>]` table of the folder adapter.

The keys of `[lis.<name>.csv]`: how the LIS writes its results as tables.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from lab_agent.errors import did_you_mean
from lab_agent.lis.folder.files import is_temporary
from lab_agent.lis.tabular_values import OBSERVATION_FIELDS

REPORT_FIELDS = (
    "report_id", "version", "status", "order", "line", "accession", "barcode", "item", "effective", "issued",
)  # fmt: skip
"""What a row says of its report; equal in all rows of a report, but for `line` and `item`, which are gathered."""
REJECTION_FIELDS = ("not_performed",)
ALL_FIELDS = (*REPORT_FIELDS, *REJECTION_FIELDS, *OBSERVATION_FIELDS)
REQUIRED_FIELDS = ("report_id", "effective")


def validate_encoding(value: str) -> str:
    """Check the name of an encoding."""
    try:
        codecs.lookup(value)
        "".encode(value)
    except (LookupError, ValueError, TypeError):
        raise ValueError("is no encoding that is known here, such as utf-8 or cp1251") from None
    return value


def _validate_columns(value: Mapping[str, str]) -> Mapping[str, str]:
    for name in value:
        if name not in ALL_FIELDS:
            raise ValueError(f"has no field {name} {did_you_mean(name, ALL_FIELDS)}".rstrip())
    if missing := [name for name in REQUIRED_FIELDS if name not in value]:
        raise ValueError(f"needs a column for {' and '.join(missing)}")
    if not {"order", "line", "accession", "barcode"} & set(value):
        raise ValueError("needs a column for at least one of order, line, accession and barcode")
    return value


class CsvSettings(BaseModel):
    """A table of results: one row is one value, the rows of a report stand together."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    columns: Annotated[dict[str, str], AfterValidator(_validate_columns)]
    """Our fields, each with the heading of its column (or, without headings, the column's number from 1, in quotes)."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ";"
    """What stands between two columns."""
    encoding: Annotated[str, AfterValidator(validate_encoding)] = "utf-8-sig"
    """Encoding of the files; utf-8-sig reads UTF-8 with or without a mark at the beginning."""
    headings: bool = True
    """Whether the first row holds the headings."""
    decimal_comma: bool = False
    """Whether numbers are written with a comma; the digits stay as they are."""
    code_system: str = "http://loinc.org"
    """Code system of `code` where no column says it."""
    max_rows: Annotated[int, Field(gt=0)] = 100_000
    """Rows of one file, at most."""


_KEY_PLACEHOLDER = "{key}"
_PLACEHOLDER_PATTERN = re.compile(r"\{[^{}]*\}")
FILE_NAME_PLACEHOLDERS = ("key", "requisition", "contract", "date")
"""What may stand in braces in the name of an order's file."""


def _validate_file_name(value: str) -> str:
    words = re.findall(r"\{([^{}]*)\}", value)
    if value.count(_KEY_PLACEHOLDER) != 1 or {"/", "\\", "\0"} & set(value) or is_temporary(value):
        raise ValueError("is no file name with {key} in it once, such as {key}.json")
    if unknown := set(words) - set(FILE_NAME_PLACEHOLDERS) or set(_PLACEHOLDER_PATTERN.sub("", value)) & set("{}"):
        raise ValueError(
            f"has a word that is not known ({', '.join(sorted(unknown))}); there are {', '.join(FILE_NAME_PLACEHOLDERS)}"
        )
    return value


def _validate_cancel_name(value: str) -> str:
    if set(re.findall(r"\{([^{}]*)\}", _validate_file_name(value))) != {"key"}:
        raise ValueError("may have no word but {key}: nothing else is known when an order is withdrawn")
    return value


def _validate_result_pattern(value: str) -> str:
    if not value or {"/", "\\", "\0"} & set(value) or value.startswith("."):
        raise ValueError("is no pattern of file names, such as *.json or RES_*.txt")
    return value


def _validate_time_zone(value: str) -> str:
    if value not in available_timezones():
        raise ValueError("is no time zone, such as Europe/Moscow")
    return value


class FolderSettings(BaseModel):
    """Where orders are put, where results are found, and how patient we are with files."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    orders: Path
    """Folder that orders are put into; it must exist."""
    results: Path
    """Folder that the LIS puts results into; it must exist."""
    done: Path | None = None
    """Where files that were read are put away, on the same file system; `done` within `results` if not set."""
    failed: Path | None = None
    """Where files that cannot be read are put, each with its reason beside it; `failed` within `results` if not set."""
    file_name: Annotated[str, AfterValidator(_validate_file_name)] = "{key}.json"
    """Name of an order's file; `{key}` stands for the order's key, and there are `{requisition}`, `{contract}`, `{date}`."""
    cancel_name: Annotated[str, AfterValidator(_validate_cancel_name)] | None = None
    """Name of the file that tells of a withdrawal; if not set, that of an order with `.cancel` after the key."""
    encoding: Annotated[str, AfterValidator(validate_encoding)] = "utf-8"
    """Encoding of the JSON files, both ways; what it cannot write is written as JSON's escapes."""
    result_files: Annotated[str, AfterValidator(_validate_result_pattern)] = "*.json"
    """Pattern of the names of result files in JSON (any case)."""
    csv_files: Annotated[str, AfterValidator(_validate_result_pattern)] = "*.csv"
    """Pattern of the names of result files that are tables; they are read where there is a table `csv`."""
    csv: CsvSettings | None = None
    """How tables of results are written; none are read if not set."""
    file_mode: Annotated[int, Field(ge=0, le=0o777)] = 0o640
    """Permissions of the files that we write (in TOML: 0o640)."""
    settle: Annotated[float, Field(ge=0, le=3600)] = 2.0
    """Seconds for which the size and time of a file must have stayed the same before it is read."""
    document_wait: Annotated[float, Field(ge=0, le=86400)] = 60.0
    """Seconds for which a report waits for the documents that it names; afterwards it is put into `failed`."""
    time_zone: Annotated[str, AfterValidator(_validate_time_zone)] | None = None
    """Time zone that is meant where the LIS writes a time without one; if not set, such a time is refused."""
    max_result_bytes: Annotated[int, Field(gt=0)] = 16_000_000
    """Largest result file that is read, in bytes."""
    max_document_bytes: Annotated[int, Field(gt=0)] = 50_000_000
    """Largest sum of one report's documents, in bytes."""
    batch: Annotated[int, Field(gt=0)] = 200
    """Number of result files that are read at one look, at most."""

    @property
    def cancel_file_name(self) -> str:
        """Name of the file that tells of a withdrawal."""
        of_an_order = self.file_name if set(_PLACEHOLDER_PATTERN.findall(self.file_name)) == {_KEY_PLACEHOLDER} else "{key}.json"
        return self.cancel_name or of_an_order.replace(_KEY_PLACEHOLDER, "{key}.cancel")

    @property
    def done_folder(self) -> Path:
        """Where files that were read are put away."""
        return self.done or self.results / "done"

    @property
    def failed_folder(self) -> Path:
        """Where files that cannot be read are put."""
        return self.failed or self.results / "failed"

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone that is meant where none is written."""
        return ZoneInfo(self.time_zone) if self.time_zone else None

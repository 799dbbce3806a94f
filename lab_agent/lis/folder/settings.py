"""The keys of a `[lis.<name>]` table of the folder adapter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from lab_agent.lis.folder.csv_settings import CsvSettings, validate_encoding
from lab_agent.lis.folder.names import is_temporary

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

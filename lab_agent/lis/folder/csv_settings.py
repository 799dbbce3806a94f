"""The keys of `[lis.<name>.csv]`: how the LIS writes its results as tables."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from lab_agent.codec.problems import did_you_mean
from lab_agent.lis.plain_values import OBSERVATION_FIELDS

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

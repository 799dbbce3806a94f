"""How single values are read: no guess is made of what was meant.

Pydantic alone would take `20240101` for seconds since 1970, `"yes"` for true and text for bytes. A laboratory's file says what
it means, or it is sent back with the field's name.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, tzinfo
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, StrictBool, StrictStr, Tag, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from lab_agent.codec.problems import UNION_BRANCH
from lab_agent.exact_json import MAX_EXPONENT, is_out_of_range

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_DATETIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?", re.ASCII)


def invalid_value(what: str, hint: str) -> PydanticCustomError:
    """Make the error of a value that cannot be read, with its mend."""
    return PydanticCustomError("value", "{what}", {"what": what, "mend": hint})


def parse_decimal(value: Any) -> Decimal:
    """Read a decimal number. Raises `PydanticCustomError`."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        try:
            value = Decimal(value)
        except InvalidOperation:
            value = None
    elif isinstance(value, int) and not isinstance(value, bool):
        value = Decimal(value)
    if not isinstance(value, Decimal) or not value.is_finite():
        raise invalid_value("is not a decimal number", "write a number such as 1.20, with a point and no spaces")
    if is_out_of_range(value):
        raise invalid_value("is a number out of all measure", f"write a number with an exponent within ±{MAX_EXPONENT}")
    return value


def _parse_integer(value: Any) -> int:
    if isinstance(value, Decimal) and value == value.to_integral_value() and value.as_tuple().exponent == 0:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid_value("is not a whole number", "write a whole number, without quotes and without a point")
    return value


def _parse_datetime_in_context(value: Any, info: ValidationInfo) -> datetime:
    return parse_datetime(value, (info.context or {}).get("time_zone"))


def parse_datetime(value: Any, time_zone: tzinfo | None) -> datetime:
    """Read a date and time; `zone` is meant where it has none. Raises `PydanticCustomError`."""
    mend = "write it as 2024-05-17T08:30:00+03:00"
    read: datetime = _parse_iso(value, _DATETIME, datetime.fromisoformat, "is not a date and time", mend)
    if read.tzinfo is None and time_zone is None:
        raise invalid_value("is a time without a zone", f"add the offset from UTC: {mend}")
    read = read if read.tzinfo else read.replace(tzinfo=time_zone)
    try:
        read.astimezone(UTC)
    except OverflowError:
        raise invalid_value("is a time out of all measure", mend) from None
    return read


def _parse_iso(value: Any, pattern: re.Pattern[str], parse: Any, what: str, hint: str) -> Any:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise invalid_value(what, hint)
    try:
        return parse(value)
    except ValueError:
        raise invalid_value(what, hint) from None


def _parse_date(value: Any) -> date:
    return _parse_iso(value, _DATE, date.fromisoformat, "is not a date", "write it as 2024-05-17")  # type: ignore[no-any-return]


def _parse_time(value: Any) -> time:
    return _parse_iso(value, _TIME, time.fromisoformat, "is not a time of day", "write it as 08:30:00")  # type: ignore[no-any-return]


def _parse_base64(value: Any) -> bytes:
    try:
        if isinstance(value, str):
            return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        pass
    raise invalid_value("is not Base64", "write the document's bytes in Base64 (RFC 4648, section 4)")


def _union_branch(value: Any) -> str | None:
    for kind, tag in ((bool, "bool"), (int | Decimal, "number"), (str, "text"), (Mapping, "coding")):
        if isinstance(value, kind):
            return UNION_BRANCH + tag
    return None


def _parse_answer_number(value: Any) -> int | Decimal:
    return value if isinstance(value, int) else parse_decimal(value)


SCALAR_ANNOTATIONS: Mapping[Any, Any] = {
    str: StrictStr,
    bool: StrictBool,
    int: Annotated[int, BeforeValidator(_parse_integer)],
    Decimal: Annotated[
        Decimal, BeforeValidator(parse_decimal), WithJsonSchema({"type": ["number", "string"], "pattern": f"^{_NUMBER.pattern}$"})
    ],
    datetime: Annotated[datetime, BeforeValidator(_parse_datetime_in_context)],
    date: Annotated[date, BeforeValidator(_parse_date)],
    time: Annotated[time, BeforeValidator(_parse_time)],
    bytes: Annotated[bytes, BeforeValidator(_parse_base64), WithJsonSchema({"type": "string", "contentEncoding": "base64"})],
}
"""The reader of each type of single value."""


def scalar_annotation(kind: Any) -> Any:
    """Give the annotation that reads a single value of this type; None where there is none."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind
    return SCALAR_ANNOTATIONS.get(kind)


def answer_annotation(coding: Any) -> Any:
    """Give the annotation that reads one answer, told apart by how it is written; `coding` reads a Coding."""
    numeric = Annotated[Any, BeforeValidator(_parse_answer_number), WithJsonSchema({"type": "number"})]
    return Annotated[
        Annotated[StrictBool, Tag(UNION_BRANCH + "bool")]
        | Annotated[numeric, Tag(UNION_BRANCH + "number")]
        | Annotated[StrictStr, Tag(UNION_BRANCH + "text")]
        | Annotated[coding, Tag(UNION_BRANCH + "coding")],
        Discriminator(_union_branch),
    ]

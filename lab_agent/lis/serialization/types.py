"""Orders and messages to and from plain JSON shapes.

Pydantic reads the domain's frozen dataclasses itself, with our readers in place of its own for single values: alone it would take
`20240101` for seconds since 1970, `"yes"` for true and text for bytes. A laboratory's file says what it means, or it is sent back
with the name of the field. The domain imports no pydantic, so the readers are put into the schema that pydantic makes.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import BeforeValidator, StrictBool, StrictStr, TypeAdapter, ValidationError, ValidationInfo, WithJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, PydanticUseDefault, SchemaValidator, core_schema

from lab_agent.shared.exact_json import MAX_EXPONENT, is_out_of_range
from lab_agent.shared.validation_errors import UNION_BRANCH, ValidationIssue, issues_from_pydantic, raise_issues
from lab_agent.shared.values import DateOrTime, PartialDate, is_in_calendar

TargetT = TypeVar("TargetT")


def read_as(
    target: type[TargetT], tree: dict[str, Any], *, issues: list[ValidationIssue], time_zone: tzinfo | None = None
) -> TargetT:
    """Make a `target` of a JSON object. Raises `DataInvalidError` with what is wrong in shape, and with `issues`."""
    kind: Any = target
    try:
        value: TargetT = _validator(kind).validate_python(tree, context={"time_zone": time_zone})
    except ValidationError as exc:
        raise_issues([*issues_from_pydantic(exc, _field_names(kind)), *issues])
    if issues:
        raise_issues(issues)
    return value


@cache
def _validator(target: Any) -> SchemaValidator:
    return SchemaValidator(strict_schema(target))


@cache
def strict_schema(target: Any) -> CoreSchema:
    """Give the schema that pydantic makes of a domain dataclass, with strict readers, and without unknown fields."""
    strict: CoreSchema = _make_strict(TypeAdapter(target).core_schema)
    return strict


def _make_strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_make_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if kind in _STRICT_SCALARS:
        return _STRICT_SCALARS[kind]
    if kind == "union" and (dates := _DATE_UNIONS.get(schema["choices"][0].get("type"))):
        return dates
    if kind == "union":
        return _answer_schema(schema["choices"])
    if kind is not None and kind not in _STRUCTURES:
        raise TypeError(f"there is no strict reader for the type {kind}")
    made = {key: _make_strict(item) for key, item in schema.items()}
    if kind == "dataclass":
        made["config"] = {**schema["config"], "extra_fields_behavior": "forbid"}
    if kind == "default" and schema["schema"]["type"] != "nullable":
        made["schema"] = core_schema.no_info_before_validator_function(_use_default_for_null, made["schema"])
    return made


def _use_default_for_null(value: Any) -> Any:
    """A field with a default may be left out or be null, which says the same."""
    if value is None:
        raise PydanticUseDefault
    return value


def _answer_schema(choices: list[Any]) -> CoreSchema:
    """Read an answer of a questionnaire, the only other union of the domain, by the JSON type that it is written in."""
    branches = {
        "bool": _STRICT_SCALARS["bool"],
        "number": _core_schema(_AnswerNumber),
        "text": _STRICT_SCALARS["str"],
        "coding": _make_strict(choices[-1]),
    }
    return core_schema.tagged_union_schema({UNION_BRANCH + name: one for name, one in branches.items()}, _answer_branch)


def _answer_branch(value: Any) -> str | None:
    for kind, name in ((bool, "bool"), (int | Decimal, "number"), (str, "text"), (Mapping, "coding")):
        if isinstance(value, kind):
            return UNION_BRANCH + name
    return None


@cache
def _field_names(kind: Any) -> frozenset[str]:
    """The names of all fields within a domain dataclass."""
    if is_dataclass(kind) and isinstance(kind, type):
        within = (_field_names(hint) for hint in get_type_hints(kind).values())
        return frozenset({one.name for one in fields(kind)}).union(*within)
    return frozenset().union(*(_field_names(arg) for arg in get_args(kind) if arg is not Ellipsis))


_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_DATETIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_PARTIAL_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?", re.ASCII)
_DATE_HINT = "write it as 2024-05-17, or as 2024-05 or 2024 where no more is known"
_TIME = re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?", re.ASCII)


def invalid_value(what: str, hint: str) -> PydanticCustomError:
    """Make the error of a value that cannot be read."""
    return PydanticCustomError("value", "{what}", {"what": what, "hint": hint})


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
        raise invalid_value("is out of range", f"write a number with an exponent within ±{MAX_EXPONENT}")
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
    """Read a date and time; `time_zone` is meant where it has no offset. Raises `PydanticCustomError`."""
    hint = "write it as 2024-05-17T08:30:00+03:00"
    read: datetime = _parse_iso(value, _DATETIME, datetime.fromisoformat, "is not a date and time", hint)
    if read.tzinfo is None and time_zone is None:
        raise invalid_value("is a time without a zone", f"add the offset from UTC: {hint}")
    read = read if read.tzinfo else read.replace(tzinfo=time_zone)
    if not is_in_calendar(read):
        raise invalid_value("is out of range", hint)
    return read


def _parse_date_or_time_in_context(value: Any, info: ValidationInfo) -> DateOrTime:
    return parse_date_or_time(value, (info.context or {}).get("time_zone"))


def parse_date_or_time(value: Any, time_zone: tzinfo | None) -> DateOrTime:
    """Read a date and time as `parse_datetime`, or a year, month or day as it is. Raises `PydanticCustomError`."""
    if isinstance(value, str) and _PARTIAL_DATE.fullmatch(value):
        return _parse_iso(value, _PARTIAL_DATE, PartialDate, "is not a date", _DATE_HINT)  # type: ignore[no-any-return]
    return parse_datetime(value, time_zone)


def _parse_iso(value: Any, pattern: re.Pattern[str], parse: Any, what: str, hint: str) -> Any:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise invalid_value(what, hint)
    try:
        return parse(value)
    except ValueError:
        raise invalid_value(what, hint) from None


def parse_partial_date(value: Any) -> date | PartialDate:
    """Read a day, or a year or month as it is. Raises `PydanticCustomError`."""
    read: PartialDate = _parse_iso(value, _PARTIAL_DATE, PartialDate, "is not a date", _DATE_HINT)
    return read.first_day if read.text == read.first_day.isoformat() else read


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


def _parse_answer_number(value: Any) -> int | Decimal:
    return value if isinstance(value, int) else parse_decimal(value)


_AnswerNumber = Annotated[Any, BeforeValidator(_parse_answer_number), WithJsonSchema({"type": "number"})]
_STRICT_TYPES: Mapping[Any, Any] = {
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
"""How a single value of each type is read."""


def _core_schema(kind: Any) -> CoreSchema:
    return TypeAdapter(kind).core_schema


_DATE_OR_TIME = _core_schema(
    Annotated[
        Any,
        BeforeValidator(_parse_date_or_time_in_context),
        WithJsonSchema(
            {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "pattern": f"^{_PARTIAL_DATE.pattern}$"}]}
        ),
    ]
)
_PARTIAL_DATE_SCHEMA = _core_schema(
    Annotated[
        Any,
        BeforeValidator(parse_partial_date),
        WithJsonSchema({"type": "string", "pattern": f"^{_PARTIAL_DATE.pattern}$"}),
    ]
)
_DATE_UNIONS: Mapping[Any, CoreSchema] = {"datetime": _DATE_OR_TIME, "date": _PARTIAL_DATE_SCHEMA}
"""How a date is read that may be said in part, by the first of its types."""
_STRICT_SCALARS = {_core_schema(plain)["type"]: _core_schema(strict) for plain, strict in _STRICT_TYPES.items()}
"""The same by pydantic's names of the plain types."""
_STRUCTURES = frozenset(
    ("definitions", "definition-ref", "dataclass", "dataclass-args", "dataclass-field", "default", "nullable", "tuple", "enum")
)
"""What else there is in the schema of a domain dataclass; the members of an enum are strict as they are."""


def to_json_object(value: Any) -> dict[str, Any]:
    """Give a domain dataclass as a JSON object. Raises `DataInvalidError`, naming every field that has no exact JSON form."""
    found: list[ValidationIssue] = []
    tree: dict[str, Any] = _to_json(value, (), found)
    if found:
        raise_issues(found)
    return tree


def _to_json(value: Any, location: tuple[str | int, ...], issues: list[ValidationIssue]) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, PartialDate):
        return value.text
    kind: type = type(value)
    if (members := _members(kind)) is not None:
        return {
            name: _to_json(item, (*location, name), issues)
            for name, may_be_omitted in members
            if (item := getattr(value, name)) is not None and not (may_be_omitted and item == ())
        }
    if isinstance(value, tuple | list):
        return [_to_json(item, (*location, index), issues) for index, item in enumerate(value)]
    return _scalar_to_json(value, location, issues)


def _scalar_to_json(value: Any, location: tuple[str | int, ...], issues: list[ValidationIssue]) -> Any:
    match value:
        case str() | bool() | int():
            return value
        case Decimal():
            return _decimal_to_json(value, location, issues)
        case datetime():
            return _datetime_to_json(value, location, issues)
        case date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case _:
            issues.append(
                ValidationIssue(location, f"is a {type(value).__name__}", "give a Decimal" if isinstance(value, float) else "")
            )
            return None


def _decimal_to_json(value: Decimal, location: tuple[str | int, ...], issues: list[ValidationIssue]) -> Decimal | str:
    if not value.is_finite():
        issues.append(ValidationIssue(location, "is not a finite number", "leave the value out, or give it as text"))
    is_minus_zero = value.is_signed() and not value and int(value.as_tuple().exponent) >= 0
    return "-0" if is_minus_zero else value  # JSON readers take the number -0 for the whole number 0


def _datetime_to_json(value: datetime, location: tuple[str | int, ...], issues: list[ValidationIssue]) -> str:
    offset = value.utcoffset()
    if offset is None:
        issues.append(ValidationIssue(location, "is a time without a zone", "give an aware datetime"))
        return value.isoformat()
    whole = timedelta(minutes=offset // timedelta(minutes=1))
    return (value if offset == whole else value.astimezone(timezone(whole))).isoformat()


@cache
def _members(kind: Any) -> tuple[tuple[str, bool], ...] | None:
    """The fields of a dataclass, and which may be left out where they are empty; None for another type.

    What is empty by default is left out; an empty list that says something (`completes`) is written.
    """
    if not is_dataclass(kind):
        return None
    return tuple((one.name, one.default == ()) for one in fields(kind))

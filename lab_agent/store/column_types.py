"""Column types that return what was stored: aware datetimes, exact numbers, enums, text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, DateTime, Integer, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine
from typing_extensions import override

from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import AttemptRecord
from lab_agent.shared import exact_json
from lab_agent.shared.errors import StoreError
from lab_agent.shared.values import Identifier

_PREFIX_LENGTH = 500
_MAX_LENGTH = _PREFIX_LENGTH + 65


class RowNumber(TypeDecorator[int]):
    """A number that the database gives to each new row. SQLite counts only in columns that are called INTEGER."""

    impl = BigInteger
    cache_ok = True

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[int]:
        return Integer() if dialect.name == "sqlite" else BigInteger()


class UtcDateTime(TypeDecorator[datetime]):
    """A time, stored in UTC and returned aware. A datetime without a time zone raises `StoreError`."""

    impl = DateTime(timezone=True)
    cache_ok = True

    @override
    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise StoreError("A time without a time zone cannot be stored.")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    @override
    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        del dialect
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class PlainText(TypeDecorator[str]):
    """Text. What PostgreSQL or UTF-8 cannot hold (NUL, lone surrogates) becomes U+FFFD, so that one such order stops no other."""

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        del dialect
        return None if value is None else storable_text(value)


class IndexableText(PlainText):
    """Indexed text from outside: cut where it is too long for an index, with a digest in the place of the rest.

    PostgreSQL rejects index entries of more than 2,700 bytes; an order with such a barcode must be stored all the same.
    """

    cache_ok = True

    @override
    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        del dialect
        return None if value is None else indexable_text(value)


class DecimalText(TypeDecorator[Decimal]):
    """An exact number: its digits as text."""

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        del dialect
        return None if value is None else format(value, "f")

    @override
    def process_result_value(self, value: str | None, dialect: Dialect) -> Decimal | None:
        del dialect
        return None if value is None else Decimal(value)


class EnumText(TypeDecorator[StrEnum]):
    """A value of one of our enums."""

    impl = Text
    cache_ok = True

    def __init__(self, enum_type: type[StrEnum]) -> None:
        super().__init__()
        self.enum_type = enum_type

    @override
    def process_bind_param(self, value: StrEnum | str | None, dialect: Dialect) -> str | None:
        del dialect
        return None if value is None else self.enum_type(value).value

    @override
    def process_result_value(self, value: str | None, dialect: Dialect) -> StrEnum | None:
        del dialect
        return None if value is None else self.enum_type(value)


class ExactJson(TypeDecorator[Mapping[str, Any]]):
    """A JSON object whose numbers keep their digits."""

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: Mapping[str, Any] | None, dialect: Dialect) -> str | None:
        del dialect
        return None if value is None else exact_json.dumps(value).decode()

    @override
    def process_result_value(self, value: str | None, dialect: Dialect) -> Mapping[str, Any] | None:
        del dialect
        return None if value is None else exact_json.loads(value)


class TextTuple(TypeDecorator[tuple[str, ...]]):
    """Texts in order, as a JSON array."""

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> str | None:
        del dialect
        return None if value is None else exact_json.dumps([storable_text(text) for text in value]).decode()

    @override
    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...] | None:
        del dialect
        return None if value is None else tuple(exact_json.loads(value))


class AttemptLog(TypeDecorator[tuple[AttemptRecord, ...]]):
    """Attempts at a job, as a JSON array; NULL for none."""

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: tuple[AttemptRecord, ...] | None, dialect: Dialect) -> str | None:
        del dialect
        if not value:
            return None
        rows = [[each.number, each.at.isoformat(), each.milliseconds, each.call, each.status, each.cause] for each in value]
        return exact_json.dumps(rows).decode()

    @override
    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[AttemptRecord, ...]:
        del dialect
        return () if value is None else tuple(_read_attempt(*row) for row in exact_json.loads(value))


def _read_attempt(number: int, at: str, milliseconds: int, call: str, status: int | None, cause: str | None) -> AttemptRecord:
    return AttemptRecord(
        number=int(number),
        at=datetime.fromisoformat(at),
        milliseconds=int(milliseconds),
        call=call,
        status=None if status is None else int(status),
        cause=None if cause is None else FailureCause(cause),
    )


class IdentifierText(TypeDecorator[Identifier]):
    """An identifier, as a JSON object."""

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: Identifier | None, dialect: Dialect) -> str | None:
        del dialect
        if value is None:
            return None
        system = None if value.system is None else storable_text(value.system)
        return exact_json.dumps({"system": system, "value": storable_text(value.value)}).decode()

    @override
    def process_result_value(self, value: str | None, dialect: Dialect) -> Identifier | None:
        del dialect
        return None if value is None else Identifier(**exact_json.loads(value))


def storable_text(text: str) -> str:
    """Give `text` with U+FFFD in the place of what a database does not take."""
    if text.isascii() and "\x00" not in text:
        return text
    return "".join("\ufffd" if char == "\x00" or "\ud800" <= char <= "\udfff" else char for char in text)


def indexable_text(name: str) -> str:
    """Give a text as an `IndexableText` column stores it; applying it twice changes nothing more."""
    name = storable_text(name)
    return name if len(name) <= _MAX_LENGTH else f"{name[:_PREFIX_LENGTH]}…{hashlib.sha256(name.encode()).hexdigest()}"

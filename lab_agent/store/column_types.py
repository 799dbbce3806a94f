"""Column types that make a row give back what was put in: aware datetimes, exact numbers, enums, text."""

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

from lab_agent import exact_json
from lab_agent.domain.values import Identifier
from lab_agent.errors import StoreError

_PREFIX_LENGTH = 500
_MAX_LENGTH = _PREFIX_LENGTH + 65


class RowNumber(TypeDecorator[int]):
    """A number that the database gives to each new row. SQLite counts only in columns that are called INTEGER."""

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[int]:
        return Integer() if dialect.name == "sqlite" else BigInteger()


class UtcDateTime(TypeDecorator[datetime]):
    """A moment: stored in UTC, comes back aware. A datetime without time zone is refused."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Turn it into UTC; SQLite keeps no offset."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise StoreError("A time without time zone cannot be stored.")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Make it aware, in UTC."""
        del dialect
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class PlainText(TypeDecorator[str]):
    """Text. What PostgreSQL or UTF-8 cannot hold (NUL, lone surrogates) becomes U+FFFD: one odd order must not stop the rest."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Replace what cannot be stored."""
        del dialect
        return None if value is None else storable_text(value)


class IndexableText(PlainText):
    """A name that others gave, in an index: cut where no index would take it, with a digest in the place of the rest.

    PostgreSQL refuses an index entry of more than 2,700 bytes; such a barcode must not keep an order out of the journal.
    """

    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Cut what is too long; the same name is always cut in the same way."""
        del dialect
        return None if value is None else indexable_text(value)


class DecimalText(TypeDecorator[Decimal]):
    """An exact number: its digits as text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        """Write its digits."""
        del dialect
        return None if value is None else format(value, "f")

    def process_result_value(self, value: str | None, dialect: Dialect) -> Decimal | None:
        """Read them."""
        del dialect
        return None if value is None else Decimal(value)


class EnumText(TypeDecorator[StrEnum]):
    """A word of one of our enums."""

    impl = Text
    cache_ok = True

    def __init__(self, enum_type: type[StrEnum]) -> None:
        super().__init__()
        self.enum_type = enum_type

    def process_bind_param(self, value: StrEnum | str | None, dialect: Dialect) -> str | None:
        """Write the word."""
        del dialect
        return None if value is None else self.enum_type(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> StrEnum | None:
        """Read the word."""
        del dialect
        return None if value is None else self.enum_type(value)


class ExactJson(TypeDecorator[Mapping[str, Any]]):
    """A JSON object whose numbers keep their digits."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, Any] | None, dialect: Dialect) -> str | None:
        """Write it."""
        del dialect
        return None if value is None else exact_json.dumps(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Mapping[str, Any] | None:
        """Read it."""
        del dialect
        return None if value is None else exact_json.loads(value)


class TextTuple(TypeDecorator[tuple[str, ...]]):
    """Several texts in their order, as a JSON array."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> str | None:
        """Write them."""
        del dialect
        return None if value is None else exact_json.dumps([storable_text(text) for text in value]).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...] | None:
        """Read them."""
        del dialect
        return None if value is None else tuple(exact_json.loads(value))


class IdentifierText(TypeDecorator[Identifier]):
    """An identifier, as a JSON object."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Identifier | None, dialect: Dialect) -> str | None:
        """Write it."""
        del dialect
        if value is None:
            return None
        system = None if value.system is None else storable_text(value.system)
        return exact_json.dumps({"system": system, "value": storable_text(value.value)}).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Identifier | None:
        """Read it."""
        del dialect
        return None if value is None else Identifier(**exact_json.loads(value))


def storable_text(text: str) -> str:
    """Give `text` with U+FFFD in the place of what no database takes."""
    if text.isascii() and "\x00" not in text:
        return text
    return "".join("\ufffd" if char == "\x00" or "\ud800" <= char <= "\udfff" else char for char in text)


def indexable_text(name: str) -> str:
    """Give a name as a `NameText` column holds it; of such a one it gives the same."""
    name = storable_text(name)
    return name if len(name) <= _MAX_LENGTH else f"{name[:_PREFIX_LENGTH]}…{hashlib.sha256(name.encode()).hexdigest()}"

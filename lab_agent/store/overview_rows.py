"""Rows of the one statement that reads the overview: each part of it fills the columns that it needs.

On PostgreSQL, a statement more takes longer than most of these parts, and all of one statement is of one moment.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Float,
    Select,
    cast,
    false,
    literal_column,
    null,
    select,
    union_all,
)
from sqlalchemy.types import TypeEngine

from lab_agent.store.column_types import PlainText, UtcDateTime

_TYPES: dict[str, type[TypeEngine[Any]]] = {
    "part": PlainText,
    "state": PlainText,
    "by": PlainText,
    "number": BigInteger,
    "since": UtcDateTime,
    "detail": PlainText,
    "place": BigInteger,
    "opened_at": UtcDateTime,
    "median": Float,
    "percentile_95": Float,
}
_NO_ROWS = select(*(cast(null(), type_).label(name) for name, type_ in _TYPES.items())).where(false())
_NOTHING: ColumnElement[Any] = literal_column("NULL")


def select_rows(part: str, **columns: ColumnElement[Any]) -> Select[Any]:
    """Select the rows of a part, which says what its columns mean; those that it does not fill are NULL."""
    filled = {"part": literal_column(f"'{part}'"), **columns}
    return select(*(filled.get(name, _NOTHING).label(name) for name in _TYPES))


def unite(*parts: Select[Any]) -> CompoundSelect[Any]:
    """Make one statement of parts. What gives no rows comes first: its columns have the types of all."""
    return union_all(_NO_ROWS, *parts)

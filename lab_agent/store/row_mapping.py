"""Frozen records of the domain to rows of our tables and back, and the statements that all repositories need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Table, func, literal_column
from sqlalchemy.dialects import postgresql, sqlite

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from sqlalchemy import ColumnElement, Connection, RowMapping

RecordT = TypeVar("RecordT", bound="DataclassInstance")
ItemT = TypeVar("ItemT")

_COLUMN_NAMES = {"order": "order_key", "by": "actor", "start": "start_at", "end": "end_at"}
"""Fields whose names are keywords of SQL, and their columns."""
_CHUNK_SIZE = 500
_WRITTEN: ColumnElement[int] = literal_column("1")


def to_record(record_type: type[RecordT], row: RowMapping) -> RecordT:
    """Make a record of a row that has a column for each of its fields."""
    return record_type(**{field.name: row[_COLUMN_NAMES.get(field.name, field.name)] for field in fields(record_type)})


def to_values(record: DataclassInstance) -> dict[str, Any]:
    """Give the columns of a record."""
    return {_COLUMN_NAMES.get(field.name, field.name): getattr(record, field.name) for field in fields(record)}


def insert_new(connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row. False, and nothing is written, where there is a row of the same unique key already."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return connection.scalar(insert(table).values(**values).on_conflict_do_nothing().returning(_WRITTEN)) is not None


def upsert(
    connection: Connection, table: Table, values: Mapping[str, Any], *key: str, where: ColumnElement[bool] | None = None
) -> bool:
    """Insert a row, or replace the one of the same `key` columns (only if `where` holds for that one). False: not replaced."""
    insert = (postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert)(table).values(**values)
    changed = {name: insert.excluded[name] for name in values if name not in key}
    written = insert.on_conflict_do_update(index_elements=list(key), set_=changed, where=where).returning(_WRITTEN)
    return connection.scalar(written) is not None


def in_states(column: ColumnElement[Any], states: Iterable[StrEnum]) -> ColumnElement[bool]:
    """Say that a state column holds one of `states`, in literals, so that partial indexes are used."""
    return column.in_([literal_column(literal) for literal in _literals(states)])


def unindexed(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Hide the index of a column from SQLite, which knows nothing of numbers: nearly all rows may have that value."""
    return func.coalesce(column, column)


def states_condition(states: Iterable[StrEnum]) -> str:
    """Give the condition of a partial index; a query uses the index only where it repeats it literally (`in_states`)."""
    return f"state IN ({', '.join(_literals(states))})"


def _literals(states: Iterable[StrEnum]) -> list[str]:
    return [f"'{state.value}'" for state in sorted(states)]


def chunked(values: Iterable[ItemT]) -> Iterator[list[ItemT]]:
    """Split values into lists short enough to be parameters of one statement."""
    rest = iter(values)
    while batch := list(islice(rest, _CHUNK_SIZE)):
        yield batch

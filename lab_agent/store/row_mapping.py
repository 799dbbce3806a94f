"""Frozen records of the domain to rows of our tables and back, and the statements that all repositories need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from enum import StrEnum
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import Table, bindparam, func, literal_column, update
from sqlalchemy.dialects import postgresql, sqlite

from lab_agent.store.session import Session

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from sqlalchemy import Column, ColumnElement, Connection, Executable, RowMapping, Update

RecordT = TypeVar("RecordT", bound="DataclassInstance")
ItemT = TypeVar("ItemT")

_COLUMN_NAMES = {"order": "order_key", "by": "actor", "start": "start_at", "end": "end_at"}
"""Fields whose names are keywords of SQL, and their columns."""
_CHUNK_SIZE = 500
_WRITTEN: ColumnElement[int] = literal_column("1")


class RecordMapping(Generic[RecordT]):
    """How the records of one type lie in a table: its columns in the order of the fields, looked up once."""

    def __init__(self, record_type: type[RecordT], table: Table) -> None:
        names = tuple(field.name for field in fields(record_type))
        self._type, self._names, self._get_fields = record_type, names, attrgetter(*names)
        self._column_names = tuple(_COLUMN_NAMES.get(name, name) for name in names)
        self.columns: tuple[Column[Any], ...] = tuple(table.c[name] for name in self._column_names)
        """What a `select` names, so that its rows become records by position."""

    def to_values(self, record: RecordT) -> dict[str, Any]:
        """Give the columns of a record."""
        return dict(zip(self._column_names, self._get_fields(record), strict=True))

    def to_record(self, row: Iterable[Any]) -> RecordT:
        """Make a record of a row of `columns`."""
        return self._type(**dict(zip(self._names, row, strict=True)))

    def to_records(self, rows: Iterable[Iterable[Any]]) -> tuple[RecordT, ...]:
        """Make records of rows of `columns`."""
        return tuple(map(self.to_record, rows))


def to_record(record_type: type[RecordT], row: RowMapping) -> RecordT:
    """Make a record of a row that has a column for each of its fields."""
    return record_type(**{field.name: row[_COLUMN_NAMES.get(field.name, field.name)] for field in fields(record_type)})


def to_values(record: DataclassInstance) -> dict[str, Any]:
    """Give the columns of a record."""
    return {_COLUMN_NAMES.get(field.name, field.name): getattr(record, field.name) for field in fields(record)}


def _insert(connection: Connection | Session, table: Table) -> postgresql.Insert | sqlite.Insert:
    kind = connection.kind if isinstance(connection, Session) else connection.dialect.name
    return postgresql.insert(table) if kind == "postgresql" else sqlite.insert(table)


def insert_new(connection: Connection | Session, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row. False, and nothing is written, where there is a row of the same unique key already."""
    insert = _insert(connection, table).values(**values)
    return connection.scalar(insert.on_conflict_do_nothing().returning(_WRITTEN)) is not None


def upsert(
    connection: Connection | Session, table: Table, values: Mapping[str, Any], *key: str, where: ColumnElement[bool] | None = None
) -> bool:
    """Insert a row, or replace the one of the same `key` columns (only if `where` holds for that one). False: not replaced."""
    insert = _insert(connection, table).values(**values)
    changed = {name: insert.excluded[name] for name in values if name not in key}
    written = insert.on_conflict_do_update(index_elements=list(key), set_=changed, where=where).returning(_WRITTEN)
    return connection.scalar(written) is not None


def update_row(table: Table) -> Update:
    """Make the statement that replaces the row of a `key`; its parameters are `changes`."""
    return update(table).where(table.c.key == bindparam("of"))


def changes(values: dict[str, Any]) -> dict[str, Any]:
    """Give the parameters of `update_row` for all columns of a record: the `key` says which row, and is not written."""
    return {"of": values.pop("key"), **values}


def upsert_by(*key: str) -> Callable[[Any], Executable]:
    """Make an `insert` that replaces the row of the same `key` columns."""

    def finish(insert: Any) -> Executable:
        changed = {column.name: insert.excluded[column.name] for column in insert.table.columns if column.name not in key}
        upsert: Executable = insert.on_conflict_do_update(index_elements=list(key), set_=changed)
        return upsert

    return finish


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

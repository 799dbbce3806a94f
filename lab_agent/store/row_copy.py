"""Copies a SQLite database into an empty one on PostgreSQL: each row as it is stored, and compared before any of it counts.

What is sealed stays sealed under the same keys, numbers stay and go on where they were, and the instance is the same one.
Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Connection, LargeBinary, MetaData, Row, Table, delete, func, inspect, select, text
from sqlalchemy.types import TypeDecorator

from lab_agent.shared.errors import InputError, StoreError
from lab_agent.store.agent_lock import AgentLock
from lab_agent.store.column_types import RowNumber, UtcDateTime
from lab_agent.store.crypto import Cipher
from lab_agent.store.engine import open_engine, sqlite_file
from lab_agent.store.error_translation import translate_errors
from lab_agent.store.integrity import check_content
from lab_agent.store.programs import read_programs
from lab_agent.store.progress import Tell, tell_nobody
from lab_agent.store.schema import MADE_WITH_SCHEMA, check_schema, upgrade
from lab_agent.store.table_base import METADATA
from lab_agent.store.tables import key_values
from lab_agent.store.vault import check_key

_ROWS, _ROWS_WITH_CONTENT = 1_000, 20
"""Rows in memory at a time; a document may have many megabytes."""


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table, and how many rows it has in both databases."""

    name: str
    rows: int


@dataclass(slots=True)
class _Content:
    """How many rows there are, and a sum of their digests: databases sort texts differently, so the order says nothing."""

    rows: int = 0
    digest: int = 0

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            self.rows += 1
            self.digest += int.from_bytes(hashlib.sha256(repr(tuple(row)).encode("utf-8", "surrogatepass")).digest())


def copy_rows(source: str, target: str, cipher: Cipher, now: datetime, tell: Tell = tell_nobody) -> tuple[CopiedTable, ...]:
    """Copy all rows in one transaction, and read both sides before it ends.

    Raises `InputError` for a target that is no PostgreSQL or not empty, `StoreUnreachableError` while an agent works on the
    source, `SchemaMismatchError` for a source of another schema, `CryptoError` for one of another key, and `StoreError`.
    """
    if sqlite_file(source) is None or sqlite_file(target) is not None:
        raise InputError("A SQLite database is copied to PostgreSQL: --to is postgresql://user@host/name.")
    schema = check_schema(source)
    if schema.is_newer:
        raise StoreError(f"The database has schema {schema.database}, and this program {schema.program}: copy it with its own.")
    lock = AgentLock(source)
    lock.acquire(now)
    try:
        with _opened(source) as reading:  # nobody else writes from here on
            _reject_programs(reading, now)
            check_content(reading)
            check_key(reading, cipher)
            with _opened(target) as looking:
                _reject_content(looking)
            upgrade(target)
            with _opened(target) as writing:
                _reject_content(writing)
                return _copy_all(reading, writing, tell)
    finally:
        lock.release()


@contextmanager
def _opened(url: str) -> Iterator[Connection]:
    """A transaction, which is committed at the end."""
    engine = open_engine(url, connections=1)
    try:
        with translate_errors(), engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def _reject_programs(reading: Connection, now: datetime) -> None:
    """What a program writes after the copy would be lost with the former database."""
    if living := [each for each in read_programs(reading) if each.lives(now)]:
        seconds = max(each.stale_after for each in living)
        wait = f"one that was killed counts as running for {seconds:.0f} seconds"
        raise StoreError(f"Programs work on the database: {', '.join(map(str, living))}. Stop them, then copy it; {wait}.")


def _reject_content(target: Connection) -> None:
    there = set(inspect(target).get_table_names()) - {"alembic_version"}
    if foreign := there - METADATA.tables.keys():
        raise InputError(f"The target is not empty: it has tables of something else ({', '.join(sorted(foreign)[:3])}).")
    for name in sorted(there):
        table = METADATA.tables[name]
        written = select(text("1")).select_from(table).limit(1)
        written = written.where(key_values.c.key.not_in(MADE_WITH_SCHEMA)) if table is key_values else written
        if target.execute(written).first() is not None:
            raise InputError(f"The target is not empty: there are rows in {name}. Name a database that nothing was written to.")


def _copy_all(reading: Connection, writing: Connection, tell: Tell) -> tuple[CopiedTable, ...]:
    tables = [_plain(each) for each in METADATA.sorted_tables]
    counts = {each.name: reading.scalar(select(func.count()).select_from(each)) or 0 for each in tables}
    last = {name: int(seq) for name, seq in reading.execute(text("SELECT name, seq FROM sqlite_sequence"))}
    writing.execute(delete(key_values))
    done, total = 0, 2 * sum(counts.values())
    for table in tables:
        written = _Content()
        for rows in _read(reading, table):
            written.add(rows)
            writing.execute(table.insert(), [dict(row._mapping) for row in rows])  # noqa: SLF001 - its public name
            tell(done := done + len(rows), total)
        _go_on_counting(writing, METADATA.tables[table.name], last)
        found = _Content()
        for rows in _read(writing, table):
            found.add(rows)
            tell(done := done + len(rows), total)
        if found != written or written.rows != counts[table.name]:
            what = f"{counts[table.name]} rows to copy, {written.rows} read, {found.rows} found"
            raise StoreError(f"{table.name} is not the same in both databases ({what}); the target is empty again.")
    return tuple(CopiedTable(name, rows) for name, rows in counts.items())


def _plain(table: Table) -> Table:
    """The table without the types that read values as ours: each is copied as it is stored, whatever it says."""
    return Table(table.name, MetaData(), *(Column(each.name, _plain_type(each.type)) for each in table.columns))


def _plain_type(kind: Any) -> Any:
    return kind.impl_instance if isinstance(kind, TypeDecorator) and not isinstance(kind, UtcDateTime | RowNumber) else kind


def _read(connection: Connection, table: Table) -> Iterator[Sequence[Row[Any]]]:
    has_content = any(isinstance(each.type, LargeBinary) for each in table.columns)
    size = _ROWS_WITH_CONTENT if has_content else _ROWS
    with connection.execute(select(table), execution_options={"yield_per": size}) as result:
        yield from result.partitions()


def _go_on_counting(writing: Connection, table: Table, last: Mapping[str, int]) -> None:
    """Let the next number be one that no row ever had, also none that was deleted since."""
    column = table.autoincrement_column
    if column is None:
        return
    named = {"of": table.name, "column": column.name}
    sequence = writing.scalar(text("SELECT pg_get_serial_sequence(:of, :column)"), named)
    highest = max(last.get(table.name, 0), writing.scalar(select(func.max(column))) or 0)
    if sequence is not None and highest:
        writing.execute(text("SELECT setval(:sequence, :highest)"), {"sequence": sequence, "highest": highest})

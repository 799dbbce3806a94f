"""What one unit of work has read and is going to write, in a transaction that it may share with others.

What was read or written once is not read again (identity map). What is written is collected, and sent as one statement for all
rows of a kind: at the commit, or before a query of the same table (write-behind). Units of work of one transaction run one after
the other; one that fails or does not commit leaves nothing, and the others do not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import Connection, CursorResult, Executable, Insert, Table, Update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.visitors import iterate

from lab_agent.queue.job_records import JobKind
from lab_agent.shared.errors import StoreError, StoreUnreachableError
from lab_agent.store.table_base import METADATA

LOST = "The database gave up a transaction; nothing was written."
_SAVEPOINT = "unit_of_work"
_NO_VALUES: Mapping[str, Any] = {}
Values = Mapping[str, Any]
_Insert = postgresql.Insert | sqlite.Insert


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A `select` with bound parameters, made once, and the names of the tables that it sees."""

    statement: Any
    tables: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        seen = (each.name for each in iterate(self.statement) if isinstance(each, Table))
        object.__setattr__(self, "tables", frozenset(seen))


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """A statement that writes rows of one table, made once for each kind of database; its parameters are the values of a row.

    Where `missing` is set, each row must have been there: else the error that it makes is raised, and nothing is written.
    """

    table: Table
    statements: Mapping[str, Executable]
    missing: Callable[[], Exception] | None = None

    @classmethod
    def of(cls, table: Table, statement: Executable, missing: Callable[[], Exception] | None = None) -> Write:
        """A statement that both kinds of database understand."""
        return cls(table, {"sqlite": statement, "postgresql": statement}, missing)

    @classmethod
    def insert(cls, table: Table, finish: Callable[[Any], Executable]) -> Write:
        """An `insert`, which `finish` makes out of the one that knows `on_conflict_…` for the kind of database."""
        return cls(table, {"sqlite": finish(sqlite.insert(table)), "postgresql": finish(postgresql.insert(table))})


class Transaction:
    """A transaction in which units of work run one after the other.

    If it is `shared`, it is committed once, after all of them; it has SQLite's write lock, so nobody else changes anything while
    it lasts. Otherwise each commit of its one unit of work is one of the database.
    """

    def __init__(self, connection: Connection, *, shared: bool = False, read_only: bool = False) -> None:
        self.connection = connection
        self.shared, self.read_only = shared, read_only
        self.kind = connection.dialect.name
        self.written = False
        """Whether a unit of work has committed something that is not committed in the database yet."""
        self.jobs_due: set[JobKind] = set()
        """Kinds of jobs that are due with what was committed."""

    def begin(self) -> None:
        """Begin it, if it has not begun or a unit of work has undone it. An error is that of all units of work in it.

        A statement must not begin it: where SQLite's lock is not free, SQLAlchemy would take it for begun all the same, and
        everything after that would last at once, without a commit.
        """
        if not self.connection.in_transaction():
            self.connection.begin()

    @property
    def is_lost(self) -> bool:
        """Whether the database has none any more, whatever SQLAlchemy says. Nothing more may be sent then.

        The connection was lost; or SQLite has ended it, as it does on a full disk.
        """
        if self.connection.invalidated:
            return True
        raw: Any = self.connection.connection.dbapi_connection
        return self.kind == "sqlite" and (raw is None or not raw.in_transaction)

    def end(self) -> None:
        """Commit what units of work have committed; where there is nothing, end it.

        On PostgreSQL that is a commit, too: at a rollback, psycopg forgets its prepared statements, and each is planned anew.
        """
        if self.kind == "sqlite" and not self.written:
            self.connection.rollback()
            return
        try:
            self.connection.commit()
        except BaseException:
            self.connection.invalidate()  # a commit that failed may leave the transaction open
            raise


class Session:
    """One unit of work on the tables: an identity map, and what is still to be written."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._connection = transaction.connection
        self._records: dict[tuple[Table, Hashable], Any] = {}
        self._pending: dict[Write, dict[Hashable, Values]] = {}
        self._has_sent = False
        self._has_savepoint = False
        self._is_incomplete = False  # after an error, part of what belongs together was sent
        self.jobs_due: set[JobKind] = set()
        """Kinds of jobs that are due with the commit, and not claimed by this unit of work; whoever runs them is told then."""
        self.kind = transaction.kind
        """`sqlite` or `postgresql`."""
        self.read_only = transaction.read_only

    # --- the identity map

    def known(self, key: tuple[Table, Hashable], default: Any = None) -> Any:
        """What was read or written under `key` in this unit of work; `default` if nothing was."""
        return self._records.get(key, default)

    def known_in(self, table: Table) -> list[Any]:
        """Everything of a table that was read or written."""
        return [record for (of, _), record in self._records.items() if of is table]

    def remember(self, key: tuple[Table, Hashable], record: Any) -> None:
        """Keep what was read or written under `key` until the unit of work ends."""
        self._records[key] = record

    def forget(self, *keys: tuple[Table, Hashable]) -> None:
        """Read again what is asked next under these keys; without any, everything."""
        if not keys:
            self._records.clear()
        for key in keys:
            self._records.pop(key, None)

    def forget_written(self, statement: Any) -> None:
        """Read again what a statement may have changed; one that inserts or updates rows changes no other table."""
        if not isinstance(statement, Insert | Update):
            self._records.clear()
        for key in [each for each in self._records if each[0] is statement.table]:
            del self._records[key]

    # --- reading and writing

    def execute(self, query: Query | Executable, values: Values = _NO_VALUES) -> CursorResult[Any]:
        """Run a query; what was written to its tables before is sent first.

        Before a statement that was made just now, everything is sent; what one that writes may have changed is read again.
        """
        if not isinstance(query, Query):
            return self._execute_statement(query, values)
        if self._pending and any(write.table.name in query.tables for write in self._pending):
            self.flush()
        return self._connection.execute(query.statement, values)

    def scalar(self, statement: Executable) -> Any:
        """Give the first column of the first row of what `execute` gives; None if there is no row."""
        return self.execute(statement).scalar()

    def scalars(self, statement: Executable) -> Any:
        """Give the first column of each row of what `execute` gives."""
        return self.execute(statement).scalars()

    def send(self, write: Write, values: Values | Sequence[Values]) -> CursorResult[Any]:
        """Write rows now, because the answer is needed; what is still to be written to their table goes first."""
        if any(each.table is write.table for each in self._pending):
            self.flush()
        self._before_write()
        return self._connection.execute(write.statements[self.kind], values)

    def put(self, write: Write, key: Hashable, values: Values) -> None:
        """Write a row at the commit. A later one of the same `write` and `key` replaces it."""
        self._check_may_write()
        self._pending.setdefault(write, {})[key] = values

    def append(self, write: Write, rows: Iterable[Values]) -> None:
        """Write rows at the commit, in this order."""
        self._check_may_write()
        pending = self._pending.setdefault(write, {})
        for values in rows:
            pending[len(pending)] = values

    def is_pending(self, write: Write, key: Hashable) -> bool:
        """Whether a row is still to be written by `write`."""
        return key in self._pending.get(write, ())

    def flush(self) -> None:
        """Send what is still to be written, parents before children."""
        if not self._pending:
            return
        self._before_write()
        pending, self._pending = self._pending, {}
        self._is_incomplete = True
        for write in sorted(pending, key=lambda each: _flush_order()[each.table]):
            rows = list(pending[write].values())
            written = self._connection.execute(write.statements[self.kind], rows)
            if write.missing is not None and written.rowcount < len(rows):
                raise write.missing()
        self._is_incomplete = False

    def connection(self, *, for_writing: bool = True) -> Connection:
        """Give the connection itself; everything is sent before, so that a statement finds what was written."""
        self.flush()
        if for_writing:
            self._before_write()
        return self._connection

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Inside the block nothing is locked or written; what was read in it is not known any more afterwards."""
        self.flush()
        before, self.read_only = self.read_only, True
        try:
            yield
        finally:
            self.read_only = before
            self.forget()

    # --- the end

    def commit(self) -> None:
        """Keep what was written so far; in a shared transaction, it lasts once that is committed."""
        if self.read_only:
            raise StoreError("A unit of work that only reads cannot commit.")
        self.flush()
        if self._transaction.is_lost:
            raise StoreUnreachableError(LOST)
        if self._is_incomplete:
            raise StoreError("A part of the unit of work could not be written; nothing was written.")
        if not self._transaction.shared:
            self._connection.commit()
            self.forget()  # its locks are gone, and others may write
        elif self._has_savepoint:
            self._connection.exec_driver_sql(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        self._transaction.written |= self._has_sent and self._transaction.shared
        self._transaction.jobs_due |= self.jobs_due
        self.jobs_due.clear()
        self._has_sent = self._has_savepoint = False

    def discard(self) -> None:
        """Undo what was written since the last commit."""
        self._pending.clear()
        self._records.clear()
        if self._has_savepoint:
            self._connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            self._connection.exec_driver_sql(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        elif self._has_sent:  # and nobody else has: the next unit of work begins a new transaction
            self._connection.rollback()
        self._has_sent = self._has_savepoint = self._is_incomplete = False

    def _execute_statement(self, statement: Executable, values: Values) -> CursorResult[Any]:
        self.flush()
        if not statement.is_select:
            self._before_write()
            self.forget_written(statement)
        return self._connection.execute(statement, values)

    def _before_write(self) -> None:
        self._check_may_write()
        if not self._has_sent and self._transaction.written:
            self._connection.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
            self._has_savepoint = True
        self._has_sent = True

    def _check_may_write(self) -> None:
        if self.read_only:
            raise StoreError("A unit of work that only reads cannot write.")


@cache
def _flush_order() -> Mapping[Table, int]:
    """Parents before children, and the same order in every process, so that two that write wait for each other in it."""
    return {table: place for place, table in enumerate(METADATA.sorted_tables)}

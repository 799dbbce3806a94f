"""Counts what a store asks of its database: statements and how transactions end. Counts do not depend on the machine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from sqlalchemy import Connection, Engine, event

from lab_agent.store.engine import READ_ONLY
from lab_agent.store.unit_of_work import Store

_CONTROL = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA")
_WRITES = ("INSERT", "UPDATE", "DELETE")
_TABLE = re.compile(r"\b(?:FROM|INTO|UPDATE)\s+(\w+)")
_WROTE, _BEGUN = "counted_writes", "counted_transaction"


@dataclass
class StoreCounts:
    """What was counted so far.

    `statements` are those with data, one for a list of rows that is written at once; `control` are BEGIN, COMMIT, SAVEPOINT and
    PRAGMA as statements of their own. `commits` and `rollbacks` are transactions that could write, by their end; `empty_commits`
    and `empty_rollbacks` those among them that wrote nothing; `read_only` are the transactions of `run_read_only` and of queries.
    """

    statements: int = 0
    writes: int = 0
    control: int = 0
    commits: int = 0
    empty_commits: int = 0
    rollbacks: int = 0
    empty_rollbacks: int = 0
    read_only: int = 0
    by_table: Counter[str] = field(default_factory=Counter)
    """How many statements, by their first word and first table, such as `SELECT orders`."""

    @property
    def transactions(self) -> int:
        return self.commits + self.rollbacks + self.read_only

    def report(self) -> str:
        """The numbers and the statements for people, most frequent first."""
        ends = (
            f"{self.commits} committed ({self.empty_commits} empty), {self.rollbacks} rolled back ({self.empty_rollbacks} empty)"
        )
        total = f"{self.statements} statements ({self.writes} write); {ends}, {self.read_only} read-only"
        return "\n".join([total, *(f"{count:6} {name}" for name, count in self.by_table.most_common())])

    def add_statement(self, connection: Connection, statement: str) -> None:
        word = statement.lstrip().partition(" ")[0].upper()
        if word in _CONTROL:
            self.control += 1
            return
        table = _TABLE.search(statement)
        self.statements += 1
        self.by_table[f"{word} {table[1] if table else '-'}"] += 1
        if word in _WRITES:
            self.writes += 1
            connection.info[_WROTE] = True

    def add_end(self, connection: Connection, *, committed: bool) -> None:
        wrote = connection.info.pop(_WROTE, False)
        if not connection.info.pop(_BEGUN, False):
            return
        if connection.get_execution_options().get(READ_ONLY, False):
            self.read_only += 1
        elif committed:
            self.commits += 1
            self.empty_commits += not wrote
        else:
            self.rollbacks += 1
            self.empty_rollbacks += not wrote


@contextmanager
def count_store(store: Store) -> Iterator[StoreCounts]:
    engines: tuple[Engine, ...] = (store._engine, store._reading_engine)  # a test looks from the side of the database
    counts = StoreCounts()
    listeners: tuple[tuple[str, Callable[..., Any]], ...] = (
        ("before_cursor_execute", lambda connection, _cursor, statement, *_: counts.add_statement(connection, statement)),
        ("begin", lambda connection: connection.info.update({_BEGUN: True})),
        ("commit", lambda connection: counts.add_end(connection, committed=True)),
        ("rollback", lambda connection: counts.add_end(connection, committed=False)),
    )
    for engine, (name, listener) in product(engines, listeners):
        event.listen(engine, name, listener)
    try:
        yield counts
    finally:
        for engine, (name, listener) in product(engines, listeners):
            event.remove(engine, name, listener)

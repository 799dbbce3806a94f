"""Counts what the store asks of its database. Switched on only for the rounds that count: the hooks cost time of their own."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, event

from lab_agent.store.engine import READ_ONLY


class StatementCounts:
    """Statements, commits, rollbacks and read-only transactions of all engines of this process.

    Statements that begin a transaction are no work.
    """

    def __init__(self) -> None:
        self._statements = 0
        self._commits = 0
        self._rollbacks = 0
        self._reads = 0
        self._listening = False

    def start(self) -> None:
        """Count from now on."""
        self._statements = self._commits = self._rollbacks = self._reads = 0
        if not self._listening:
            event.listen(Engine, "before_cursor_execute", self._on_statement)
            event.listen(Engine, "commit", self._on_commit)
            event.listen(Engine, "rollback", self._on_rollback)
            self._listening = True

    def take(self) -> dict[str, int]:
        """What was counted."""
        return {
            "statements": self._statements,
            "commits": self._commits,
            "rollbacks": self._rollbacks,
            "reads": self._reads,
        }

    def _on_statement(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        self._statements += not statement.startswith(("BEGIN", "PRAGMA"))

    def _on_commit(self, _connection: Any) -> None:
        self._commits += 1

    def _on_rollback(self, connection: Any) -> None:
        if connection.get_execution_options().get(READ_ONLY):
            self._reads += 1
        else:
            self._rollbacks += 1

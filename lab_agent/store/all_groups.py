"""What fails and what waits, counted by cause in one statement: every page tells how much that is."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Integer, cast, null, select, union_all

from lab_agent.queue import job_statements
from lab_agent.queue.job_records import FailureGroup
from lab_agent.store.column_types import PlainText, UtcDateTime
from lab_agent.store.event_records import WaitingGroup
from lab_agent.store.row_mapping import to_record
from lab_agent.store.session import Query, Session
from lab_agent.store.waiting_groups import GROUPS, to_group

_NO_TEXT: ColumnElement[Any] = cast(null(), PlainText)
_NO_NUMBER: ColumnElement[Any] = cast(null(), Integer)


def _select_all() -> Any:
    failing = job_statements.FAILURE_GROUPS.statement.order_by(None).subquery()
    waiting = GROUPS.statement.subquery()
    of_waiting = {
        "cause": _NO_TEXT,
        "system": _NO_TEXT,
        "kind": _NO_TEXT,
        "count": waiting.c.count,
        "set_aside": cast(null(), BigInteger),
        "in_review": cast(null(), BigInteger),
        "since": waiting.c.since,
        "failing_since": cast(null(), UtcDateTime),
        "failures": _NO_NUMBER,
    }
    return union_all(
        select(failing, _NO_TEXT.label("condition"), _NO_TEXT.label("state"), _NO_TEXT.label("subject")),
        select(
            *(of_waiting[column.name].label(column.name) for column in failing.c),
            waiting.c.condition,
            waiting.c.state,
            waiting.c.subject,
        ),
    ).execution_options(no_parameters=True)


_ALL = Query(_select_all())


def load_all_groups(session: Session) -> tuple[tuple[FailureGroup, ...], tuple[WaitingGroup, ...]]:
    """Give what `UnitOfWork.all_groups` promises: one statement, and one more for the oldest order of each group of orders."""
    rows = session.execute(_ALL).mappings().all()
    failing = tuple(to_record(FailureGroup, row) for row in rows if row["condition"] is None)
    return failing, tuple(to_group(session, row) for row in rows if row["condition"] is not None)

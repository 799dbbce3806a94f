"""What all lists share: a page of rows, records made of them, and conditions on states."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, func, select

from lab_agent.queue.job_records import JobKind
from lab_agent.store.read_models import MAX_COUNTED, Page
from lab_agent.store.row_mapping import in_states, to_record, unindexed
from lab_agent.store.tables import jobs

T = TypeVar("T")

OF_ANY_KIND = in_states(jobs.c.kind, JobKind)
"""Says nothing, but lets an index that begins with the kind be used."""


def fetch_page(
    connection: Connection, listed: Select[Any], whole: Select[Any], make: Callable[[Any], T], offset: int, limit: int
) -> Page[T]:
    """Fetch a page; what is on all pages is counted as far as `MAX_COUNTED`, so that the history of years costs nothing."""
    counted = connection.scalar(select(func.count()).select_from(whole.limit(MAX_COUNTED + 1).subquery())) or 0
    rows = connection.execute(listed.offset(offset).limit(limit + 1)).mappings().all()
    items = tuple(make(row) for row in rows[:limit])
    return Page(
        items=items,
        total=min(counted, MAX_COUNTED),
        offset=offset,
        is_total_exact=counted <= MAX_COUNTED,
        has_more=len(rows) > limit,
    )


def is_in(column: ColumnElement[Any], states: Collection[StrEnum], *, many: bool) -> ColumnElement[bool]:
    """Say that a state is one of these. Where `many` rows have it, their index is hidden: the list is read in its own order."""
    return in_states(unindexed(column) if many else column, states)


def record_factory(record_type: type[Any]) -> Callable[[Any], Any]:
    """Make what makes records of rows."""
    return lambda row: to_record(record_type, row)


def fetch_records(connection: Connection, record_type: type[Any], statement: Select[Any]) -> tuple[Any, ...]:
    """Fetch all rows of a statement as records."""
    return tuple(to_record(record_type, row) for row in connection.execute(statement).mappings())

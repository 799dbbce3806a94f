"""Orders as lists show them: each is one row, with its work orders and its first tests in it."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, ScalarSelect, Select, Text, cast, func, literal_column, select

from lab_agent.orders.records import WorkOrder
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.state_machines import (
    ENDED_LINES,
    JOBS_NEEDING_OPERATOR,
    OPEN_JOBS,
    REPORTS_NEEDING_OPERATOR,
    WorkOrderState,
)
from lab_agent.store.read_models import OrderSummary
from lab_agent.store.row_mapping import in_states
from lab_agent.store.tables import jobs, lines, orders, reports, work_orders

_ITEMS_SHOWN = 4
"""Tests of an order that a list names."""
_MADE = frozenset({"work_orders", "lines", "ended_lines", "open_jobs", "attention_count", "items"})
"""Fields of a summary that are no columns of an order."""
_MAKE_ARRAY = {"sqlite": func.json_array, "postgresql": func.json_build_array}
_GATHER = {"sqlite": func.json_group_array, "postgresql": func.json_agg}
_WORK_ORDER = (
    work_orders.c.adapter,
    work_orders.c.state,
    work_orders.c.changed_at,
    work_orders.c.accession,
    work_orders.c.reason,
    work_orders.c.waits_since,
)


@cache
def select_order_summaries(dialect: str) -> Select[Any]:
    """Select what `to_order_summary` makes a summary of, for this kind of database."""
    columns = [orders.c[field.name] for field in fields(OrderSummary) if field.name not in _MADE]
    its_lines = select(func.count()).select_from(lines).where(lines.c.order_key == orders.c.key)
    its_jobs = select(func.count()).select_from(jobs).where(jobs.c.order_key == orders.c.key)
    its_reports = select(func.count()).select_from(reports).where(reports.c.order_key == orders.c.key)
    asking = its_jobs.where(in_states(jobs.c.state, JOBS_NEEDING_OPERATOR)).scalar_subquery()
    waiting = its_reports.where(in_states(reports.c.state, REPORTS_NEEDING_OPERATOR)).scalar_subquery()
    return select(
        *columns,
        _select_work_orders(dialect).label("work_orders"),
        its_lines.scalar_subquery().label("lines"),
        its_lines.where(in_states(lines.c.state, ENDED_LINES)).scalar_subquery().label("ended_lines"),
        its_jobs.where(in_states(jobs.c.state, OPEN_JOBS)).scalar_subquery().label("open_jobs"),
        (asking + waiting).label("attention_count"),
        _select_items(dialect).label("items"),
    )


def _select_work_orders(dialect: str) -> ScalarSelect[Any]:
    array: ColumnElement[Any] = _MAKE_ARRAY[dialect](*_WORK_ORDER)
    its_own = select(_gather(dialect, array)).where(work_orders.c.order_key == orders.c.key)
    return its_own.correlate(orders).scalar_subquery()


def _select_items(dialect: str) -> ScalarSelect[Any]:
    of_order = (lines.c.order_key == orders.c.key, lines.c.item.is_not(None))
    first = select(lines.c.item).where(*of_order).order_by(lines.c.number).limit(literal_column(str(_ITEMS_SHOWN)))
    return select(_gather(dialect, first.correlate(orders).subquery().c.item)).scalar_subquery()


def _gather(dialect: str, value: ColumnElement[Any]) -> ColumnElement[Any]:
    """All values as the text of one JSON array; PostgreSQL makes NULL of none."""
    return cast(_GATHER[dialect](value), Text)


def to_order_summary(row: RowMapping) -> OrderSummary:
    """Make a summary of a row."""
    values = {field.name: row[field.name] for field in fields(OrderSummary)}
    parts = (_to_work_order(row["key"], *part) for part in json.loads(row["work_orders"] or "[]"))
    values["work_orders"] = tuple(sorted(parts, key=lambda part: part.adapter))
    values["items"] = tuple(json.loads(row["items"] or "[]"))
    return OrderSummary(**values)


def _to_work_order(
    order: OrderKey, adapter: str, state: str, changed_at: str, accession: str | None, reason: str | None, waits_since: str | None
) -> WorkOrder:
    return WorkOrder(
        order=order,
        adapter=adapter,
        state=WorkOrderState(state),
        changed_at=_to_time(changed_at),
        accession=accession,
        reason=reason,
        waits_since=None if waits_since is None else _to_time(waits_since),
    )


def _to_time(text: str) -> datetime:
    """Read a time as the database writes it: PostgreSQL with its time zone, SQLite without."""
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)

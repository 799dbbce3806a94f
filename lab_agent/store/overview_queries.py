"""Numbers of everything that is not finished: for the overview, for metrics, and for what a condition affects."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, distinct, func, literal_column, select, union_all

from lab_agent.domain.job_records import JobKind
from lab_agent.domain.records import Alert
from lab_agent.domain.refused_messages import RefusedState
from lab_agent.domain.state_machines import (
    CLAIMABLE_STATES,
    JOBS_NEEDING_OPERATOR,
    OPEN_JOBS,
    OPEN_LINES,
    OPEN_ORDERS,
    ORDERS_AWAITING_RESULTS,
    UNFINISHED_REPORTS,
    JobState,
    OrderState,
    WorkOrderState,
)
from lab_agent.ports.queries import CLOSED_ORDERS_PERIOD, LAST_POLL_KEY, AffectedNumbers, Overview, RestoredNumbers, StateCounts
from lab_agent.store.column_types import UtcDateTime
from lab_agent.store.query_pages import OF_ANY_KIND, fetch_records
from lab_agent.store.refused_tables import refused_messages
from lab_agent.store.row_mapping import in_states
from lab_agent.store.tables import alerts, events, jobs, key_values, lines, orders, reports, work_orders


def load_overview(connection: Connection, now: datetime) -> Overview:
    """Give what `Queries.overview` promises."""
    is_overdue = in_states(orders.c.state, ORDERS_AWAITING_RESULTS) & (orders.c.expected_at < now)
    overdue = select(func.count()).select_from(orders).where(is_overdue)
    open_alerts = select(alerts).where(alerts.c.closed_at.is_(None)).order_by(alerts.c.opened_at)
    return Overview(
        orders=_count_by_state(connection, orders, OPEN_ORDERS),
        closed_orders=_count_closed_orders(connection, since=now - CLOSED_ORDERS_PERIOD),
        lines=_count_by_state(connection, lines, OPEN_LINES),
        jobs=_count_by_state(connection, jobs, OPEN_JOBS, OF_ANY_KIND),
        reports=_count_by_state(connection, reports, UNFINISHED_REPORTS),
        oldest_orders=_oldest_by_state(connection, func.coalesce(orders.c.held_since, orders.c.changed_at), orders, OPEN_ORDERS),
        oldest_jobs=_oldest_by_state(connection, jobs.c.first_due_at, jobs, OPEN_JOBS),
        oldest_reports=_oldest_by_state(connection, reports.c.received_at, reports, UNFINISHED_REPORTS),
        due_since=_due_since(connection, now),
        overdue_orders=connection.scalar(overdue) or 0,
        alerts=fetch_records(connection, Alert, open_alerts),
        last_poll=_last_poll(connection),
        next_due=connection.scalar(
            select(func.min(orders.c.expected_at, type_=UtcDateTime)).where(
                orders.c.state != literal_column("'closed'"),
                in_states(orders.c.state, ORDERS_AWAITING_RESULTS),
                orders.c.expected_at >= now,
            )
        ),
    )


def load_restored_numbers(connection: Connection, since: datetime) -> RestoredNumbers:
    """Give what `Queries.restored_numbers` promises."""

    def count_orders(action: str) -> int:
        found = select(func.count(distinct(events.c.order_key))).where(events.c.at >= since, events.c.action == action)
        return connection.scalar(found) or 0

    to_cancel = select(func.count()).where(jobs.c.kind == JobKind.CANCEL_AT_LIS, in_states(jobs.c.state, OPEN_JOBS))
    return RestoredNumbers(
        orders_completed_before=count_orders("completed_before"),
        orders_withdrawn=count_orders("withdrawn"),
        cancellations=connection.scalar(to_cancel) or 0,
    )


def load_affected_numbers(connection: Connection) -> AffectedNumbers:
    """Give what `Queries.affected_numbers` promises."""
    kinds: dict[JobKind, int] = dict(
        connection.execute(
            select(jobs.c.kind, func.count()).where(OF_ANY_KIND, in_states(jobs.c.state, OPEN_JOBS)).group_by(jobs.c.kind)
        ).all()
    )
    unfinished_orders = select(func.count()).select_from(orders).where(orders.c.state != literal_column("'closed'"))
    waiting = (
        select(lines.c.adapter, func.count())
        .where(in_states(lines.c.state, OPEN_LINES), lines.c.adapter.is_not(None))
        .group_by(lines.c.adapter)
    )
    to_hand_over = (
        select(work_orders.c.adapter, func.count())
        .where(in_states(work_orders.c.state, {WorkOrderState.ACCEPTED}))
        .group_by(work_orders.c.adapter)
    )
    unfinished_results = select(func.count()).select_from(reports).where(in_states(reports.c.state, UNFINISHED_REPORTS))
    return AffectedNumbers(
        unfinished_orders=connection.scalar(unfinished_orders) or 0,
        unfinished_results=connection.scalar(unfinished_results) or 0,
        orders_to_fetch=kinds.get(JobKind.FETCH_ORDER, 0),
        results_to_deliver=kinds.get(JobKind.DELIVER_REPORT, 0),
        tasks_to_update=kinds.get(JobKind.UPDATE_LINE_TASK, 0) + kinds.get(JobKind.UPDATE_ORDER_TASK, 0),
        orders_to_hand_over=dict(connection.execute(to_hand_over).all()),
        waiting_lines=dict(connection.execute(waiting).all()),
    )


def load_counts(connection: Connection, now: datetime) -> StateCounts:
    """Give what `Queries.counts` promises."""
    is_open = in_states(jobs.c.state, OPEN_JOBS) & OF_ANY_KIND
    per_kind = select(jobs.c.kind, jobs.c.state, func.count()).where(is_open).group_by(jobs.c.kind, jobs.c.state)
    is_waiting = in_states(refused_messages.c.state, {RefusedState.WAITING})
    refused = select(refused_messages.c.source, func.count()).where(is_waiting).group_by(refused_messages.c.source)
    return StateCounts(
        orders=_count_by_state(connection, orders, OPEN_ORDERS),
        lines=_count_by_state(connection, lines, OPEN_LINES),
        jobs={(kind, state): count for kind, state, count in connection.execute(per_kind)},
        reports=_count_by_state(connection, reports, UNFINISHED_REPORTS),
        refused_messages=dict(connection.execute(refused).all()),
        alerts=connection.scalar(select(func.count()).select_from(alerts).where(alerts.c.closed_at.is_(None))) or 0,
        due_since=_due_since(connection, now),
        last_poll=_last_poll(connection),
    )


def _count_by_state(
    connection: Connection, table: Table, states: Collection[StrEnum], *which: ColumnElement[bool]
) -> Mapping[Any, int]:
    counted = select(table.c.state, func.count()).where(in_states(table.c.state, states), *which).group_by(table.c.state)
    return {row[0]: row[1] for row in connection.execute(counted)}


def _count_closed_orders(connection: Connection, *, since: datetime) -> int:
    closed = select(func.count()).select_from(orders).where(orders.c.state == OrderState.CLOSED, orders.c.changed_at >= since)
    return connection.scalar(closed) or 0


def _oldest_by_state(
    connection: Connection, since: ColumnElement[Any], table: Table, states: Collection[StrEnum]
) -> Mapping[Any, datetime]:
    oldest = select(table.c.state, func.min(since, type_=UtcDateTime)).where(in_states(table.c.state, states))
    return {row[0]: row[1] for row in connection.execute(oldest.group_by(table.c.state))}


def _due_since(connection: Connection, now: datetime) -> datetime | None:
    """When the oldest work was due that is not done: what fails or has an unknown outcome counts from when it was first due."""
    due = in_states(jobs.c.state, CLAIMABLE_STATES) & (jobs.c.due_at <= now)
    of_kinds = [select(func.min(jobs.c.due_at).label("at")).where(due, jobs.c.kind == kind) for kind in JobKind]
    first_due = select(func.min(jobs.c.first_due_at).label("at"))
    failing = first_due.where(jobs.c.failing_since.is_not(None), ~in_states(jobs.c.state, JOBS_NEEDING_OPERATOR))
    unknown = first_due.where(in_states(jobs.c.state, {JobState.OUTCOME_UNKNOWN}), OF_ANY_KIND)
    each = union_all(*of_kinds, failing, unknown).subquery()  # each from an index
    since: datetime | None = connection.scalar(select(func.min(each.c.at)))
    return since


def _last_poll(connection: Connection) -> datetime | None:
    noted = connection.scalar(select(key_values.c.value).where(key_values.c.key == LAST_POLL_KEY))
    return None if noted is None else datetime.fromisoformat(noted)

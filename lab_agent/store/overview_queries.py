"""Numbers of everything that is not finished: for the overview, for metrics, and for what a condition affects.

All is counted by few statements, made once, each from indexes: what is finished costs nothing, however much of it there is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    distinct,
    func,
    literal_column,
    select,
    type_coerce,
)

from lab_agent.queue.job_records import JobKind
from lab_agent.results.refused_message_repository import refused_messages
from lab_agent.results.refused_records import RefusedState
from lab_agent.shared.state_machines import (
    CLAIMABLE_STATES,
    JOBS_NEEDING_OPERATOR,
    OPEN_JOBS,
    OPEN_LINES,
    OPEN_ORDERS,
    UNFINISHED_REPORTS,
    JobState,
    LineState,
    OrderState,
    ReportState,
    WorkOrderState,
)
from lab_agent.store.column_types import PlainText, UtcDateTime
from lab_agent.store.overview_facts import FACTS, HOURS, OverviewFacts, read_facts
from lab_agent.store.overview_rows import select_rows, unite
from lab_agent.store.query_pages import OF_ANY_KIND
from lab_agent.store.read_models import CLOSED_ORDERS_PERIOD, AffectedNumbers, Overview, OverviewPage, RestoredNumbers
from lab_agent.store.row_mapping import in_states
from lab_agent.store.tables import events, jobs, lines, orders, reports, work_orders

S = TypeVar("S", bound=StrEnum)

_UNFINISHED = ("orders", "lines", "jobs", "reports", "handovers", "refused", "due", "late")
"""Parts of what is read: what is unfinished, and how old it is."""
_NOTHING: ColumnElement[Any] = literal_column("NULL")


def _literal(name: str | StrEnum) -> ColumnElement[Any]:
    """A name of ours as part of the statement itself, as the conditions of indexes have it."""
    return literal_column(f"'{name!s}'")


def _count(part: str, table: Table, which: ColumnElement[bool], by: ColumnElement[Any] = _NOTHING) -> Select[Any]:
    """Count the rows of a table by their states, and by another column."""
    grouped = (table.c.state,) if by is _NOTHING else (table.c.state, by)
    return (
        select_rows(part, state=type_coerce(table.c.state, PlainText), by=type_coerce(by, PlainText), number=func.count())
        .where(which)
        .group_by(*grouped)
    )


_EVERY_COUNT = (
    _count("orders", orders, in_states(orders.c.state, OPEN_ORDERS)),
    _count("lines", lines, in_states(lines.c.state, OPEN_LINES), lines.c.adapter),
    _count("jobs", jobs, in_states(jobs.c.state, OPEN_JOBS) & OF_ANY_KIND, jobs.c.kind),
    _count("reports", reports, in_states(reports.c.state, UNFINISHED_REPORTS)),
    _count("handovers", work_orders, in_states(work_orders.c.state, {WorkOrderState.ACCEPTED}), work_orders.c.adapter),
    _count("refused", refused_messages, in_states(refused_messages.c.state, {RefusedState.WAITING}), refused_messages.c.source),
)


def _oldest(part: str, state: ColumnElement[Any], since: ColumnElement[Any], *which: ColumnElement[bool]) -> Select[Any]:
    return select_rows(part, state=state, since=func.min(since, type_=UtcDateTime)).where(*which)


def _oldest_of_orders(state: OrderState) -> Select[Any]:
    """Held ones since they are held; of the others the first of an index."""
    since = orders.c.held_since if state is OrderState.HELD else orders.c.changed_at
    return _oldest("orders", _literal(state), since, orders.c.state == _literal(state))


def _oldest_by_states(part: str, table: Table, since: ColumnElement[Any], states: Collection[StrEnum]) -> Select[Any]:
    of_state = type_coerce(table.c.state, PlainText)
    return _oldest(part, of_state, since, in_states(table.c.state, states)).group_by(table.c.state)


def _first_due(kind: JobKind) -> Select[Any]:
    return _oldest("due", _literal(kind), jobs.c.due_at, in_states(jobs.c.state, CLAIMABLE_STATES), jobs.c.kind == _literal(kind))


_IS_FAILING = jobs.c.failing_since.is_not(None) & ~in_states(jobs.c.state, JOBS_NEEDING_OPERATOR)
_IS_UNKNOWN = in_states(jobs.c.state, {JobState.OUTCOME_UNKNOWN}) & OF_ANY_KIND
_COUNTS = unite(*_EVERY_COUNT).execution_options(no_parameters=True)
_OVERVIEW = (
    *_EVERY_COUNT,
    *map(_oldest_of_orders, sorted(OPEN_ORDERS)),
    _oldest_by_states("jobs", jobs, jobs.c.first_due_at, OPEN_JOBS),
    _oldest_by_states("reports", reports, reports.c.received_at, UNFINISHED_REPORTS),
    *map(_first_due, sorted(JobKind)),
    _oldest("late", _literal("failing"), jobs.c.first_due_at, _IS_FAILING),
    _oldest("late", _literal("unknown"), jobs.c.first_due_at, _IS_UNKNOWN),
    *FACTS,
)
_WITHOUT_HOURS, _WITH_HOURS = unite(*_OVERVIEW), unite(*_OVERVIEW, HOURS)


def load_overview(connection: Connection, now: datetime) -> Overview:
    """Give what `Queries.overview` promises, by one statement."""
    parts = _by_part(connection.execute(_WITHOUT_HOURS, _times(now)))
    return _to_overview(parts, read_facts(parts), now)


def load_overview_page(connection: Connection, now: datetime, since: datetime) -> OverviewPage:
    """Give what `Queries.overview_page` promises, by one statement."""
    parts = _by_part(connection.execute(_WITH_HOURS, _times(now) | {"hours_since": since}))
    facts = read_facts(parts)
    return OverviewPage(overview=_to_overview(parts, facts, now), hours=facts.hours)


def _times(now: datetime) -> dict[str, datetime]:
    return {"now": now, "closed_since": now - CLOSED_ORDERS_PERIOD}


def _by_part(rows: Iterable[Any]) -> Mapping[str, Sequence[Any]]:
    parts: dict[str, list[Any]] = {}
    for row in rows:
        parts.setdefault(row.part, []).append(row)
    return parts


def _to_overview(parts: Mapping[str, Sequence[Any]], facts: OverviewFacts, now: datetime) -> Overview:
    found = [row for part in _UNFINISHED for row in parts.get(part, ())]
    counted = [row for row in found if row.number is not None]
    oldest = [row for row in found if row.since is not None]
    return Overview(
        orders=_by_state(counted, "orders", OrderState),
        closed_orders=facts.closed_orders,
        lines=_by_state(counted, "lines", LineState),
        jobs=_by_state(counted, "jobs", JobState),
        jobs_by_kind={(JobKind(row.by), JobState(row.state)): row.number for row in counted if row.part == "jobs"},
        reports=_by_state(counted, "reports", ReportState),
        refused_messages={row.by: row.number for row in counted if row.part == "refused"},
        oldest_orders=_oldest_by_state(oldest, "orders", OrderState),
        oldest_jobs=_oldest_by_state(oldest, "jobs", JobState),
        oldest_reports=_oldest_by_state(oldest, "reports", ReportState),
        due_since=_due_since(oldest, now),
        overdue_orders=facts.overdue_orders,
        alerts=facts.alerts,
        last_poll=facts.last_poll,
        next_due=facts.next_due,
        sign_in_until=facts.sign_in_until,
        affected=_to_affected_numbers(counted),
    )


def load_affected_numbers(connection: Connection) -> AffectedNumbers:
    """Give what `Queries.affected_numbers` promises."""
    return _to_affected_numbers(connection.execute(_COUNTS).all())


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


def _to_affected_numbers(counted: Sequence[Any]) -> AffectedNumbers:
    kinds = _sum(counted, "jobs")
    return AffectedNumbers(
        unfinished_orders=sum(row.number for row in counted if row.part == "orders"),
        unfinished_results=sum(row.number for row in counted if row.part == "reports"),
        orders_to_fetch=kinds.get(JobKind.FETCH_ORDER, 0),
        results_to_deliver=kinds.get(JobKind.DELIVER_REPORT, 0),
        tasks_to_update=kinds.get(JobKind.UPDATE_LINE_TASK, 0) + kinds.get(JobKind.UPDATE_ORDER_TASK, 0),
        orders_to_hand_over=_sum(counted, "handovers"),
        waiting_lines=_sum(counted, "lines"),
    )


def _sum(counted: Sequence[Any], part: str) -> Mapping[str, int]:
    """Numbers of a part by its other column, of all states together."""
    found: dict[str, int] = {}
    for row in counted:
        if row.part == part and row.by is not None:
            found[row.by] = found.get(row.by, 0) + row.number
    return found


def _by_state(counted: Sequence[Any], part: str, states: type[S]) -> Mapping[S, int]:
    found: dict[S, int] = {}
    for row in counted:
        if row.part == part:
            found[states(row.state)] = found.get(states(row.state), 0) + row.number
    return found


def _oldest_by_state(oldest: Sequence[Any], part: str, states: type[S]) -> Mapping[S, datetime]:
    return {states(row.state): row.since for row in oldest if row.part == part}


def _due_since(oldest: Sequence[Any], now: datetime) -> datetime | None:
    """When the oldest work was due that is not done: what fails or has an unknown outcome counts from when it was first due."""
    since = [row.since for row in oldest if row.part == "late" or (row.part == "due" and row.since <= now)]
    return min(since, default=None)

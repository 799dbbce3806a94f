"""The queries behind `SqlViews`: each gives a frozen picture of what is committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, String, Table, cast, func, literal, null, select, union_all

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.journal import Alert, Effect, Event, LabelUse, LineRecord, OrderRecord
from lab_agent.domain.lifecycle import (
    ASKING_EFFECTS,
    ENDED_LINES,
    OPEN_EFFECTS,
    WAITING_REPORTS,
    OrderState,
    ReportState,
)
from lab_agent.ports.views import (
    POLL_SUCCEEDED,
    Counts,
    OrderDetail,
    OrderSummary,
    Overview,
    ReportSummary,
    Sort,
    Trouble,
)
from lab_agent.store.report_pictures import report_summaries
from lab_agent.store.rows import among, to_record
from lab_agent.store.states import CLAIMABLE
from lab_agent.store.tables import alerts, effects, events, labels, lines, notes, orders, reports

_LATE = frozenset({OrderState.FETCHED, OrderState.HANDED_OVER, OrderState.REPORTED})
_HELD = frozenset({OrderState.HELD})


def overview(connection: Connection, now: datetime) -> Overview:
    """Say how things stand."""
    late = select(func.count()).select_from(orders).where(among(orders.c.state, _LATE), orders.c.expected_at < now)
    open_alerts = select(alerts).where(alerts.c.closed_at.is_(None)).order_by(alerts.c.opened_at)
    return Overview(
        orders=_by_state(connection, orders),
        lines=_by_state(connection, lines),
        effects=_by_state(connection, effects),
        reports=_by_state(connection, reports),
        oldest_orders=_oldest(connection, orders, frozenset(OrderState) - {OrderState.CLOSED}),
        oldest_effects=_oldest(connection, effects, OPEN_EFFECTS),
        oldest_reports=_oldest(connection, reports, WAITING_REPORTS | {ReportState.RECEIVED, ReportState.MATCHED}),
        due_since=_due_since(connection, now),
        overdue_orders=connection.scalar(late) or 0,
        alerts=records(connection, Alert, open_alerts),
        last_poll=_last_poll(connection),
    )


def counts(connection: Connection, now: datetime) -> Counts:
    """Give the numbers for metrics."""
    per_kind = select(effects.c.kind, effects.c.state, func.count()).group_by(effects.c.kind, effects.c.state)
    return Counts(
        orders=_by_state(connection, orders),
        lines=_by_state(connection, lines),
        effects={(kind, state): count for kind, state, count in connection.execute(per_kind)},
        reports=_by_state(connection, reports),
        alerts=connection.scalar(select(func.count()).select_from(alerts).where(alerts.c.closed_at.is_(None))) or 0,
        due_since=_due_since(connection, now),
        last_poll=_last_poll(connection),
    )


def detail(connection: Connection, key: OrderKey) -> OrderDetail | None:
    """Give all about one order; None if it is unknown."""
    found = records(connection, OrderRecord, select(orders).where(orders.c.key == key))
    if not found:
        return None
    return OrderDetail(
        order=found[0],
        lines=records(connection, LineRecord, select(lines).where(lines.c.order_key == key).order_by(lines.c.number)),
        labels=records(connection, LabelUse, select(labels).where(labels.c.order_key == key).order_by(labels.c.number)),
        effects=records(connection, Effect, select(effects).where(effects.c.order_key == key).order_by(effects.c.id)),
        reports=records(
            connection, ReportSummary, report_summaries().where(reports.c.order_key == key).order_by(reports.c.sequence)
        ),
        events=records(connection, Event, select(events).where(events.c.order_key == key).order_by(events.c.at, events.c.number)),
    )


def _by_state(connection: Connection, table: Table) -> Mapping[Any, int]:
    counted = select(table.c.state, func.count()).group_by(table.c.state)
    return {row[0]: row[1] for row in connection.execute(counted)}


def _oldest(connection: Connection, table: Table, states: Collection[Any]) -> Mapping[Any, datetime]:
    found = select(table.c.state, func.min(table.c.changed_at)).where(among(table.c.state, states)).group_by(table.c.state)
    return {row[0]: row[1] for row in connection.execute(found)}


def _due_since(connection: Connection, now: datetime) -> datetime | None:
    due = among(effects.c.state, CLAIMABLE) & (effects.c.due_at <= now)
    since: datetime | None = connection.scalar(select(func.min(effects.c.due_at)).where(due))
    return since


def _last_poll(connection: Connection) -> datetime | None:
    noted = connection.scalar(select(notes.c.value).where(notes.c.key == POLL_SUCCEEDED))
    return None if noted is None else datetime.fromisoformat(noted)


def carries(search: str) -> ColumnElement[bool]:
    """Say that an order carries this key, Task id, requisition, accession or barcode, itself or on a line."""
    on_lines = select(lines.c.order_key).where(
        (lines.c.key == search.upper()) | (lines.c.task_id == search) | (lines.c.accession == search)
    )
    on_labels = select(labels.c.order_key).where(labels.c.barcode == search)
    return (
        (orders.c.key == search.upper())
        | (orders.c.task_id == search)
        | (orders.c.requisition_value == search)
        | (orders.c.accession == search)
        | orders.c.key.in_(union_all(on_lines, on_labels))
    )


def summaries() -> Select[Any]:
    """Ask for orders, each with the numbers of its lines, open effects and troubles."""
    own = {"lines", "ended_lines", "open_effects", "troubles"}
    columns = [orders.c[field.name] for field in fields(OrderSummary) if field.name not in own]
    its_lines = select(func.count()).select_from(lines).where(lines.c.order_key == orders.c.key)
    its_effects = select(func.count()).select_from(effects).where(effects.c.order_key == orders.c.key)
    its_reports = select(func.count()).select_from(reports).where(reports.c.order_key == orders.c.key)
    asking = its_effects.where(among(effects.c.state, ASKING_EFFECTS)).scalar_subquery()
    waiting = its_reports.where(among(reports.c.state, WAITING_REPORTS)).scalar_subquery()
    return select(
        *columns,
        its_lines.scalar_subquery().label("lines"),
        its_lines.where(among(lines.c.state, ENDED_LINES)).scalar_subquery().label("ended_lines"),
        its_effects.where(among(effects.c.state, OPEN_EFFECTS)).scalar_subquery().label("open_effects"),
        (asking + waiting).label("troubles"),
    )


def troubles() -> Any:
    """Ask for all that waits for a person."""
    held = select(
        literal(Sort.ORDER.value).label("sort"),
        orders.c.key.label("ref"),
        cast(orders.c.state, String).label("state"),
        orders.c.contract.label("kind"),
        orders.c.key.label("order_key"),
        cast(null(), String).label("subject"),
        orders.c.reason.label("reason"),
        orders.c.changed_at.label("since"),
        literal(0).label("attempts"),
    ).where(among(orders.c.state, _HELD))
    asking = select(
        literal(Sort.EFFECT.value),
        cast(effects.c.id, String),
        cast(effects.c.state, String),
        cast(effects.c.kind, String),
        effects.c.order_key,
        effects.c.subject,
        effects.c.reason,
        effects.c.changed_at,
        effects.c.attempts,
    ).where(among(effects.c.state, ASKING_EFFECTS))
    waiting = select(
        literal(Sort.REPORT.value),
        reports.c.key,
        cast(reports.c.state, String),
        reports.c.source,
        reports.c.order_key,
        reports.c.report_id,
        reports.c.reason,
        reports.c.changed_at,
        literal(0),
    ).where(among(reports.c.state, WAITING_REPORTS))
    return union_all(held, asking, waiting)


def asking(connection: Connection) -> Mapping[Sort, int]:
    """Count what waits for a person, by its sort."""
    found = troubles().subquery()
    counted = connection.execute(select(found.c.sort, func.count()).group_by(found.c.sort))
    return {Sort(sort): number for sort, number in counted}


def trouble(row: Any) -> Trouble:
    """Make a `Trouble` of a row of `troubles`."""
    values = dict(row)
    return Trouble(order=values.pop("order_key"), sort=Sort(values.pop("sort")), **values)


def maker(kind: type[Any]) -> Callable[[Any], Any]:
    """Give a function that makes a record of a row."""
    return lambda row: to_record(kind, row)


def records(connection: Connection, kind: type[Any], statement: Select[Any]) -> tuple[Any, ...]:
    """Ask, and make a record of each row."""
    return tuple(to_record(kind, row) for row in connection.execute(statement).mappings())

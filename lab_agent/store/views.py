"""`SqlViews`: pictures of the store for pages, commands and metrics (`ports.views`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, FromClause, Select, String, Table, cast, func, literal, null, select, union_all

from lab_agent.domain.ids import EffectId, OrderKey, ReportKey
from lab_agent.domain.journal import Alert, Effect, EffectKind, Event, LabelUse, LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.lifecycle import (
    ENDED_LINES,
    OPEN_EFFECTS,
    WAITING_REPORTS,
    EffectState,
    OrderState,
    ReportState,
)
from lab_agent.ports.views import (
    PAGE,
    POLL_SUCCEEDED,
    Counts,
    OrderDetail,
    OrderSummary,
    Overview,
    Page,
    ReportSummary,
    Sort,
    Trouble,
)
from lab_agent.store.rows import among, to_record
from lab_agent.store.states import ASKING, CLAIMABLE
from lab_agent.store.tables import alerts, effects, events, labels, lines, notes, orders, reports
from lab_agent.store.unit_of_work import SqlStore

T = TypeVar("T")

_LATE = frozenset({OrderState.FETCHED, OrderState.HANDED_OVER, OrderState.REPORTED})
_HELD = frozenset({OrderState.HELD})


class SqlViews:
    """Reads on a store's own connections for reading."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    async def overview(self, *, now: datetime) -> Overview:
        """How things stand."""
        return await self._store.read(lambda connection: _overview(connection, now))

    async def counts(self, *, now: datetime) -> Counts:
        """Numbers for metrics."""
        return await self._store.read(lambda connection: _counts(connection, now))

    async def failures(self, *, offset: int = 0, limit: int = PAGE) -> Page[Trouble]:
        """What waits for a person, longest first."""
        found = _troubles().subquery()
        listed = select(found).order_by(found.c.since, found.c.sort, found.c.ref)
        return await self._page(listed, found, _trouble, offset, limit)

    async def orders(
        self, *, search: str | None = None, states: Collection[OrderState] = (), offset: int = 0, limit: int = PAGE
    ) -> Page[OrderSummary]:
        """Orders, newest first; `search` is an order or line key, Task id, requisition, accession or barcode, whole."""
        which = [among(orders.c.state, states)] if states else []
        which += [_names(search.strip())] if search and search.strip() else []
        listed = _summaries().where(*which).order_by(orders.c.seen_at.desc(), orders.c.key)
        return await self._page(listed, select(orders.c.key).where(*which).subquery(), _as(OrderSummary), offset, limit)

    async def order(self, key: OrderKey) -> OrderDetail | None:
        """All about one order; None if it is unknown."""
        return await self._store.read(lambda connection: _detail(connection, key))

    async def effects(
        self,
        *,
        states: Collection[EffectState] = (),
        kinds: Collection[EffectKind] = (),
        offset: int = 0,
        limit: int = PAGE,
    ) -> Page[Effect]:
        """Effects, oldest first."""
        which = [among(effects.c.state, states)] if states else []
        which += [effects.c.kind.in_(sorted(kinds))] if kinds else []
        listed = select(effects).where(*which).order_by(effects.c.id)
        return await self._page(listed, select(effects.c.id).where(*which).subquery(), _as(Effect), offset, limit)

    async def effect(self, effect: EffectId) -> Effect | None:
        """One effect; None if it is unknown."""
        found = await self._store.read(lambda connection: _all(connection, Effect, select(effects).where(effects.c.id == effect)))
        return found[0] if found else None

    async def reports(self, *, states: Collection[ReportState] = (), offset: int = 0, limit: int = PAGE) -> Page[ReportSummary]:
        """Reports, newest first."""
        which = [among(reports.c.state, states)] if states else []
        listed = _report_summaries().where(*which).order_by(reports.c.sequence.desc())
        return await self._page(listed, select(reports.c.sequence).where(*which).subquery(), _as(ReportSummary), offset, limit)

    async def report(self, key: ReportKey) -> ReportRecord | None:
        """One report with its content; None if it is unknown."""
        wanted = select(reports).where(reports.c.key == key)
        found = await self._store.read(lambda connection: _all(connection, ReportRecord, wanted))
        return found[0] if found else None

    async def alerts(self, *, offset: int = 0, limit: int = PAGE) -> Page[Alert]:
        """Alerts, open and closed, newest first."""
        listed = select(alerts).order_by(alerts.c.opened_at.desc(), alerts.c.number.desc())
        return await self._page(listed, alerts, _as(Alert), offset, limit)

    async def _page(self, listed: Select[Any], whole: FromClause, make: Callable[[Any], T], offset: int, limit: int) -> Page[T]:
        def look(connection: Connection) -> Page[T]:
            total = connection.scalar(select(func.count()).select_from(whole)) or 0
            rows = connection.execute(listed.offset(offset).limit(limit)).mappings()
            return Page(items=tuple(make(row) for row in rows), total=total, offset=offset)

        return await self._store.read(look)


def _overview(connection: Connection, now: datetime) -> Overview:
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
        alerts=_all(connection, Alert, open_alerts),
        last_poll=_last_poll(connection),
    )


def _counts(connection: Connection, now: datetime) -> Counts:
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


def _detail(connection: Connection, key: OrderKey) -> OrderDetail | None:
    found = _all(connection, OrderRecord, select(orders).where(orders.c.key == key))
    if not found:
        return None
    return OrderDetail(
        order=found[0],
        lines=_all(connection, LineRecord, select(lines).where(lines.c.order_key == key).order_by(lines.c.number)),
        labels=_all(connection, LabelUse, select(labels).where(labels.c.order_key == key).order_by(labels.c.number)),
        effects=_all(connection, Effect, select(effects).where(effects.c.order_key == key).order_by(effects.c.id)),
        reports=_all(
            connection, ReportSummary, _report_summaries().where(reports.c.order_key == key).order_by(reports.c.sequence)
        ),
        events=_all(connection, Event, select(events).where(events.c.order_key == key).order_by(events.c.at, events.c.number)),
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


def _names(search: str) -> ColumnElement[bool]:
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


def _summaries() -> Select[Any]:
    own = {"lines", "ended_lines", "open_effects", "troubles"}
    columns = [orders.c[field.name] for field in fields(OrderSummary) if field.name not in own]
    its_lines = select(func.count()).select_from(lines).where(lines.c.order_key == orders.c.key)
    its_effects = select(func.count()).select_from(effects).where(effects.c.order_key == orders.c.key)
    its_reports = select(func.count()).select_from(reports).where(reports.c.order_key == orders.c.key)
    asking = its_effects.where(among(effects.c.state, ASKING)).scalar_subquery()
    waiting = its_reports.where(among(reports.c.state, WAITING_REPORTS)).scalar_subquery()
    return select(
        *columns,
        its_lines.scalar_subquery().label("lines"),
        its_lines.where(among(lines.c.state, ENDED_LINES)).scalar_subquery().label("ended_lines"),
        its_effects.where(among(effects.c.state, OPEN_EFFECTS)).scalar_subquery().label("open_effects"),
        (asking + waiting).label("troubles"),
    )


def _report_summaries() -> Select[Any]:
    return select(*(column for column in reports.c if column.name != "body"))


def _troubles() -> Any:
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
    ).where(among(effects.c.state, ASKING))
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


def _trouble(row: Any) -> Trouble:
    values = dict(row)
    return Trouble(order=values.pop("order_key"), sort=Sort(values.pop("sort")), **values)


def _as(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda row: to_record(kind, row)


def _all(connection: Connection, kind: type[Any], statement: Select[Any]) -> tuple[Any, ...]:
    return tuple(to_record(kind, row) for row in connection.execute(statement).mappings())

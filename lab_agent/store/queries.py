"""`SqlQueries`: what pages, commands and metrics read, each from one consistent snapshot of what is committed.

It has connections of its own for reading, so that no page delays the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    String,
    Table,
    cast,
    func,
    literal,
    literal_column,
    null,
    select,
    union_all,
)
from typing_extensions import override

from lab_agent.conditions.model import AlertKey
from lab_agent.crypto import decrypted_size
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import JobId, OrderKey, ReportKey
from lab_agent.domain.records import Alert, Event, HoldReason, Job, JobKind, LabelUse, LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.state_machines import (
    CLAIMABLE_STATES,
    ENDED_LINES,
    JOBS_NEEDING_OPERATOR,
    OPEN_JOBS,
    OPEN_LINES,
    OPEN_ORDERS,
    ORDERS_AWAITING_RESULTS,
    REPORTS_NEEDING_OPERATOR,
    UNFINISHED_REPORTS,
    JobState,
    OrderState,
    ReportState,
)
from lab_agent.domain.work_orders import WorkOrder
from lab_agent.ports.queries import (
    CLOSED_ORDERS_PERIOD,
    DEFAULT_PAGE_SIZE,
    DOCUMENT_ORPHAN_ACTION,
    LAST_POLL_KEY,
    MAX_COUNTED,
    AffectedNumbers,
    AttentionItem,
    AttentionKind,
    OrderDetail,
    OrderSummary,
    OverdueResults,
    Overview,
    Page,
    Queries,
    RecentActivity,
    ReportSummary,
    StateCounts,
)
from lab_agent.store.overdue_results import load_overdue_results
from lab_agent.store.recent_activity import load_recent_activity
from lab_agent.store.row_mapping import in_states, to_record, unindexed
from lab_agent.store.tables import alerts, documents, events, jobs, key_values, label_uses, lines, orders, reports, work_orders
from lab_agent.store.unit_of_work import SqlStore

T = TypeVar("T")

_HELD_STATES = frozenset({OrderState.HELD})
_OF_ANY_KIND = jobs.c.kind.in_(sorted(JobKind))
"""Says nothing, but lets an index that begins with the kind be used."""


class SqlQueries(Queries):
    """Reads the tables of a `SqlStore`."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    @override
    async def overview(self, *, now: datetime) -> Overview:
        return await self._store.read(lambda connection: _load_overview(connection, now))

    @override
    async def counts(self, *, now: datetime) -> StateCounts:
        return await self._store.read(lambda connection: _load_counts(connection, now))

    @override
    async def affected_numbers(self) -> AffectedNumbers:
        return await self._store.read(_load_affected_numbers)

    @override
    async def overdue_results(self, *, before: datetime) -> tuple[OverdueResults, ...]:
        return await self._store.read(lambda connection: load_overdue_results(connection, before))

    @override
    async def recent_activity(self, *, since: datetime) -> RecentActivity:
        return await self._store.read(lambda connection: load_recent_activity(connection, since))

    @override
    async def needs_attention(
        self, *, cause: AlertKey | None = None, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE
    ) -> Page[AttentionItem]:
        found = _select_attention_items(cause).subquery()
        listed = select(found).order_by(found.c.since, found.c.attention_kind, found.c.ref)
        return await self._load_page(listed, select(found.c.ref), _to_attention_item, offset, limit)

    @override
    async def attention_counts(self) -> Mapping[AttentionKind, int]:
        return await self._store.read(_count_attention_items)

    @override
    async def orders(
        self, *, search: str | None = None, states: Collection[OrderState] = (), offset: int = 0, limit: int = DEFAULT_PAGE_SIZE
    ) -> Page[OrderSummary]:
        which = [_is_in(orders.c.state, states, many=OrderState.CLOSED in states)] if states else []
        which += [_order_matches(search.strip())] if search and search.strip() else []
        listed = _select_order_summaries().where(*which).order_by(orders.c.seen_at.desc(), orders.c.key.desc())

        def load(connection: Connection) -> Page[OrderSummary]:
            page = _fetch_page(connection, listed, select(orders.c.key).where(*which), _to_order_summary, offset, limit)
            parts = _load_work_orders(connection, [order.key for order in page.items])
            items = (replace(each, work_orders=tuple(part for part in parts if part.order == each.key)) for each in page.items)
            return replace(page, items=tuple(items))

        return await self._store.read(load)

    @override
    async def order(self, key: OrderKey) -> OrderDetail | None:
        return await self._store.read(lambda connection: _load_order_detail(connection, key))

    @override
    async def jobs(
        self,
        *,
        states: Collection[JobState] = (),
        kinds: Collection[JobKind] = (),
        offset: int = 0,
        limit: int = DEFAULT_PAGE_SIZE,
    ) -> Page[Job]:
        finished = not OPEN_JOBS.issuperset(states)
        which = [_is_in(jobs.c.state, states, many=finished)] if states else []
        which += [jobs.c.kind.in_(sorted(kinds))] if kinds else [_OF_ANY_KIND] if states and not finished else []
        listed = select(jobs).where(*which).order_by(jobs.c.id)
        return await self._load_page(listed, select(jobs.c.id).where(*which), _record_factory(Job), offset, limit)

    @override
    async def job(self, job: JobId) -> Job | None:
        found = await self._store.read(lambda connection: _fetch_records(connection, Job, select(jobs).where(jobs.c.id == job)))
        return found[0] if found else None

    @override
    async def reports(
        self, *, states: Collection[ReportState] = (), offset: int = 0, limit: int = DEFAULT_PAGE_SIZE
    ) -> Page[ReportSummary]:
        which = [_is_in(reports.c.state, states, many=not UNFINISHED_REPORTS.issuperset(states))] if states else []
        listed = _select_report_summaries().where(*which).order_by(reports.c.sequence.desc())
        return await self._load_page(
            listed, select(reports.c.sequence).where(*which), _record_factory(ReportSummary), offset, limit
        )

    @override
    async def report(self, key: ReportKey) -> ReportRecord | None:
        wanted = select(reports).where(reports.c.key == key)
        found = await self._store.read(lambda connection: _fetch_records(connection, ReportRecord, wanted))
        return found[0] if found else None

    @override
    async def unmatched_reports(self, *, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[ReportRecord]:
        listed = _select_reports_needing_operator()
        whole = listed.with_only_columns(reports.c.sequence).order_by(None)
        return await self._load_page(listed, whole, _record_factory(ReportRecord), offset, limit)

    @override
    async def versions(self, report: ReportRecord, *, limit: int = DEFAULT_PAGE_SIZE) -> tuple[ReportSummary, ...]:
        wanted = _select_report_versions(report).order_by(reports.c.sequence.desc()).limit(limit)
        return await self._store.read(lambda connection: _fetch_records(connection, ReportSummary, wanted))

    @override
    async def document_sizes(self, documents: Collection[str]) -> Mapping[str, int]:
        return await self._store.read(lambda connection: _load_document_sizes(connection, documents))

    @override
    async def report_events(self, report: ReportKey) -> tuple[Event, ...]:
        wanted = select(events).where(events.c.report == report).order_by(events.c.at, events.c.number)
        return await self._store.read(lambda connection: _fetch_records(connection, Event, wanted))

    @override
    async def orphaned_documents(self, *, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[Event]:
        which = events.c.action == literal_column(f"'{DOCUMENT_ORPHAN_ACTION}'")  # a literal, as in the condition of its index
        listed = select(events).where(which).order_by(events.c.at.desc(), events.c.number.desc())
        return await self._load_page(listed, select(events.c.number).where(which), _record_factory(Event), offset, limit)

    @override
    async def alerts(self, *, is_open: bool | None = None, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[Alert]:
        wanted = [] if is_open is None else [alerts.c.closed_at.is_(None) if is_open else alerts.c.closed_at.is_not(None)]
        newest_first = (alerts.c.opened_at.desc(), alerts.c.number.desc())
        listed = select(alerts).where(*wanted).order_by(*((alerts.c.since, alerts.c.number) if is_open else newest_first))
        return await self._load_page(listed, select(alerts.c.number).where(*wanted), _record_factory(Alert), offset, limit)

    async def _load_page(
        self, listed: Select[Any], whole: Select[Any], make: Callable[[Any], T], offset: int, limit: int
    ) -> Page[T]:
        return await self._store.read(lambda connection: _fetch_page(connection, listed, whole, make, offset, limit))


def _fetch_page(
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


def _is_in(column: ColumnElement[Any], states: Collection[StrEnum], *, many: bool) -> ColumnElement[bool]:
    """Say that a state is one of these. Where `many` rows have it, their index is hidden: the list is read in its own order."""
    return in_states(unindexed(column) if many else column, states)


def _select_report_summaries() -> Select[Any]:
    return select(*(column for column in reports.c if column.name not in {"body", "outgoing_body"}))


def _select_reports_needing_operator() -> Select[Any]:
    return select(reports).where(in_states(reports.c.state, REPORTS_NEEDING_OPERATOR)).order_by(reports.c.sequence)


def _select_report_versions(report: ReportRecord) -> Select[Any]:
    if report.report_id is None:
        return _select_report_summaries().where(reports.c.key == report.key)
    about = reports.c.order_key.is_(None) if report.order is None else reports.c.order_key == report.order
    return _select_report_summaries().where(about, reports.c.source == report.source, reports.c.report_id == report.report_id)


def _load_document_sizes(connection: Connection, document_ids: Collection[str]) -> Mapping[str, int]:
    lengths = select(documents.c.id, func.length(documents.c.ciphertext)).where(documents.c.id.in_(sorted(document_ids)))
    return {name: decrypted_size(length) for name, length in connection.execute(lengths)}


def _load_overview(connection: Connection, now: datetime) -> Overview:
    is_overdue = in_states(orders.c.state, ORDERS_AWAITING_RESULTS) & (orders.c.expected_at < now)
    overdue = select(func.count()).select_from(orders).where(is_overdue)
    open_alerts = select(alerts).where(alerts.c.closed_at.is_(None)).order_by(alerts.c.opened_at)
    return Overview(
        orders=_count_by_state(connection, orders, OPEN_ORDERS),
        closed_orders=_count_closed_orders(connection, since=now - CLOSED_ORDERS_PERIOD),
        lines=_count_by_state(connection, lines, OPEN_LINES),
        jobs=_count_by_state(connection, jobs, OPEN_JOBS, _OF_ANY_KIND),
        reports=_count_by_state(connection, reports, UNFINISHED_REPORTS),
        oldest_orders=_oldest_by_state(connection, orders, OPEN_ORDERS),
        oldest_jobs=_oldest_by_state(connection, jobs, OPEN_JOBS, _OF_ANY_KIND),
        oldest_reports=_oldest_by_state(connection, reports, UNFINISHED_REPORTS),
        due_since=_due_since(connection, now),
        overdue_orders=connection.scalar(overdue) or 0,
        alerts=_fetch_records(connection, Alert, open_alerts),
        last_poll=_last_poll(connection),
    )


def _load_affected_numbers(connection: Connection) -> AffectedNumbers:
    kinds: dict[JobKind, int] = dict(
        connection.execute(
            select(jobs.c.kind, func.count()).where(_OF_ANY_KIND, in_states(jobs.c.state, OPEN_JOBS)).group_by(jobs.c.kind)
        ).all()
    )
    unfinished_orders = select(func.count()).select_from(orders).where(orders.c.state != literal_column("'closed'"))
    waiting = (
        select(lines.c.adapter, func.count())
        .where(in_states(lines.c.state, OPEN_LINES), lines.c.adapter.is_not(None))
        .group_by(lines.c.adapter)
    )
    unfinished_results = select(func.count()).select_from(reports).where(in_states(reports.c.state, UNFINISHED_REPORTS))
    return AffectedNumbers(
        unfinished_orders=connection.scalar(unfinished_orders) or 0,
        unfinished_results=connection.scalar(unfinished_results) or 0,
        orders_to_fetch=kinds.get(JobKind.FETCH_ORDER, 0),
        results_to_deliver=kinds.get(JobKind.DELIVER_REPORT, 0),
        tasks_to_update=kinds.get(JobKind.UPDATE_LINE_TASK, 0) + kinds.get(JobKind.UPDATE_ORDER_TASK, 0),
        orders_to_hand_over={},
        waiting_lines=dict(connection.execute(waiting).all()),
    )


def _load_counts(connection: Connection, now: datetime) -> StateCounts:
    is_open = in_states(jobs.c.state, OPEN_JOBS) & _OF_ANY_KIND
    per_kind = select(jobs.c.kind, jobs.c.state, func.count()).where(is_open).group_by(jobs.c.kind, jobs.c.state)
    return StateCounts(
        orders=_count_by_state(connection, orders, OPEN_ORDERS),
        lines=_count_by_state(connection, lines, OPEN_LINES),
        jobs={(kind, state): count for kind, state, count in connection.execute(per_kind)},
        reports=_count_by_state(connection, reports, UNFINISHED_REPORTS),
        alerts=connection.scalar(select(func.count()).select_from(alerts).where(alerts.c.closed_at.is_(None))) or 0,
        due_since=_due_since(connection, now),
        last_poll=_last_poll(connection),
    )


def _load_order_detail(connection: Connection, key: OrderKey) -> OrderDetail | None:
    found = _fetch_records(connection, OrderRecord, select(orders).where(orders.c.key == key))
    if not found:
        return None
    return OrderDetail(
        order=found[0],
        work_orders=_load_work_orders(connection, [key]),
        lines=_fetch_records(connection, LineRecord, select(lines).where(lines.c.order_key == key).order_by(lines.c.number)),
        labels=_fetch_records(
            connection, LabelUse, select(label_uses).where(label_uses.c.order_key == key).order_by(label_uses.c.number)
        ),
        jobs=_fetch_records(connection, Job, select(jobs).where(jobs.c.order_key == key).order_by(jobs.c.id)),
        reports=_fetch_records(
            connection, ReportSummary, _select_report_summaries().where(reports.c.order_key == key).order_by(reports.c.sequence)
        ),
        events=_fetch_records(
            connection, Event, select(events).where(events.c.order_key == key).order_by(events.c.at, events.c.number)
        ),
    )


def _load_work_orders(connection: Connection, keys: Collection[str]) -> tuple[WorkOrder, ...]:
    found = select(work_orders).where(work_orders.c.order_key.in_(keys)).order_by(work_orders.c.adapter)
    return _fetch_records(connection, WorkOrder, found)


def _count_by_state(
    connection: Connection, table: Table, states: Collection[StrEnum], *which: ColumnElement[bool]
) -> Mapping[Any, int]:
    counted = select(table.c.state, func.count()).where(in_states(table.c.state, states), *which).group_by(table.c.state)
    return {row[0]: row[1] for row in connection.execute(counted)}


def _count_closed_orders(connection: Connection, *, since: datetime) -> int:
    closed = select(func.count()).select_from(orders).where(orders.c.state == OrderState.CLOSED, orders.c.changed_at >= since)
    return connection.scalar(closed) or 0


def _oldest_by_state(
    connection: Connection, table: Table, states: Collection[StrEnum], *which: ColumnElement[bool]
) -> Mapping[Any, datetime]:
    oldest = select(table.c.state, func.min(table.c.changed_at)).where(in_states(table.c.state, states), *which)
    found = oldest.group_by(table.c.state)
    return {row[0]: row[1] for row in connection.execute(found)}


def _due_since(connection: Connection, now: datetime) -> datetime | None:
    due = in_states(jobs.c.state, CLAIMABLE_STATES) & (jobs.c.due_at <= now)
    of_kinds = (select(func.min(jobs.c.due_at).label("at")).where(due, jobs.c.kind == kind) for kind in JobKind)
    since: datetime | None = connection.scalar(select(func.min(union_all(*of_kinds).subquery().c.at)))  # each from the index
    return since


def _last_poll(connection: Connection) -> datetime | None:
    noted = connection.scalar(select(key_values.c.value).where(key_values.c.key == LAST_POLL_KEY))
    return None if noted is None else datetime.fromisoformat(noted)


def _order_matches(search: str) -> ColumnElement[bool]:
    """Whether an order has this key, Task id, requisition, accession or barcode, itself or on a line."""
    on_lines = select(lines.c.order_key).where(
        (lines.c.key == search.upper()) | (lines.c.task_id == search) | (lines.c.accession == search)
    )
    numbered = select(work_orders.c.order_key).where(work_orders.c.accession == search)
    on_labels = select(label_uses.c.order_key).where(label_uses.c.barcode == search)
    return (
        (orders.c.key == search.upper())
        | (orders.c.task_id == search)
        | (orders.c.requisition_value == search)
        | orders.c.key.in_(union_all(on_lines, numbered, on_labels))
    )


def _select_order_summaries() -> Select[Any]:
    own = {"work_orders", "lines", "ended_lines", "open_jobs", "attention_count"}
    columns = [orders.c[field.name] for field in fields(OrderSummary) if field.name not in own]
    its_lines = select(func.count()).select_from(lines).where(lines.c.order_key == orders.c.key)
    its_jobs = select(func.count()).select_from(jobs).where(jobs.c.order_key == orders.c.key)
    its_reports = select(func.count()).select_from(reports).where(reports.c.order_key == orders.c.key)
    asking = its_jobs.where(in_states(jobs.c.state, JOBS_NEEDING_OPERATOR)).scalar_subquery()
    waiting = its_reports.where(in_states(reports.c.state, REPORTS_NEEDING_OPERATOR)).scalar_subquery()
    return select(
        *columns,
        its_lines.scalar_subquery().label("lines"),
        its_lines.where(in_states(lines.c.state, ENDED_LINES)).scalar_subquery().label("ended_lines"),
        its_jobs.where(in_states(jobs.c.state, OPEN_JOBS)).scalar_subquery().label("open_jobs"),
        (asking + waiting).label("attention_count"),
    )


def _to_order_summary(row: Any) -> OrderSummary:
    return OrderSummary(**row, work_orders=())


def _select_attention_items(cause: AlertKey | None = None) -> Any:
    held = select(
        literal(AttentionKind.ORDER.value).label("attention_kind"),
        orders.c.key.label("ref"),
        cast(orders.c.state, String).label("state"),
        orders.c.contract.label("kind"),
        orders.c.key.label("order_key"),
        cast(null(), String).label("target"),
        cast(null(), String).label("hold_reason"),
        orders.c.reason.label("reason"),
        orders.c.held_since.label("since"),
        literal(0).label("attempts"),
    ).where(in_states(orders.c.state, _HELD_STATES))
    asking = select(
        literal(AttentionKind.JOB.value),
        cast(jobs.c.id, String),
        cast(jobs.c.state, String),
        cast(jobs.c.kind, String),
        jobs.c.order_key,
        jobs.c.target,
        cast(null(), String),
        jobs.c.reason,
        jobs.c.first_due_at,
        jobs.c.attempts,
    ).where(in_states(jobs.c.state, JOBS_NEEDING_OPERATOR))
    waiting = select(
        literal(AttentionKind.REPORT.value),
        reports.c.key,
        cast(reports.c.state, String),
        reports.c.source,
        reports.c.order_key,
        reports.c.report_id,
        cast(reports.c.hold_reason, String),
        reports.c.reason,
        reports.c.received_at,
        literal(0),
    ).where(in_states(reports.c.state, REPORTS_NEEDING_OPERATOR))
    return union_all(held, asking, waiting) if cause is None else _narrow(held, asking, waiting, cause)


def _narrow(held: Select[Any], asking: Select[Any], waiting: Select[Any], cause: AlertKey) -> Select[Any]:
    """What needs attention for one cause alone: held orders, jobs that were set aside, or results."""
    condition, subject = cause
    match condition.value.partition("."):
        case "jobs", _, code:
            of_system = [jobs.c.system == subject] if subject else []
            return _named_as(held, asking).where(jobs.c.failure_cause == FailureCause(code), *of_system)
        case "results", _, state:
            why = [reports.c.hold_reason == HoldReason(subject)] if subject else []
            return _named_as(held, waiting).where(reports.c.state == ReportState(state), *why)
        case _:
            return held.where(orders.c.hold_cause == subject)


def _named_as(first: Select[Any], other: Select[Any]) -> Select[Any]:
    """Give the columns of a select the names of another's, as a union does."""
    names = [column.name for column in first.selected_columns]
    return other.with_only_columns(*(column.label(name) for name, column in zip(names, other.selected_columns, strict=True)))


def _count_attention_items(connection: Connection) -> Mapping[AttentionKind, int]:
    found = _select_attention_items().subquery()
    counted = connection.execute(select(found.c.attention_kind, func.count()).group_by(found.c.attention_kind))
    return {AttentionKind(kind): number for kind, number in counted}


def _to_attention_item(row: Any) -> AttentionItem:
    values = dict(row)
    hold_reason = values.pop("hold_reason")
    return AttentionItem(
        order=values.pop("order_key"),
        attention_kind=AttentionKind(values.pop("attention_kind")),
        hold_reason=HoldReason(hold_reason) if hold_reason else None,
        **values,
    )


def _record_factory(record_type: type[Any]) -> Callable[[Any], Any]:
    return lambda row: to_record(record_type, row)


def _fetch_records(connection: Connection, record_type: type[Any], statement: Select[Any]) -> tuple[Any, ...]:
    return tuple(to_record(record_type, row) for row in connection.execute(statement).mappings())

"""`SqlViews`: pictures of the store for pages, commands and metrics (`ports.views`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, FromClause, Select, func, select

from lab_agent.domain.ids import JobId, OrderKey, ReportKey
from lab_agent.domain.journal import Alert, Event, Job, JobKind, ReportRecord
from lab_agent.domain.lifecycle import JobState, OrderState, ReportState
from lab_agent.ports.views import (
    DEFAULT_PAGE_SIZE,
    AttentionItem,
    AttentionKind,
    OrderDetail,
    OrderSummary,
    Overview,
    Page,
    ReportSummary,
    StateCounts,
)
from lab_agent.store import pictures, report_pictures
from lab_agent.store.pictures import fetch_records, record_factory
from lab_agent.store.rows import in_states
from lab_agent.store.tables import alerts, events, jobs, orders, reports
from lab_agent.store.unit_of_work import SqlStore

T = TypeVar("T")


class SqlQueries:
    """Reads on a store's own connections for reading."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    async def overview(self, *, now: datetime) -> Overview:
        """How things stand."""
        return await self._store.read(lambda connection: pictures.load_overview(connection, now))

    async def counts(self, *, now: datetime) -> StateCounts:
        """Numbers for metrics."""
        return await self._store.read(lambda connection: pictures.load_counts(connection, now))

    async def needs_attention(self, *, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[AttentionItem]:
        """What waits for a person, longest first."""
        found = pictures.select_attention_items().subquery()
        listed = select(found).order_by(found.c.since, found.c.attention_kind, found.c.ref)
        return await self._fetch_page(listed, found, pictures.to_attention_item, offset, limit)

    async def attention_counts(self) -> Mapping[AttentionKind, int]:
        """How many of each sort wait for a person."""
        return await self._store.read(pictures.count_attention_items)

    async def orders(
        self, *, search: str | None = None, states: Collection[OrderState] = (), offset: int = 0, limit: int = DEFAULT_PAGE_SIZE
    ) -> Page[OrderSummary]:
        """Orders, newest first; `search` is an order or line key, Task id, requisition, accession or barcode, whole."""
        which = [in_states(orders.c.state, states)] if states else []
        which += [pictures.order_matches(search.strip())] if search and search.strip() else []
        listed = pictures.select_order_summaries().where(*which).order_by(orders.c.seen_at.desc(), orders.c.key)
        return await self._fetch_page(
            listed, select(orders.c.key).where(*which).subquery(), record_factory(OrderSummary), offset, limit
        )

    async def order(self, key: OrderKey) -> OrderDetail | None:
        """All about one order; None if it is unknown."""
        return await self._store.read(lambda connection: pictures.load_order_detail(connection, key))

    async def jobs(
        self,
        *,
        states: Collection[JobState] = (),
        kinds: Collection[JobKind] = (),
        offset: int = 0,
        limit: int = DEFAULT_PAGE_SIZE,
    ) -> Page[Job]:
        """Effects, oldest first."""
        which = [in_states(jobs.c.state, states)] if states else []
        which += [jobs.c.kind.in_(sorted(kinds))] if kinds else []
        listed = select(jobs).where(*which).order_by(jobs.c.id)
        return await self._fetch_page(listed, select(jobs.c.id).where(*which).subquery(), record_factory(Job), offset, limit)

    async def job(self, job: JobId) -> Job | None:
        """One effect; None if it is unknown."""
        found = await self._store.read(lambda connection: fetch_records(connection, Job, select(jobs).where(jobs.c.id == job)))
        return found[0] if found else None

    async def reports(
        self, *, states: Collection[ReportState] = (), offset: int = 0, limit: int = DEFAULT_PAGE_SIZE
    ) -> Page[ReportSummary]:
        """Reports, newest first."""
        which = [in_states(reports.c.state, states)] if states else []
        listed = report_pictures.select_report_summaries().where(*which).order_by(reports.c.sequence.desc())
        return await self._fetch_page(
            listed, select(reports.c.sequence).where(*which).subquery(), record_factory(ReportSummary), offset, limit
        )

    async def report(self, key: ReportKey) -> ReportRecord | None:
        """One report with its content; None if it is unknown."""
        wanted = select(reports).where(reports.c.key == key)
        found = await self._store.read(lambda connection: fetch_records(connection, ReportRecord, wanted))
        return found[0] if found else None

    async def unmatched_reports(self, *, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[ReportRecord]:
        """What waits at the match desk, with its content, longest waiting first."""
        listed = report_pictures.select_reports_needing_operator()
        whole = listed.with_only_columns(reports.c.sequence).order_by(None).subquery()
        return await self._fetch_page(listed, whole, record_factory(ReportRecord), offset, limit)

    async def versions(self, report: ReportRecord, *, limit: int = DEFAULT_PAGE_SIZE) -> tuple[ReportSummary, ...]:
        """Messages of the same report, this one among them, newest first."""
        wanted = report_pictures.select_report_versions(report).order_by(reports.c.sequence.desc()).limit(limit)
        return await self._store.read(lambda connection: fetch_records(connection, ReportSummary, wanted))

    async def document_sizes(self, documents: Collection[str]) -> Mapping[str, int]:
        """About how many bytes documents in the vault have, by their ids."""
        return await self._store.read(lambda connection: report_pictures.load_document_sizes(connection, documents))

    async def report_events(self, report: ReportKey) -> tuple[Event, ...]:
        """What was told of one report, oldest first."""
        wanted = select(events).where(events.c.report == report).order_by(events.c.at, events.c.number)
        return await self._store.read(lambda connection: fetch_records(connection, Event, wanted))

    async def alerts(self, *, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[Alert]:
        """Alerts, open and closed, newest first."""
        listed = select(alerts).order_by(alerts.c.opened_at.desc(), alerts.c.number.desc())
        return await self._fetch_page(listed, alerts, record_factory(Alert), offset, limit)

    async def _fetch_page(
        self, listed: Select[Any], whole: FromClause, make: Callable[[Any], T], offset: int, limit: int
    ) -> Page[T]:
        def look(connection: Connection) -> Page[T]:
            total = connection.scalar(select(func.count()).select_from(whole)) or 0
            rows = connection.execute(listed.offset(offset).limit(limit)).mappings()
            return Page(items=tuple(make(row) for row in rows), total=total, offset=offset)

        return await self._store.read(look)

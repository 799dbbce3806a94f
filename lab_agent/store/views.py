"""`SqlViews`: pictures of the store for pages, commands and metrics (`ports.views`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, FromClause, Select, func, select

from lab_agent.domain.ids import EffectId, OrderKey, ReportKey
from lab_agent.domain.journal import Alert, Effect, EffectKind, Event, ReportRecord
from lab_agent.domain.lifecycle import EffectState, OrderState, ReportState
from lab_agent.ports.views import PAGE, Counts, OrderDetail, OrderSummary, Overview, Page, ReportSummary, Sort, Trouble
from lab_agent.store import pictures, report_pictures
from lab_agent.store.pictures import maker, records
from lab_agent.store.rows import among
from lab_agent.store.tables import alerts, effects, events, orders, reports
from lab_agent.store.unit_of_work import SqlStore

T = TypeVar("T")


class SqlViews:
    """Reads on a store's own connections for reading."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    async def overview(self, *, now: datetime) -> Overview:
        """How things stand."""
        return await self._store.read(lambda connection: pictures.overview(connection, now))

    async def counts(self, *, now: datetime) -> Counts:
        """Numbers for metrics."""
        return await self._store.read(lambda connection: pictures.counts(connection, now))

    async def failures(self, *, offset: int = 0, limit: int = PAGE) -> Page[Trouble]:
        """What waits for a person, longest first."""
        found = pictures.troubles().subquery()
        listed = select(found).order_by(found.c.since, found.c.sort, found.c.ref)
        return await self._page(listed, found, pictures.trouble, offset, limit)

    async def asking(self) -> Mapping[Sort, int]:
        """How many of each sort wait for a person."""
        return await self._store.read(pictures.asking)

    async def orders(
        self, *, search: str | None = None, states: Collection[OrderState] = (), offset: int = 0, limit: int = PAGE
    ) -> Page[OrderSummary]:
        """Orders, newest first; `search` is an order or line key, Task id, requisition, accession or barcode, whole."""
        which = [among(orders.c.state, states)] if states else []
        which += [pictures.carries(search.strip())] if search and search.strip() else []
        listed = pictures.summaries().where(*which).order_by(orders.c.seen_at.desc(), orders.c.key)
        return await self._page(listed, select(orders.c.key).where(*which).subquery(), maker(OrderSummary), offset, limit)

    async def order(self, key: OrderKey) -> OrderDetail | None:
        """All about one order; None if it is unknown."""
        return await self._store.read(lambda connection: pictures.detail(connection, key))

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
        return await self._page(listed, select(effects.c.id).where(*which).subquery(), maker(Effect), offset, limit)

    async def effect(self, effect: EffectId) -> Effect | None:
        """One effect; None if it is unknown."""
        found = await self._store.read(
            lambda connection: records(connection, Effect, select(effects).where(effects.c.id == effect))
        )
        return found[0] if found else None

    async def reports(self, *, states: Collection[ReportState] = (), offset: int = 0, limit: int = PAGE) -> Page[ReportSummary]:
        """Reports, newest first."""
        which = [among(reports.c.state, states)] if states else []
        listed = report_pictures.report_summaries().where(*which).order_by(reports.c.sequence.desc())
        return await self._page(listed, select(reports.c.sequence).where(*which).subquery(), maker(ReportSummary), offset, limit)

    async def report(self, key: ReportKey) -> ReportRecord | None:
        """One report with its content; None if it is unknown."""
        wanted = select(reports).where(reports.c.key == key)
        found = await self._store.read(lambda connection: records(connection, ReportRecord, wanted))
        return found[0] if found else None

    async def desk(self, *, offset: int = 0, limit: int = PAGE) -> Page[ReportRecord]:
        """What waits at the match desk, with its content, longest waiting first."""
        listed = report_pictures.waiting()
        whole = listed.with_only_columns(reports.c.sequence).order_by(None).subquery()
        return await self._page(listed, whole, maker(ReportRecord), offset, limit)

    async def versions(self, report: ReportRecord, *, limit: int = PAGE) -> tuple[ReportSummary, ...]:
        """Messages of the same report, this one among them, newest first."""
        wanted = report_pictures.versions(report).order_by(reports.c.sequence.desc()).limit(limit)
        return await self._store.read(lambda connection: records(connection, ReportSummary, wanted))

    async def document_sizes(self, documents: Collection[str]) -> Mapping[str, int]:
        """About how many bytes documents in the vault have, by their ids."""
        return await self._store.read(lambda connection: report_pictures.document_sizes(connection, documents))

    async def history(self, report: ReportKey) -> tuple[Event, ...]:
        """What was told of one report, oldest first."""
        wanted = select(events).where(events.c.report == report).order_by(events.c.at, events.c.number)
        return await self._store.read(lambda connection: records(connection, Event, wanted))

    async def alerts(self, *, offset: int = 0, limit: int = PAGE) -> Page[Alert]:
        """Alerts, open and closed, newest first."""
        listed = select(alerts).order_by(alerts.c.opened_at.desc(), alerts.c.number.desc())
        return await self._page(listed, alerts, maker(Alert), offset, limit)

    async def _page(self, listed: Select[Any], whole: FromClause, make: Callable[[Any], T], offset: int, limit: int) -> Page[T]:
        def look(connection: Connection) -> Page[T]:
            total = connection.scalar(select(func.count()).select_from(whole)) or 0
            rows = connection.execute(listed.offset(offset).limit(limit)).mappings()
            return Page(items=tuple(make(row) for row in rows), total=total, offset=offset)

        return await self._store.read(look)

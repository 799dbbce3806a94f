"""The active catalogue and those that clinics may still have seen, kept in memory for the assessment of orders.

They are read from the store in one unit of work, and only if its change stamp has moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import structlog

from lab_agent.catalogue.catalogue_fallback import UnreadableCatalogueAlert, verify_content
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.records import CATALOGUE_CHANGE_STAMP, ApiToken, CatalogueVersion, TurnaroundNotice
from lab_agent.catalogue.turnaround import Delayed, Notice, NoticePeriod, Stopped
from lab_agent.catalogue.versions import VersionHorizon, import_source, unpack_catalogue
from lab_agent.queue.job_records import JobKind
from lab_agent.rules.catalogue_history import CatalogueHistory, VersionPeriod
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import CatalogueError, StoreError
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

REFRESH_INTERVAL = 2.0
"""Seconds between two checks of the change stamp."""
UNREAD_STAMP = "unread"
"""Stands for the stamp as long as nothing was read."""


@dataclass(frozen=True, slots=True)
class CatalogueSnapshot:
    """Catalogue versions (newest first), notices and API tokens, as of a change stamp."""

    stamp: str | None
    versions: tuple[CatalogueVersion, ...]
    notices: tuple[Notice, ...]
    tokens: tuple[ApiToken, ...]


async def load_snapshot(
    store: Store, known_stamp: str | None, since: Callable[[UnitOfWork], datetime]
) -> CatalogueSnapshot | None:
    """Read what was active at `since` or later; None if the change stamp is still the known one."""

    def work(uow: UnitOfWork) -> CatalogueSnapshot | None:
        stamp = uow.key_values.get(CATALOGUE_CHANGE_STAMP)
        if stamp == known_stamp:
            return None
        moment = since(uow)
        notices = tuple(to_notices(uow.turnaround_notices.active_since(moment)))
        return CatalogueSnapshot(stamp, uow.catalogues.active_since(moment), notices, uow.api_tokens.all())

    return await store.transact(work)


def to_notices(records: Iterable[TurnaroundNotice]) -> Iterator[Notice]:
    """Give the notices in the form of the catalogue's own; a lifted one ends when it was lifted."""
    for each in records:
        period = NoticePeriod(each.start, min(each.end, each.lifted_at or each.end))
        if period.start < period.end:
            status = Stopped(period) if each.delay_hours is None else Delayed(period, each.delay_hours)
            yield Notice(each.item, status, each.contract, each.caption)


class CatalogueCache:
    """Catalogue versions by time, from the store. While the active one cannot be read there is no view, and orders are held.

    An older one would reject what the active one allows (law 10). A version that was read once is used for as long as the
    program runs, whatever becomes of its bytes in the store.
    """

    def __init__(self, store: Store, source: Path | None, horizon: VersionHorizon, clock: Clock) -> None:
        self._store = store
        self._source = source
        self._horizon = horizon
        self._clock = clock
        self._stamp: str | None = UNREAD_STAMP
        self._catalogues: dict[str, Catalogue] = {}
        self._versions: tuple[VersionPeriod, ...] = ()
        self._gaps: tuple[datetime, ...] = ()
        self._reload_requested = asyncio.Event()
        self._is_new = False
        self._active: tuple[str, CatalogueError | None] | None = None
        self._unreadable: frozenset[str] = frozenset()
        self._alert = UnreadableCatalogueAlert(store, clock.now)

    def view(self) -> CatalogueHistory | None:
        """The current versions, newest first; None where there is none, or the active one cannot be read."""
        return CatalogueHistory(self._versions, self._horizon.cache_lifetime, self._gaps) if self._versions else None

    async def reload(self) -> None:
        """Import the configured source if it has changed, then refresh."""
        if self._source is not None:
            try:
                await import_source(self._store, self._source, now=self._clock.now())
            except CatalogueError as exc:
                log.error("catalogue not read", action="catalogue_invalid", reason=str(exc))  # noqa: TRY400 - an error of the data
        await self._refresh_and_alert()

    async def refresh(self) -> bool:
        """Read the store again if anything has changed there; whether it had. Nothing is written."""
        now = self._clock.now()
        snapshot = await load_snapshot(self._store, self._stamp, lambda uow: self._horizon.since(uow, now))
        if snapshot is None:
            return False
        self._versions = await asyncio.to_thread(self._build_versions, snapshot)
        self._gaps = tuple(newer.since for newer, each in pairwise(snapshot.versions) if each.version in self._unreadable)
        self._stamp = snapshot.stamp
        if self._versions:
            newest = self._versions[0].catalogue.version
            log.info("catalogue read", action="catalogue_read", version=newest, versions=len(self._versions))
        return True

    async def watch(self) -> None:
        """Refresh for as long as the program runs; while the store is unavailable, what was read stays in use."""
        store_down = False
        while True:
            try:
                async with asyncio.timeout(REFRESH_INTERVAL):
                    await self._reload_requested.wait()
            except TimeoutError:
                pass
            reload_requested = self._reload_requested.is_set()
            self._reload_requested.clear()
            try:
                await (self.reload() if reload_requested else self._refresh_and_alert())
                store_down = False
            except StoreError as exc:
                if not store_down:
                    log.warning(
                        "catalogue not refreshed: store unavailable", action="catalogue_store_unavailable", reason=str(exc)
                    )
                store_down = True

    def request_reload(self) -> None:
        """Let `watch` reload at once."""
        self._reload_requested.set()

    async def _refresh_and_alert(self) -> None:
        """Refresh, and let orders that wait be assessed anew by what was read: at each start, and when it has changed."""
        self._is_new = await self.refresh() or self._is_new
        if self._active:
            await self._alert.update(*self._active)
        if self._is_new:
            await self._store.transact(self._assess_again)
            self._is_new = False

    def _assess_again(self, uow: UnitOfWork) -> None:
        uow.jobs.make_due(JobKind.FETCH_ORDER, now=self._clock.now())

    def _build_versions(self, snapshot: CatalogueSnapshot) -> tuple[VersionPeriod, ...]:
        kept = {each.version for each in snapshot.versions}
        self._catalogues = {version: catalogue for version, catalogue in self._catalogues.items() if version in kept}
        broken = self._parse_new(snapshot.versions)
        newest = snapshot.versions[0] if snapshot.versions else None
        self._active = (newest.version, broken.get(newest.version) or verify_content(newest)) if newest else None
        for version in broken.keys() - self._unreadable - {newest.version if newest else None}:
            log.error("catalogue not read", action="catalogue_invalid", version=version, reason=str(broken[version]))
        self._unreadable = frozenset(broken)
        if newest is None or newest.version in broken:
            return ()
        return self._to_validity_periods(snapshot)

    def _parse_new(self, versions: tuple[CatalogueVersion, ...]) -> dict[str, CatalogueError]:
        """Parse the versions that are not cached yet; gives those that cannot be read, and why."""
        broken = {}
        for each in versions:
            if each.version not in self._catalogues:
                try:
                    self._catalogues[each.version] = unpack_catalogue(each)
                except CatalogueError as exc:
                    broken[each.version] = exc
        return {version: exc for version, exc in broken.items() if version not in self._catalogues}

    def _to_validity_periods(self, snapshot: CatalogueSnapshot) -> tuple[VersionPeriod, ...]:
        found: list[VersionPeriod] = []
        until = None
        for each in snapshot.versions:
            if catalogue := self._catalogues.get(each.version):
                found.append(VersionPeriod(catalogue, until))
                until = each.since
        if found:  # an announced notice holds whichever version was active when it was made
            newest = found[0].catalogue
            found[0] = replace(found[0], catalogue=replace(newest, notices=(*newest.notices, *snapshot.notices)))
        return tuple(found)

"""Keeps what is served in step with the store: its change stamp is read every few seconds, and at once upon SIGHUP.

The old catalogue is served until the new one has been read and prepared. One that cannot be read leaves the old one in place; at
the start the newest readable version is served. Notices of staff are served with whichever version it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from lab_agent.catalogue.catalogue_cache import UNREAD_STAMP, CatalogueSnapshot, load_snapshot
from lab_agent.catalogue.catalogue_fallback import UnreadableCatalogueAlert, activate_fallback, verify_content
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.records import ApiToken
from lab_agent.catalogue.turnaround import Notice
from lab_agent.catalogue.versions import import_source, unpack_catalogue
from lab_agent.shared.errors import CatalogueError, Problem, StoreError
from lab_agent.shared.logs import get_logger
from lab_agent.store.unit_of_work import Store
from lab_api.response_cache import CurrentCatalogue

_log = get_logger(__name__)


async def repeat(work: Callable[[], Awaitable[object]], interval: float, subject: str) -> None:
    """Do `work` every `interval` seconds. An outage of the database is logged once, and its end once; any other error ends it.

    `subject` names in the log what is not refreshed meanwhile.
    """
    unavailable = False
    while True:
        await asyncio.sleep(interval)
        try:
            await work()
        except StoreError as exc:
            if not unavailable:
                _log.warning(f"database unavailable; {subject} stays as it is", action="store.unavailable", reason=str(exc))
            unavailable = True
        else:
            if unavailable:
                _log.info(f"database available again; {subject} is refreshed", action="store.restored")
            unavailable = False


SYNC_INTERVAL = 2.0
"""Seconds between two reads of the change stamp."""
_NO_CATALOGUE = (Problem("store", "has no catalogue yet", "run `lab-agent catalogue import FILE`, or set `api.catalogue`"),)


class CatalogueSync:
    """Reads catalogue, notices and client tokens from the store; `tokens` are those that it read last."""

    def __init__(self, store: Store, source: Path | None, now: Callable[[], datetime]) -> None:
        self._store = store
        self._source = source
        self._now = now
        self._stamp: str | None = UNREAD_STAMP
        self._refresh_lock = asyncio.Lock()
        self._current_catalogue: CurrentCatalogue | None = None
        self._unreadable_alert = UnreadableCatalogueAlert(store, now)
        self._active: tuple[str, CatalogueError | None] | None = None
        self.tokens: tuple[ApiToken, ...] = ()

    async def open(self) -> CurrentCatalogue:
        """Import what the settings name, and serve the store's catalogue. Raises `CatalogueError` where none can be read."""
        try:
            await self._import_source()
        except CatalogueError:
            if await self._store.transact(lambda uow: uow.catalogues.newest()) is None:
                raise
        await self.refresh()
        if self._current_catalogue is None:
            raise CatalogueError(_NO_CATALOGUE)
        return self._current_catalogue

    async def refresh(self) -> bool:
        """Serve what the store holds, if it has changed; whether it had."""
        async with self._refresh_lock:
            snapshot = await load_snapshot(self._store, self._stamp, lambda _: self._now())
            if snapshot is None:
                await self._update_alert()
                return False
            self.tokens = snapshot.tokens
            if snapshot.versions:
                self._active = snapshot.versions[0].version, await asyncio.to_thread(self._serve, snapshot)
                await self._update_alert()
                if self._current_catalogue is None:
                    await self._fall_back(snapshot)
            self._stamp = snapshot.stamp
            return True

    async def reload(self) -> None:
        """Import what has changed in the settings' folder, then serve what the store holds."""
        try:
            with suppress(CatalogueError):  # logged already; the store's catalogue is served
                await self._import_source()
            await self.refresh()
        except StoreError as exc:
            _log.warning("catalogue not reloaded: database unavailable", action="catalogue.unavailable", reason=str(exc))

    async def run(self) -> None:
        """Follow the store until cancelled."""
        await repeat(self.refresh, SYNC_INTERVAL, "the catalogue")

    async def _import_source(self) -> None:
        if self._source is None:
            return
        try:
            await import_source(self._store, self._source, now=self._now())
        except CatalogueError as exc:
            _log_invalid(exc)
            raise

    async def _update_alert(self) -> None:
        if self._active:
            await self._unreadable_alert.update(*self._active)

    def _serve(self, snapshot: CatalogueSnapshot) -> CatalogueError | None:
        """Serve the active version, or the old one with the new notices where it cannot be read; the error, if any."""
        newest = snapshot.versions[0]
        if same := self._served_catalogue(newest.version):
            self._replace(same, snapshot.notices)
            return verify_content(newest)
        try:
            self._replace(unpack_catalogue(newest), snapshot.notices)
        except CatalogueError as exc:
            if self._current_catalogue:
                self._replace(self._current_catalogue.responses.catalogue, snapshot.notices)
            return exc
        return None

    async def _fall_back(self, snapshot: CatalogueSnapshot) -> None:
        """Serve the newest readable version at the start. Raises `CatalogueError` if there is none."""
        found = await activate_fallback(self._store, self._now())
        if found:
            await asyncio.to_thread(self._replace, found.catalogue, snapshot.notices)

    def _replace(self, catalogue: Catalogue, notices: tuple[Notice, ...]) -> None:
        current = self._current_catalogue or CurrentCatalogue(catalogue, self._now)
        current.replace(catalogue, notices)
        self._current_catalogue = current
        _log.info("catalogue read", action="catalogue.loaded", version=catalogue.version)

    def _served_catalogue(self, version: str) -> Catalogue | None:
        served = self._current_catalogue.responses.catalogue if self._current_catalogue else None
        return served if served and served.version == version else None


def _log_invalid(exc: CatalogueError) -> None:
    count, first = len(exc.problems), str(exc.problems[0])
    _log.warning("new catalogue is invalid; the old one stays", action="catalogue.refused", problems=count, reason=first)

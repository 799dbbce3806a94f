"""The newest readable catalogue version, served by the API while the active one cannot be read.

Orders are not assessed by it: they are held, since a catalogue that is not the active one must reject nothing (law 10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

import structlog

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.records import CatalogueVersion
from lab_agent.catalogue.versions import EARLIEST, FALLBACK_KEY, UNREADABLE_ALERT, unpack_catalogue, unpack_tables
from lab_agent.shared.errors import CatalogueError, StoreError
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReadableVersion:
    """The newest version that can be read; `read_error` says why the active one cannot, where it is an older one."""

    stored: CatalogueVersion
    catalogue: Catalogue
    read_error: CatalogueError | None = None


async def load_newest_readable(store: Store) -> ReadableVersion | None:
    """Load it; None if none was ever imported. Raises the active one's `CatalogueError` if none can be read."""
    newest = await store.transact(lambda uow: uow.catalogues.newest())
    if newest is None:
        return None
    try:
        return ReadableVersion(newest, await asyncio.to_thread(unpack_catalogue, newest))
    except CatalogueError as exc:
        read_error = exc
    every = await store.transact(lambda uow: uow.catalogues.active_since(EARLIEST))
    found = await asyncio.to_thread(_first_readable, every, read_error)
    if found is None:
        raise read_error
    return found


async def activate_fallback(store: Store, now: datetime) -> ReadableVersion | None:
    """Load it, and store since when it is served: orders are assessed by it too once the active one can be read again."""
    found = await load_newest_readable(store)

    def work(uow: UnitOfWork) -> None:
        if found and not (uow.key_values.get(FALLBACK_KEY) or "").endswith(f" {found.stored.version}"):
            uow.key_values.set(FALLBACK_KEY, f"{now.isoformat()} {found.stored.version}")

    if found and found.read_error:
        await store.transact(work)
    return found


def verify_content(stored: CatalogueVersion) -> CatalogueError | None:
    """What is wrong with the stored bytes of a version whose catalogue is cached; None if they can be read."""
    try:
        unpack_tables(stored.content)
    except CatalogueError as exc:
        return exc
    return None


class UnreadableCatalogueAlert:
    """Reports that the active version cannot be read: one alert and one log line at the start, one line at the end."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._unreadable_logged = False
        self._alert_open: bool | None = None
        self._store_unavailable = False

    async def update(self, version: str, read_error: CatalogueError | None) -> None:
        """Report the state of the active version if it has changed; what could not be stored is tried again at the next call."""
        if bool(read_error) is not self._unreadable_logged:
            self._log(version, read_error)
        if bool(read_error) is self._alert_open:
            return
        try:
            await self._store.transact(lambda uow: _write_alert(uow, version, self._now(), is_unreadable=read_error is not None))
        except StoreError as exc:
            if not self._store_unavailable:
                reason = str(exc)
                log.warning("alert not written", action="catalogue_store_unavailable", alert=str(UNREADABLE_ALERT), reason=reason)
            self._store_unavailable = True
        else:
            self._store_unavailable, self._alert_open = False, bool(read_error)

    def _log(self, version: str, read_error: CatalogueError | None) -> None:
        self._unreadable_logged = bool(read_error)
        if read_error:
            reason = str(read_error.problems[0])
            write, action, text = log.error, "catalogue_unreadable", "active catalogue cannot be read"
        else:
            reason, write, action, text = None, log.info, "catalogue_readable", "active catalogue can be read again"
        write(text, action=action, alert=str(UNREADABLE_ALERT), version=version, reason=reason)


def _write_alert(uow: UnitOfWork, version: str, now: datetime, *, is_unreadable: bool) -> None:
    if is_unreadable:
        condition = UNREADABLE_ALERT.condition
        uow.alerts.open(Alert(condition=condition, detail=f"version {version}", since=now, opened_at=now))
    else:
        uow.alerts.close(UNREADABLE_ALERT, now=now)
        if uow.key_values.get(FALLBACK_KEY):
            uow.key_values.set(FALLBACK_KEY, "")


def _first_readable(versions: Iterable[CatalogueVersion], read_error: CatalogueError) -> ReadableVersion | None:
    for each in versions:
        try:
            return ReadableVersion(each, unpack_catalogue(each), read_error)
        except CatalogueError:
            continue
    return None

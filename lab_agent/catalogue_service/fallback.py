"""The newest version that can be read, where the one in force cannot: what is served and asked until it is imported again.

The judge of orders does not use it: it holds rather than refuses by a catalogue that is not in force (law 10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

import structlog

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue_service.versions import EARLIEST, FALLBACK_KEY, UNREADABLE_ALERT, unpack_catalogue, unpack_tables
from lab_agent.domain.catalogue_records import CatalogueVersion
from lab_agent.domain.records import Alert
from lab_agent.errors import CatalogueError, StoreError
from lab_agent.ports.repositories import Store, UnitOfWork

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReadableVersion:
    """The newest version that can be read, and its catalogue; `broken` says why it is not the one in force, if it is not."""

    stored: CatalogueVersion
    catalogue: Catalogue
    read_error: CatalogueError | None = None


async def load_newest_readable(store: Store) -> ReadableVersion | None:
    """Find it; None if none was ever imported. Raises the newest one's `CatalogueError` if not one of them can be read."""
    newest = await store.run(lambda uow: uow.catalogues.newest())
    if newest is None:
        return None
    try:
        return ReadableVersion(newest, await asyncio.to_thread(unpack_catalogue, newest))
    except CatalogueError as exc:
        broken = exc
    every = await store.run(lambda uow: uow.catalogues.active_since(EARLIEST))
    found = await asyncio.to_thread(_first_readable, every, broken)
    if found is None:
        raise broken
    return found


async def activate_fallback(store: Store, now: datetime) -> ReadableVersion | None:
    """Find it, and remember that it is served from now on, for the judge of orders once the newest is healed."""
    found = await load_newest_readable(store)

    def work(uow: UnitOfWork) -> None:
        if found and not (uow.key_values.get(FALLBACK_KEY) or "").endswith(f" {found.stored.version}"):
            uow.key_values.set(FALLBACK_KEY, f"{now.isoformat()} {found.stored.version}")
            uow.commit()

    if found and found.read_error:
        await store.run(work)
    return found


def verify_content(stored: CatalogueVersion) -> CatalogueError | None:
    """What is wrong with the bytes of a version whose catalogue is at hand; None if they are sound."""
    try:
        unpack_tables(stored.content)
    except CatalogueError as exc:
        return exc
    return None


class UnreadableCatalogueAlert:
    """Says that the version in force cannot be read: one alert and one log line when it begins, and again when it ends."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._unreadable_logged = False
        self._alert_open: bool | None = None
        self._store_unavailable = False

    async def update(self, version: str, read_error: CatalogueError | None) -> None:
        """Tell how it is with the version in force, if that is news; what a store that is away did not take is still news."""
        if bool(read_error) is not self._unreadable_logged:
            self._log(version, read_error)
        if bool(read_error) is self._alert_open:
            return
        try:
            await self._store.run(lambda uow: _write_alert(uow, version, self._now(), is_unreadable=read_error is not None))
        except StoreError as exc:
            if not self._store_unavailable:
                log.warning(
                    "an alert cannot be written", action="catalogue_store_unavailable", alert=UNREADABLE_ALERT, reason=str(exc)
                )
            self._store_unavailable = True
        else:
            self._store_unavailable, self._alert_open = False, bool(read_error)

    def _log(self, version: str, broken: CatalogueError | None) -> None:
        self._unreadable_logged = bool(broken)
        if broken:
            reason = str(broken.problems[0])
            log.error("the catalogue in force cannot be read", action="catalogue_unreadable", version=version, reason=reason)
        else:
            log.info("the catalogue in force can be read again", action="catalogue_readable", version=version)


def _write_alert(uow: UnitOfWork, version: str, now: datetime, *, is_unreadable: bool) -> None:
    if is_unreadable:
        text = (
            f"the catalogue in force, version {version}, cannot be read in the store; import it again: lab-agent catalogue "
            "import SOURCE. Until then orders are held, and the API serves the newest version that can be read"
        )
        uow.alerts.open(Alert(key=UNREADABLE_ALERT, text=text, opened_at=now))
    else:
        uow.alerts.close(UNREADABLE_ALERT, now=now)
        if uow.key_values.get(FALLBACK_KEY):
            uow.key_values.set(FALLBACK_KEY, "")
    uow.commit()


def _first_readable(versions: Iterable[CatalogueVersion], broken: CatalogueError) -> ReadableVersion | None:
    for each in versions:
        try:
            return ReadableVersion(each, unpack_catalogue(each), broken)
        except CatalogueError:
            continue
    return None

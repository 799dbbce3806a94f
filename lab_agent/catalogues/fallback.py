"""The newest version that can be read, where the one in force cannot: what is served and asked until it is imported again.

The judge of orders does not use it: it holds rather than refuses by a catalogue that is not in force (law 10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

import structlog

from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogues.keeping import EVER, SERVED_INSTEAD, UNREADABLE, catalogue_of
from lab_agent.catalogues.packed import unpack
from lab_agent.domain.journal import Alert
from lab_agent.domain.offer import CatalogueVersion
from lab_agent.errors import CatalogueError, StoreError
from lab_agent.ports.store import Store, UnitOfWork

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Readable:
    """The newest version that can be read, and its catalogue; `broken` says why it is not the one in force, if it is not."""

    kept: CatalogueVersion
    catalogue: Catalogue
    broken: CatalogueError | None = None


async def newest_readable(store: Store) -> Readable | None:
    """Find it; None if none was ever imported. Raises the newest one's `CatalogueError` if not one of them can be read."""
    newest = await store.run(lambda uow: uow.catalogues.newest())
    if newest is None:
        return None
    try:
        return Readable(newest, await asyncio.to_thread(catalogue_of, newest))
    except CatalogueError as exc:
        broken = exc
    every = await store.run(lambda uow: uow.catalogues.in_force_since(EVER))
    found = await asyncio.to_thread(_first, every, broken)
    if found is None:
        raise broken
    return found


async def serve_instead(store: Store, now: datetime) -> Readable | None:
    """Find it, and remember that it is served from now on, for the judge of orders once the newest is healed."""
    found = await newest_readable(store)

    def work(uow: UnitOfWork) -> None:
        if found and not (uow.book.noted(SERVED_INSTEAD) or "").endswith(f" {found.kept.version}"):
            uow.book.note(SERVED_INSTEAD, f"{now.isoformat()} {found.kept.version}")
            uow.commit()

    if found and found.broken:
        await store.run(work)
    return found


def damage(kept: CatalogueVersion) -> CatalogueError | None:
    """What is wrong with the bytes of a version whose catalogue is at hand; None if they are sound."""
    try:
        unpack(kept.content)
    except CatalogueError as exc:
        return exc
    return None


class Watchman:
    """Says that the version in force cannot be read: one alert and one log line when it begins, and again when it ends."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._logged = False
        self._noted: bool | None = None
        self._away = False

    async def tell(self, version: str, broken: CatalogueError | None) -> None:
        """Tell how it is with the version in force, if that is news; what a store that is away did not take is still news."""
        if bool(broken) is not self._logged:
            self._log(version, broken)
        if bool(broken) is self._noted:
            return
        try:
            await self._store.run(lambda uow: _note(uow, version, self._now(), broken=broken is not None))
        except StoreError as exc:
            if not self._away:
                log.warning("an alert cannot be written", action="catalogue_away", alert=UNREADABLE, reason=str(exc))
            self._away = True
        else:
            self._away, self._noted = False, bool(broken)

    def _log(self, version: str, broken: CatalogueError | None) -> None:
        self._logged = bool(broken)
        if broken:
            reason = str(broken.problems[0])
            log.error("the catalogue in force cannot be read", action="catalogue_unreadable", version=version, reason=reason)
        else:
            log.info("the catalogue in force can be read again", action="catalogue_readable", version=version)


def _note(uow: UnitOfWork, version: str, now: datetime, *, broken: bool) -> None:
    if broken:
        text = (
            f"the catalogue in force, version {version}, cannot be read in the store; import it again: lab-agent catalogue "
            "import SOURCE. Until then orders are held, and the API serves the newest version that can be read"
        )
        uow.book.open_alert(Alert(key=UNREADABLE, text=text, opened_at=now))
    else:
        uow.book.close_alert(UNREADABLE, now=now)
        if uow.book.noted(SERVED_INSTEAD):
            uow.book.note(SERVED_INSTEAD, "")
    uow.commit()


def _first(versions: Iterable[CatalogueVersion], broken: CatalogueError) -> Readable | None:
    for each in versions:
        try:
            return Readable(each, catalogue_of(each), broken)
        except CatalogueError:
            continue
    return None

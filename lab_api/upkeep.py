"""Keeping what is served in step with the store: a look at its stamp every few seconds, and at once upon SIGHUP.

The old catalogue is served until the new one has been read and its bodies made; one that cannot be read leaves it in place, and
at the start the newest that can be read. What staff announced is served with whichever it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogue.turnaround import Notice
from lab_agent.catalogues.fallback import Watchman, damage, serve_instead
from lab_agent.catalogues.keeping import catalogue_of, take_from
from lab_agent.catalogues.offer import UNREAD, Offer, read_offer
from lab_agent.domain.offer import ApiToken
from lab_agent.errors import CatalogueError, Problem, StoreError
from lab_agent.logs import get_logger
from lab_agent.ports.store import Store
from lab_api.looking import look_again
from lab_api.served import Shelf

_log = get_logger(__name__)

LOOK_EVERY = 2.0
"""Seconds between two looks at the stamp."""
_NONE = (Problem("store", "holds no catalogue yet", "import one: lab-agent catalogue import FILE; or set api.catalogue"),)


class Upkeep:
    """Reads catalogue, notices and tokens from the store. `tokens` is what it found last."""

    def __init__(self, store: Store, source: Path | None, now: Callable[[], datetime]) -> None:
        self._store = store
        self._source = source
        self._now = now
        self._stamp: str | None = UNREAD
        self._one_at_a_time = asyncio.Lock()
        self._shelf: Shelf | None = None
        self._watchman = Watchman(store, now)
        self._in_force: tuple[str, CatalogueError | None] | None = None
        self.tokens: tuple[ApiToken, ...] = ()

    async def open(self) -> Shelf:
        """Take over what the settings name, and give the shelf. Raises `CatalogueError` where no catalogue can be read."""
        try:
            await self._take()
        except CatalogueError:
            if await self._store.run(lambda uow: uow.catalogues.newest()) is None:
                raise
        await self.refresh()
        if self._shelf is None:
            raise CatalogueError(_NONE)
        return self._shelf

    async def refresh(self) -> bool:
        """Serve what the store holds, if anything has changed there; whether it had."""
        async with self._one_at_a_time:
            offer = await read_offer(self._store, self._stamp, lambda _: self._now())
            if offer is None:
                await self._tell()
                return False
            self.tokens = offer.tokens
            if offer.versions:
                self._in_force = offer.versions[0].version, await asyncio.to_thread(self._serve, offer)
                await self._tell()
                if self._shelf is None:
                    await self._fall_back(offer)
            self._stamp = offer.stamp
            return True

    async def reload(self) -> None:
        """Take over what has changed in the settings' folder, then serve what the store holds."""
        try:
            with suppress(CatalogueError):  # said in the log; what is in the store is served
                await self._take()
            await self.refresh()
        except StoreError as exc:
            _log.warning("the store cannot be looked at", action="catalogue.away", reason=str(exc))

    async def watch(self) -> None:
        """Keep looking, for as long as the program runs. A store that is away is told once, and looked at again."""
        await look_again(self.refresh, LOOK_EVERY, "the offer")

    async def _take(self) -> None:
        if self._source is None:
            return
        try:
            await take_from(self._store, self._source, now=self._now())
        except CatalogueError as exc:
            _refused(exc)
            raise

    async def _tell(self) -> None:
        if self._in_force:
            await self._watchman.tell(*self._in_force)

    def _serve(self, offer: Offer) -> CatalogueError | None:
        """Serve the version in force; what is wrong with it. Where it cannot be read, the old one with the new notices."""
        newest = offer.versions[0]
        if same := self._same(newest.version):
            self._put(same, offer.notices)
            return damage(newest)
        try:
            self._put(catalogue_of(newest), offer.notices)
        except CatalogueError as exc:
            if self._shelf:
                self._put(self._shelf.served.catalogue, offer.notices)
            return exc
        return None

    async def _fall_back(self, offer: Offer) -> None:
        """Serve the newest version that can be read, for the start. Raises `CatalogueError` if there is none."""
        found = await serve_instead(self._store, self._now())
        if found:
            await asyncio.to_thread(self._put, found.catalogue, offer.notices)

    def _put(self, catalogue: Catalogue, notices: tuple[Notice, ...]) -> None:
        shelf = self._shelf or Shelf(catalogue, self._now)
        shelf.put(catalogue, notices)
        self._shelf = shelf
        _log.info("catalogue read", action="catalogue.loaded", version=catalogue.version)

    def _same(self, version: str) -> Catalogue | None:
        served = self._shelf.served.catalogue if self._shelf else None
        return served if served and served.version == version else None


def _refused(exc: CatalogueError) -> None:
    count, first = len(exc.problems), str(exc.problems[0])
    _log.warning("the new catalogue is not valid; the old one stays", action="catalogue.refused", problems=count, reason=first)

"""The catalogue that is in force, and those that clinics may still have seen, for the judge of orders."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import structlog

from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogues.fallback import Watchman, damage
from lab_agent.catalogues.keeping import catalogue_of, take_from
from lab_agent.catalogues.offer import UNREAD, Offer, read_offer
from lab_agent.catalogues.reach import Reach
from lab_agent.domain.offer import CatalogueVersion
from lab_agent.errors import CatalogueError, StoreError
from lab_agent.ports.clock import Clock
from lab_agent.ports.store import Store
from lab_agent.rules.catalogue_view import CatalogueView, InForce

log = structlog.get_logger(__name__)

LOOK_EVERY = 2.0
"""Seconds between two looks at the store's stamp."""


class CatalogueShelf:
    """Catalogue versions by time, from the store. Where the one in force cannot be read, there is no view: orders are held.

    An older one would refuse what the one in force allows (law 10). A version that was read once is known by its name, and is
    used for as long as the program runs, whatever becomes of its bytes.
    """

    def __init__(self, store: Store, source: Path | None, reach: Reach, clock: Clock) -> None:
        self._store = store
        self._source = source
        self._reach = reach
        self._clock = clock
        self._stamp: str | None = UNREAD
        self._read: dict[str, Catalogue] = {}
        self._versions: tuple[InForce, ...] = ()
        self._gaps: tuple[datetime, ...] = ()
        self._asked = asyncio.Event()
        self._in_force: tuple[str, CatalogueError | None] | None = None
        self._unreadable: frozenset[str] = frozenset()
        self._watchman = Watchman(store, clock.now)

    def view(self) -> CatalogueView | None:
        """The versions as they stand, newest first; None where there is none, or the one in force cannot be read."""
        return CatalogueView(self._versions, self._reach.cache_lifetime, self._gaps) if self._versions else None

    async def reload(self) -> None:
        """Take over what has changed in the folder of the settings, then look at the store."""
        if self._source is not None:
            try:
                await take_from(self._store, self._source, now=self._clock.now())
            except CatalogueError as exc:
                log.error("catalogue not read", action="catalogue_invalid", reason=str(exc))  # noqa: TRY400 - an error of the data
        await self._look()

    async def refresh(self) -> bool:
        """Read the store, if anything has changed there; whether it had. Nothing is written."""
        now = self._clock.now()
        offer = await read_offer(self._store, self._stamp, lambda uow: self._reach.since(uow, now))
        if offer is None:
            return False
        self._versions = await asyncio.to_thread(self._made, offer)
        self._gaps = tuple(newer.since for newer, each in pairwise(offer.versions) if each.version in self._unreadable)
        self._stamp = offer.stamp
        if self._versions:
            newest = self._versions[0].catalogue.version
            log.info("catalogue read", action="catalogue_read", version=newest, versions=len(self._versions))
        return True

    async def watch(self) -> None:
        """Keep looking, for as long as the program runs; a store that is away leaves what is known as it is."""
        away = False
        while True:
            try:
                async with asyncio.timeout(LOOK_EVERY):
                    await self._asked.wait()
            except TimeoutError:
                pass
            asked = self._asked.is_set()
            self._asked.clear()
            try:
                await (self.reload() if asked else self._look())
                away = False
            except StoreError as exc:
                if not away:
                    log.warning("the catalogue cannot be looked at", action="catalogue_away", reason=str(exc))
                away = True

    def ask(self) -> None:
        """Let `watch` reload at once."""
        self._asked.set()

    async def _look(self) -> None:
        await self.refresh()
        if self._in_force:
            await self._watchman.tell(*self._in_force)

    def _made(self, offer: Offer) -> tuple[InForce, ...]:
        kept = {each.version for each in offer.versions}
        self._read = {version: catalogue for version, catalogue in self._read.items() if version in kept}
        broken = self._take_in(offer.versions)
        newest = offer.versions[0] if offer.versions else None
        self._in_force = (newest.version, broken.get(newest.version) or damage(newest)) if newest else None
        for version in broken.keys() - self._unreadable - {newest.version if newest else None}:
            log.error("catalogue not read", action="catalogue_invalid", version=version, reason=str(broken[version]))
        self._unreadable = frozenset(broken)
        if newest is None or newest.version in broken:
            return ()
        return self._by_time(offer)

    def _take_in(self, versions: tuple[CatalogueVersion, ...]) -> dict[str, CatalogueError]:
        """Read those that are not known yet; what cannot be read, and why."""
        broken = {}
        for each in versions:
            if each.version not in self._read:
                try:
                    self._read[each.version] = catalogue_of(each)
                except CatalogueError as exc:
                    broken[each.version] = exc
        return {version: exc for version, exc in broken.items() if version not in self._read}

    def _by_time(self, offer: Offer) -> tuple[InForce, ...]:
        found: list[InForce] = []
        until = None
        for each in offer.versions:
            if catalogue := self._read.get(each.version):
                found.append(InForce(catalogue, until))
                until = each.since
        if found:  # what staff announced holds whichever version it was said under
            newest = found[0].catalogue
            found[0] = replace(found[0], catalogue=replace(newest, notices=(*newest.notices, *offer.notices)))
        return tuple(found)

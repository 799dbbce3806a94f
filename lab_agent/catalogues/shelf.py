"""The catalogue that is in force, and those that clinics may still have seen, for the judge of orders."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import structlog

from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogues.keeping import catalogue_of, take_from
from lab_agent.catalogues.offer import UNREAD, Offer, read_offer
from lab_agent.catalogues.reach import Reach
from lab_agent.errors import CatalogueError, StoreError
from lab_agent.ports.clock import Clock
from lab_agent.ports.store import Store
from lab_agent.rules.catalogue_view import CatalogueView, InForce

log = structlog.get_logger(__name__)

LOOK_EVERY = 2.0
"""Seconds between two looks at the store's stamp."""


class CatalogueShelf:
    """Catalogue versions by time, from the store. What cannot be read keeps the old ones; with none, orders are held."""

    def __init__(self, store: Store, source: Path | None, reach: Reach, clock: Clock) -> None:
        self._store = store
        self._source = source
        self._reach = reach
        self._clock = clock
        self._stamp: str | None = UNREAD
        self._read: dict[str, Catalogue] = {}
        self._versions: tuple[InForce, ...] = ()
        self._asked = asyncio.Event()

    def view(self) -> CatalogueView | None:
        """The versions as they stand, newest first; None where none could be read."""
        return CatalogueView(self._versions, self._reach.cache_lifetime) if self._versions else None

    async def reload(self) -> None:
        """Take over what has changed in the folder of the settings, then look at the store."""
        if self._source is not None:
            try:
                await take_from(self._store, self._source, now=self._clock.now())
            except CatalogueError as exc:
                log.error("catalogue not read", action="catalogue_invalid", reason=str(exc))  # noqa: TRY400 - an error of the data
        await self.refresh()

    async def refresh(self) -> bool:
        """Read the store, if anything has changed there; whether it had."""
        now = self._clock.now()
        offer = await read_offer(self._store, self._stamp, lambda uow: self._reach.since(uow, now))
        if offer is None:
            return False
        self._versions = await asyncio.to_thread(self._made, offer)
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
                await (self.reload() if asked else self.refresh())
                away = False
            except StoreError as exc:
                if not away:
                    log.warning("the catalogue cannot be looked at", action="catalogue_away", reason=str(exc))
                away = True

    def ask(self) -> None:
        """Let `watch` reload at once."""
        self._asked.set()

    def _made(self, offer: Offer) -> tuple[InForce, ...]:
        found, until = [], None
        for each in offer.versions:
            try:
                catalogue = self._read.get(each.version) or catalogue_of(each)
            except CatalogueError as exc:
                log.error("catalogue not read", action="catalogue_invalid", version=each.version, reason=str(exc))  # noqa: TRY400
                continue
            self._read[each.version] = catalogue
            found.append(InForce(catalogue, until))
            until = each.since
        kept = {each.version for each in offer.versions}
        self._read = {version: catalogue for version, catalogue in self._read.items() if version in kept}
        if found:  # what staff announced holds whichever version it was said under
            newest = found[0].catalogue
            found[0] = replace(found[0], catalogue=replace(newest, notices=(*newest.notices, *offer.notices)))
        return tuple(found)

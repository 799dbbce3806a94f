"""The catalogue that is in force, and those that clinics may still have seen."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import structlog

from lab_agent.catalogue.load import load
from lab_agent.errors import CatalogueError
from lab_agent.ports.clock import Clock
from lab_agent.rules.catalogue_view import CatalogueView, InForce

log = structlog.get_logger(__name__)


class CatalogueShelf:
    """Catalogue versions by time. A reload that fails keeps the old one; with none at all, orders are held, never refused."""

    def __init__(self, folder: Path, cache_lifetime: timedelta, clock: Clock) -> None:
        self._folder = folder
        self._cache_lifetime = cache_lifetime
        self._clock = clock
        self._versions: tuple[InForce, ...] = ()

    def view(self) -> CatalogueView | None:
        """The versions as they stand, newest first; None where none could be read."""
        return CatalogueView(self._versions, self._cache_lifetime) if self._versions else None

    def reload(self) -> bool:
        """Read the folder again; whether it could be read. Logs all that is wrong with it otherwise."""
        try:
            catalogue = load(self._folder)
        except CatalogueError as exc:
            log.error("catalogue not read", action="catalogue_invalid", reason=str(exc))  # noqa: TRY400 - an error of the data
            return False
        now = self._clock.now()
        if self._versions and self._versions[0].catalogue.version == catalogue.version:
            return True
        kept = tuple(replace(each, until=each.until or now) for each in self._versions)
        self._versions = (
            InForce(catalogue),
            *(each for each in kept if each.until and each.until > now - 2 * self._cache_lifetime),
        )
        log.info("catalogue read", action="catalogue_read", version=catalogue.version)
        return True

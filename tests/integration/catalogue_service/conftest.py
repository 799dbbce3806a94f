"""A store on SQLite, a clock, and a copy of the sample catalogue's folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lab_agent.catalogue.catalogue_cache import CatalogueCache
from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue.versions import SourceImport, VersionHorizon, activate, import_if_changed, mark_changed
from lab_agent.shared.conditions.model import AlertKey
from tests.harness.clock import VirtualClock
from tests.harness.databases import InlineStore
from tests.harness.paths import CATALOGUE

DAY = timedelta(days=1)
HORIZON = VersionHorizon(7 * DAY, DAY)


@dataclass
class Shop:
    """Where catalogues are imported, from a folder of the settings or by a person."""

    folder: Path
    store: InlineStore = field(default_factory=InlineStore)
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(datetime(2026, 11, 20, 12, tzinfo=UTC)))

    def cache(self, horizon: VersionHorizon = HORIZON, *, has_folder: bool = True) -> CatalogueCache:
        return CatalogueCache(self.store, self.folder if has_folder else None, horizon, self.clock)

    async def loaded(self, horizon: VersionHorizon = HORIZON) -> Any:
        """What a cache without a folder, which begins now, has in view."""
        cache = self.cache(horizon, has_folder=False)
        await cache.refresh()
        return cache.view()

    async def import_folder(self, place: Path | None = None, *, by: str | None = None, origin: str = "x", age: float = 0) -> None:
        """Import a folder as a person does, or the settings, so many days ago."""
        now = self.clock.now() - age * DAY
        await activate(self.store, read_tables(place or self.folder), origin=origin, by=by, now=now)

    async def import_versions(self, *ages: float) -> None:
        """Import a version so many days before the clock's time, oldest first; each has a name of its own."""
        for age in ages:
            rows = (CATALOGUE / "contracts.csv").read_text().replace("C-200,", f"C-200,{age} ")
            (self.folder / "contracts.csv").write_text(rows)
            await self.import_folder(origin=str(age), age=age)

    async def import_if_changed(self, later: timedelta = timedelta()) -> SourceImport:
        return await import_if_changed(self.store, self.folder, now=self.clock.now() + later)

    async def set_content(self, number: int, content: bytes = b"damaged") -> None:
        """Put other bytes in the place of a version, as a bad disk and a restored backup do; they are numbered from 1."""
        self.store.execute("UPDATE catalogues SET content = ? WHERE number = ?", content, number)
        await self.touch()

    async def touch(self) -> None:
        """Let everybody read the catalogues again."""
        await self.store.transact(mark_changed)

    async def alerts(self) -> list[AlertKey]:
        return [each.key for each in await self.store.transact(lambda uow: uow.alerts.all_open())]

    def leave_out(self, item: str, place: Path | None = None) -> None:
        path = (place or self.folder) / "contract_items.csv"
        path.write_text("".join(row for row in path.read_text().splitlines(keepends=True) if f",{item}," not in row))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(Path(shutil.copytree(CATALOGUE, tmp_path / "catalogue")))

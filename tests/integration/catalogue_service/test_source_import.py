"""The alert that the changed catalogue is not valid: opened by whoever imports it, closed by whoever succeeds."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from lab_agent.catalogue.spreadsheet.csv_files import content_version, read_tables
from lab_agent.catalogue_service.cache import CatalogueCache
from lab_agent.catalogue_service.versions import INVALID_ALERT, UNUSED_ALERT, VersionHorizon, activate
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.records import Alert
from lab_agent.errors import CatalogueError
from lab_api.catalogue_sync import CatalogueSync
from tests.fakes.memory_store import MemoryStore
from tests.harness.clock import VirtualClock
from tests.harness.paths import CATALOGUE

DAY = timedelta(days=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CATALOGUE, tmp_path / "catalogue"))


def spoil(folder: Path) -> str:
    """Make a price that is none; gives what the file was."""
    prices = folder / "contract_items.csv"
    good = prices.read_text()
    prices.write_text(good.replace("480.00", "free"))
    return good


def open_alerts(store: MemoryStore, key: AlertKey = INVALID_ALERT) -> list[Alert]:
    return [each for each in store._data.alerts if each.key == key and each.closed_at is None]


@pytest.mark.parametrize("importer", ["agent", "api"])
async def test_invalid_change_opens_alert_that_says_why(folder: Path, importer: str) -> None:
    store, clock = MemoryStore(), VirtualClock()
    cache, sync = CatalogueCache(store, folder, VersionHorizon(DAY, DAY), clock), CatalogueSync(store, folder, clock.now)
    await cache.reload()
    await sync.open()
    spoil(folder)
    clock.advance(60)
    await (cache.reload() if importer == "agent" else sync.reload())
    (alert,) = open_alerts(store)
    assert alert.since == clock.now()
    assert "contract_items" in alert.detail


@pytest.mark.parametrize("end", ["former content", "other content", "command"])
async def test_alert_ends_with_next_import(folder: Path, end: str) -> None:
    """Also where the content is that of the version in force, so that nothing has to be activated."""
    store, clock = MemoryStore(), VirtualClock()
    cache = CatalogueCache(store, folder, VersionHorizon(DAY, DAY), clock)
    await cache.reload()
    good = spoil(folder)
    await cache.reload()
    assert open_alerts(store)
    if end == "command":
        await activate(store, read_tables(CATALOGUE), origin="x", by=None, now=clock.now())
    else:
        (folder / "contract_items.csv").write_text(good if end == "former content" else good.replace("480.00", "510.00"))
        await cache.reload()
    assert not open_alerts(store)


async def test_first_catalogue_invalid_told_too(folder: Path) -> None:
    store = MemoryStore()
    spoil(folder)
    with pytest.raises(CatalogueError):
        await CatalogueSync(store, folder, VirtualClock().now).open()
    assert len(open_alerts(store)) == 1


@pytest.mark.parametrize("importer", ["agent", "api"])
@pytest.mark.parametrize("end", ["imported", "the same again"])
async def test_folder_without_effect_told_until_in_force(folder: Path, tmp_path: Path, importer: str, end: str) -> None:
    store, clock = MemoryStore(), VirtualClock()
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    (own / "contracts.csv").write_text("contract,name\nC-100,Ours\nC-200,B\n")
    await activate(store, read_tables(own), origin=str(own), by="anna", now=clock.now())
    cache, sync = CatalogueCache(store, folder, VersionHorizon(DAY, DAY), clock), CatalogueSync(store, folder, clock.now)
    await (cache.reload() if importer == "agent" else sync.open())
    (alert,) = open_alerts(store, UNUSED_ALERT)
    assert alert.detail == str(folder)
    if end == "imported":
        await activate(store, read_tables(folder), origin=str(folder), by="anna", now=clock.now())
    else:
        shutil.copytree(own, folder, dirs_exist_ok=True)
        await (cache.reload() if importer == "agent" else sync.reload())
    assert not open_alerts(store, UNUSED_ALERT)


async def test_replacement_by_folder_is_logged_with_former_version(folder: Path) -> None:
    store, clock = MemoryStore(), VirtualClock()
    cache = CatalogueCache(store, folder, VersionHorizon(DAY, DAY), clock)
    with capture_logs() as first:
        await cache.reload()
    former = content_version(read_tables(folder))
    (folder / "contracts.csv").write_text("contract,name\nC-100,Ours\nC-200,B\n")
    with capture_logs() as second:
        await cache.reload()
    replaced = [[each["former"] for each in lines if each["action"] == "catalogue_replaced"] for lines in (first, second)]
    assert replaced == [[], [former]]

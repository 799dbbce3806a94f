"""What is served follows the store: imports and notices without a restart, damaged versions, outages, and tasks that fail."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update
from structlog.testing import capture_logs

from lab_agent.catalogue.catalogue_fallback import UnreadableCatalogueAlert
from lab_agent.catalogue.catalogue_tables import catalogues
from lab_agent.catalogue.notices import Announcement, announce, lift_notices, load_staleness_warning
from lab_agent.catalogue.records import CatalogueVersion
from lab_agent.catalogue.spreadsheet.csv_files import content_version, read_tables
from lab_agent.catalogue.versions import UNREADABLE_ALERT, activate, unpack_catalogue
from lab_agent.operations.worker import BackgroundTaskFailed
from lab_agent.settings.api import ApiSettings
from lab_agent.shared import exact_json
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import CatalogueError, Problem, StoreUnreachableError
from lab_api import catalogue_sync as sync_module
from lab_api.app import create_app
from lab_api.catalogue_sync import CatalogueSync
from lab_api.response_cache import CurrentCatalogue
from lab_api.server import ApiServer
from tests.harness.clock import DEADLINE, VirtualClock, wait_until
from tests.integration.lab_api.parts import TroubledStore

DAY = timedelta(days=1)


@dataclass
class Served:
    """A store with a folder that is imported, and what an API serves of them."""

    store: TroubledStore
    folder: Path
    clock: VirtualClock

    def sync(self, folder: Path | None = None) -> CatalogueSync:
        return CatalogueSync(self.store, folder, self.clock.now)

    async def activate(self, tables: Any = None) -> bool:
        """Import what the folder holds, or these tables, as a person does."""
        tables = tables or read_tables(self.folder)
        return await activate(self.store, tables, origin="x", by=None, now=self.clock.now())

    def change_price(self) -> None:
        prices = self.folder / "contract_items.csv"
        prices.write_text(prices.read_text().replace("480.00", "512.30"))

    async def second_version(self) -> None:
        self.change_price()
        self.clock.advance(minutes=1)
        await self.activate()
        self.clock.advance(minutes=59)

    async def damage(self, *, older: bool = False) -> None:
        """Damage the content of the newest version, or of all."""
        newest = select(func.max(catalogues.c.since)).scalar_subquery()
        change = update(catalogues).values(content=b"damaged")
        await self.store.write(
            lambda connection, _: connection.execute(change if older else change.where(catalogues.c.since == newest))
        )

    async def newest(self) -> CatalogueVersion:
        found = await self.store.transact(lambda uow: uow.catalogues.newest())
        assert found is not None
        return found

    async def open_alerts(self) -> list[AlertKey]:
        conditions = frozenset(ConditionId)
        return list(await self.store.transact(lambda uow: uow.alerts.open_of(conditions)))

    async def stop_item(self, **more: Any) -> None:
        now = self.clock.now()
        said = Announcement(**{"item": "001.001", "start": now, "end": now + DAY} | more)
        await announce(self.store, said, by=None, now=now)

    async def eta(self, current: CurrentCatalogue, contract: str = "C-100") -> dict[str, Any]:
        """What is answered of 001.001."""
        responses = current.responses
        answer = exact_json.loads((await responses.eta(responses.catalogue.contracts[contract], self.clock.now())).plain)
        return next(each for each in answer if each["id"] == "001.001")


@pytest.fixture
def served(store: TroubledStore, folder: Path, clock: VirtualClock) -> Served:
    return Served(store, folder, clock)


# --- the tasks of the program -----------------------------------------------------------------------------------------------


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_module, "SYNC_INTERVAL", 0.01)


async def start(served: Served) -> tuple[ApiServer, asyncio.Task[None]]:
    sync = served.sync(served.folder)
    current, settings = await sync.open(), ApiSettings()
    server = ApiServer(create_app(settings, current), current, sync, settings)
    running = asyncio.create_task(server.run_until_stopped(socket.create_server(("127.0.0.1", 0))))
    await wait_until(lambda: server.started, interval=0.01)
    return server, running


@pytest.mark.usefixtures("_quick")
async def test_failed_background_task_stops_program(served: Served) -> None:
    _, running = await start(served)
    served.store.error = KeyError("a fault of ours")
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(BackgroundTaskFailed, match="catalogue sync ended by itself") as caught:
            await running
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.usefixtures("_quick")
async def test_store_outage_survived(served: Served) -> None:
    server, running = await start(served)
    served.store.error = StoreUnreachableError()
    await wait_until(lambda: served.store.failures > 2, "several looks during the outage", interval=0.01)
    served.store.error = None
    await served.second_version()
    newest = (await served.newest()).version
    await wait_until(lambda: server._current_catalogue.responses.catalogue.version == newest, interval=0.01)
    assert not running.done()
    server.should_exit = True
    await running


# --- imports and notices ----------------------------------------------------------------------------------------------------


async def test_catalogue_import_served_without_restart(served: Served) -> None:
    sync = served.sync(served.folder)
    current = await sync.open()
    contract = current.responses.catalogue.contract("C-100")
    before = await current.responses.nomenclature(contract)
    served.change_price()
    assert await sync.refresh() is False
    await served.activate()
    assert await sync.refresh() is True
    after = await current.responses.nomenclature(current.responses.catalogue.contract("C-100"))
    assert after.etag != before.etag
    assert b'"price":512.30' in after.plain


async def test_no_catalogue_reported_in_one_sentence(served: Served, tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="lab-agent catalogue import"):
        await served.sync().open()
    with pytest.raises(CatalogueError, match="is not a folder"):
        await served.sync(tmp_path / "none").open()


async def test_notice_effective_immediately_until_its_time_or_lifted(served: Served) -> None:
    """It changes the turnaround of its contract alone, and no nomenclature."""
    sync = served.sync(served.folder)
    current = await sync.open()
    contract = current.responses.catalogue.contract("C-200")
    before, now, hour = await current.responses.nomenclature(contract), served.clock.now(), timedelta(hours=1)
    await served.stop_item(start=now + hour, end=now + 3 * hour, caption="No reagent")
    await served.stop_item(contract="C-200", delay_hours=Decimal("12.0"), end=now + hour)
    await sync.refresh()
    assert (await served.eta(current))["status"] == "available"
    item = await served.eta(current, "C-200")
    assert (item["status"], item["delayDuration"]) == ("delayed", {"value": "12.0", "unit": "h"})
    served.clock.advance(hours=1)
    item = await served.eta(current)
    assert (item["status"], item["caption"], item["delayDuration"]) == ("stopped", "No reagent", None)
    assert await lift_notices(served.store, "001.001", None, now=served.clock.now()) >= 1
    await sync.refresh()
    assert [(await served.eta(current, code))["status"] for code in ("C-100", "C-200")] == ["available"] * 2
    assert (await current.responses.nomenclature(contract)).etag == before.etag


# --- versions that cannot be read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"no zlib", b"x\x9c\x03\x00\x00\x00\x00\x01", b"x\x9c\x8b\x8e\x05\x00\x01\x15\x00\xb9"])
def test_damaged_content_is_no_version(clock: VirtualClock, content: bytes) -> None:
    with pytest.raises(CatalogueError):
        unpack_catalogue(CatalogueVersion(version="damaged", since=clock.now(), content=content, origin="x"))


async def test_start_falls_back_with_alert_until_healed(served: Served) -> None:
    await served.activate()
    first = await served.newest()
    await served.second_version()
    await served.damage()
    with capture_logs() as lines:
        sync = served.sync()
        current = await sync.open()
        await sync.refresh()
        await served.stop_item()
        assert await sync.refresh() is True
    assert current.responses.catalogue.version == first.version
    assert [each["action"] for each in lines].count("catalogue_unreadable") == 1
    assert await served.open_alerts() == [UNREADABLE_ALERT]
    assert (await served.eta(current))["status"] == "stopped"
    await served.activate()
    assert await served.open_alerts() == []
    with capture_logs() as lines:
        assert await sync.refresh() is True
    assert current.responses.catalogue.version != first.version
    assert "catalogue_readable" in [each["action"] for each in lines]
    assert (await served.eta(current))["status"] == "stopped"


@pytest.mark.parametrize("same", [True, False])
async def test_fallback_version_recorded_as_active(served: Served, *, same: bool) -> None:
    tables = read_tables(served.folder)
    await served.activate()
    await served.second_version()
    await served.damage()
    began = served.clock.now()
    for _ in range(2):
        await served.sync().open()
        served.clock.advance(hours=1)
    assert await served.activate(None if same else tables) is True
    kept = await served.store.transact(lambda uow: uow.catalogues.active_since(began - 9 * DAY))
    first, second = content_version(tables), content_version(read_tables(served.folder))
    assert [each.version for each in reversed(kept)] == ([first, second] * 2 if same else [first, second, first])
    assert kept[1 if same else 0].since == began
    assert not await served.store.transact(lambda uow: uow.key_values.get("catalogue.fallback"))
    assert await served.activate() is not same


async def test_start_with_identical_folder_heals_unreadable_catalogue(served: Served) -> None:
    await served.sync(served.folder).open()
    await served.damage()
    current = await served.sync(served.folder).open()
    assert unpack_catalogue(await served.newest()).version == current.responses.catalogue.version
    assert await served.open_alerts() == []


async def test_notice_served_while_catalogue_unreadable(served: Served) -> None:
    sync = served.sync()
    await served.activate()
    current = await sync.open()
    before = current.responses.catalogue.version
    await served.damage(older=True)
    assert await load_staleness_warning(served.store) is not None
    await served.stop_item()
    assert await sync.refresh() is True
    assert (current.responses.catalogue.version, (await served.eta(current))["status"]) == (before, "stopped")
    assert await served.open_alerts() == [UNREADABLE_ALERT]
    with pytest.raises(CatalogueError, match="cannot be read"):
        await served.sync().open()


async def test_unstored_alert_is_opened_later(served: Served) -> None:
    alert, broken = UnreadableCatalogueAlert(served.store, served.clock.now), CatalogueError((Problem("store", "x"),))
    served.store.error = StoreUnreachableError()
    with capture_logs() as lines:
        await alert.update("v", broken)
        await alert.update("v", broken)
        served.store.error = None
        await alert.update("v", broken)
    assert [each["action"] for each in lines] == ["catalogue_unreadable", "catalogue_store_unavailable"]
    assert await served.open_alerts() == [UNREADABLE_ALERT]

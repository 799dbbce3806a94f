"""The background tasks of `lab-api`: what they survive, and that one that fails stops the program."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from lab_agent.catalogue.spreadsheet.csv_files import content_version, read_tables
from lab_agent.catalogue_service import versions as catalogue_versions
from lab_agent.catalogue_service.fallback import UnreadableCatalogueAlert
from lab_agent.catalogue_service.notices import Announcement, announce, load_staleness_warning
from lab_agent.catalogue_service.versions import UNREADABLE_ALERT, activate, unpack_catalogue
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.catalogue_records import CatalogueVersion
from lab_agent.domain.records import Alert
from lab_agent.errors import CatalogueError, Problem, StoreUnreachableError
from lab_agent.settings.api import ApiSettings
from lab_agent.worker.worker import BackgroundTaskFailed
from lab_api import catalogue_sync as sync_module
from lab_api.app import create_app
from lab_api.catalogue_sync import CatalogueSync, repeat
from lab_api.server import ApiServer
from tests.fakes.memory_store import MemoryStore
from tests.harness.clock import DEADLINE, wait_until


class Trouble(MemoryStore):
    """A store that fails as it is told."""

    error: Exception | None = None
    failures = 0

    async def run(self, work: Any) -> Any:
        if self.error:
            self.failures += 1
            raise self.error
        return await super().run(work)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_module, "SYNC_INTERVAL", 0.01)


async def start(store: Trouble, folder: Path, clock: Any) -> tuple[ApiServer, CatalogueSync, asyncio.Task[None]]:
    sync = CatalogueSync(store, folder, clock)
    current = await sync.open()
    settings = ApiSettings()
    server = ApiServer(create_app(settings, current), current, sync, settings)
    sock = socket.create_server(("127.0.0.1", 0))
    running = asyncio.create_task(server.run_until_stopped(sock))
    async with asyncio.timeout(DEADLINE):
        while not server.started:  # noqa: ASYNC110 - a condition with a deadline
            await asyncio.sleep(0.01)
    return server, sync, running


async def test_failed_background_task_stops_program(folder: Path, clock: Any) -> None:
    store = Trouble()
    _, _, running = await start(store, folder, clock)
    store.error = KeyError("a fault of ours")
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(BackgroundTaskFailed, match="catalogue sync ended by itself") as caught:
            await running
    assert isinstance(caught.value.__cause__, KeyError)


async def test_store_outage_survived(folder: Path, clock: Any) -> None:
    store = Trouble()
    server, _, running = await start(store, folder, clock)
    store.error = StoreUnreachableError()
    await wait_until(lambda: store.failures > 2, "several looks during the outage")
    store.error = None
    prices = folder / "contract_items.csv"
    prices.write_text(prices.read_text().replace("480.00", "512.30"))
    await activate(store, read_tables(folder), origin="x", by=None, now=clock.now)
    newest = await store.run(lambda uow: uow.catalogues.newest())
    assert newest is not None
    async with asyncio.timeout(DEADLINE):
        while server._current_catalogue.responses.catalogue.version != newest.version:  # noqa: ASYNC110 - a condition with a deadline
            await asyncio.sleep(0.01)
    assert not running.done()
    server.should_exit = True
    await running


@pytest.mark.parametrize("content", [b"", b"no zlib", b"x\x9c\x03\x00\x00\x00\x00\x01", b"x\x9c\x8b\x8e\x05\x00\x01\x15\x00\xb9"])
async def test_unreadable_version_keeps_current_catalogue(folder: Path, clock: Any, content: bytes) -> None:
    store = Trouble()
    sync = CatalogueSync(store, folder, clock)
    current = await sync.open()
    before = current.responses.catalogue.version

    def damage(uow: Any) -> None:
        uow.catalogues.add(CatalogueVersion(version="damaged", since=clock.now, content=content, origin="x"))
        uow.key_values.set("catalogue.change_stamp", "another")
        uow.commit()

    await store.run(damage)
    assert await sync.refresh() is True
    assert current.responses.catalogue.version == before
    again = await CatalogueSync(store, None, clock).open()  # a start falls back to the newest that can be read
    assert again.responses.catalogue.version == before


async def damage_newest(store: MemoryStore, content: bytes = b"damaged", *, older: bool = False) -> None:
    def work(uow: Any) -> None:
        kept = uow.catalogues._data.catalogues
        for at in range(len(kept)) if older else (len(kept) - 1,):
            kept[at] = replace(kept[at], content=content)
        uow.commit()

    await store.run(work)


async def open_alerts(store: MemoryStore) -> list[AlertKey]:
    found: list[Alert] = await store.run(lambda uow: uow.catalogues._data.alerts)  # type: ignore[attr-defined]
    return [each.key for each in found if each.closed_at is None]


async def second_version(store: MemoryStore, folder: Path, clock: Any) -> None:
    prices = folder / "contract_items.csv"
    prices.write_text(prices.read_text().replace("480.00", "512.30"))
    await activate(store, read_tables(folder), origin="x", by=None, now=clock.now + timedelta(minutes=1))
    clock.now += timedelta(hours=1)


async def test_start_falls_back_with_alert_until_healed(folder: Path, clock: Any, tmp_path: Path) -> None:
    """A start falls back to the last readable version; its one alert ends when the catalogue is healed."""
    store = Trouble()
    await activate(store, read_tables(folder), origin="x", by=None, now=clock.now)
    first = await store.run(lambda uow: uow.catalogues.newest())
    await second_version(store, folder, clock)
    await damage_newest(store)
    with capture_logs() as lines:
        sync = CatalogueSync(store, None, clock)
        current = await sync.open()
        await sync.refresh()
        said = Announcement(item="001.001", start=clock.now, end=clock.now + timedelta(days=1))
        await announce(store, said, by=None, now=clock.now)
        assert await sync.refresh() is True
    assert first is not None
    assert current.responses.catalogue.version == first.version
    assert [each["action"] for each in lines].count("catalogue_unreadable") == 1
    assert await open_alerts(store) == [UNREADABLE_ALERT]
    contract = current.responses.catalogue.contracts["C-100"]
    assert b"stopped" in (await current.responses.eta(contract, clock.now)).plain
    await activate(store, read_tables(folder), origin="x", by=None, now=clock.now)
    assert await open_alerts(store) == []
    with capture_logs() as lines:
        assert await sync.refresh() is True
    assert current.responses.catalogue.version != first.version
    assert "catalogue_readable" in [each["action"] for each in lines]
    contract = current.responses.catalogue.contracts["C-100"]
    assert b"stopped" in (await current.responses.eta(contract, clock.now)).plain


@pytest.mark.parametrize("same", [True, False])
async def test_fallback_version_recorded_as_active(folder: Path, clock: Any, *, same: bool) -> None:
    """The version served as a fallback counts as active for that time."""
    store = Trouble()
    tables = read_tables(folder)
    await activate(store, tables, origin="x", by=None, now=clock.now)
    await second_version(store, folder, clock)
    await damage_newest(store)
    began = clock.now
    for _ in range(2):
        await CatalogueSync(store, None, clock).open()
        clock.now += timedelta(hours=1)
    assert await activate(store, read_tables(folder) if same else tables, origin="x", by=None, now=clock.now) is True
    kept = await store.run(lambda uow: uow.catalogues.active_since(began - timedelta(days=9)))
    versions = [each.version for each in reversed(kept)]
    first, second = content_version(tables), content_version(read_tables(folder))
    assert versions == ([first, second, first, second] if same else [first, second, first])
    assert kept[1 if same else 0].since == began
    assert not await store.run(lambda uow: uow.key_values.get("catalogue.fallback"))
    assert await activate(store, read_tables(folder), origin="x", by=None, now=clock.now) is not same


async def test_start_with_identical_folder_heals_unreadable_catalogue(folder: Path, clock: Any) -> None:
    store = Trouble()
    await CatalogueSync(store, folder, clock).open()
    await damage_newest(store)
    current = await CatalogueSync(store, folder, clock).open()
    newest = await store.run(lambda uow: uow.catalogues.newest())
    assert newest is not None
    assert unpack_catalogue(newest).version == current.responses.catalogue.version
    assert await open_alerts(store) == []


async def test_notice_served_while_catalogue_unreadable(folder: Path, clock: Any) -> None:
    store = Trouble()
    sync = CatalogueSync(store, None, clock)
    await activate(store, read_tables(folder), origin="x", by=None, now=clock.now)
    current = await sync.open()
    await damage_newest(store, older=True)
    assert await load_staleness_warning(store) is not None
    said = Announcement(item="001.001", start=clock.now, end=clock.now + timedelta(days=1))
    await announce(store, said, by=None, now=clock.now)
    assert await sync.refresh() is True
    contract = current.responses.catalogue.contracts["C-100"]
    assert b"stopped" in (await current.responses.eta(contract, clock.now)).plain
    assert await open_alerts(store) == [UNREADABLE_ALERT]
    with pytest.raises(CatalogueError, match="cannot be read"):
        await CatalogueSync(store, None, clock).open()


async def test_unexpected_source_error_keeps_current_catalogue(folder: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Trouble()
    sync = CatalogueSync(store, folder, clock)
    current = await sync.open()
    before = current.responses.catalogue.version

    def fail(_source: Path) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(catalogue_versions, "read_tables", fail)
    with capture_logs() as lines:
        await sync.reload()
    assert [each["action"] for each in lines] == ["condition_found", "catalogue.refused"]
    assert "KeyError" in lines[0]["reason"]
    assert current.responses.catalogue.version == before
    assert (await CatalogueSync(store, folder, clock).open()).responses.catalogue.version == before


async def test_unstored_alert_is_opened_later(folder: Path, clock: Any) -> None:
    store = Trouble()
    alert = UnreadableCatalogueAlert(store, clock)
    broken = CatalogueError((Problem("store", "x"),))
    store.error = StoreUnreachableError()
    with capture_logs() as lines:
        await alert.update("v", broken)
        await alert.update("v", broken)
        store.error = None
        await alert.update("v", broken)
    assert [each["action"] for each in lines] == ["catalogue_unreadable", "catalogue_store_unavailable"]
    assert await open_alerts(store) == [UNREADABLE_ALERT]


async def test_store_outage_and_recovery_logged_once_each() -> None:
    answers = iter([None, StoreUnreachableError("a"), StoreUnreachableError("b"), None, None, KeyError("ours")])

    async def look() -> None:
        if (error := next(answers)) is not None:
            raise error

    with capture_logs() as lines, pytest.raises(KeyError):
        await repeat(look, 0, "the catalogue")
    assert [(each["action"], each["log_level"]) for each in lines] == [
        ("store.unavailable", "warning"),
        ("store.restored", "info"),
    ]

"""The catalogue cache: versions from the store, also after a restart; notices; reload from the folder."""

from __future__ import annotations

import asyncio
import shutil
import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue.turnaround import Available, Stopped
from lab_agent.catalogue_service import cache as cache_module
from lab_agent.catalogue_service import versions
from lab_agent.catalogue_service.cache import CatalogueCache
from lab_agent.catalogue_service.fallback import load_newest_readable
from lab_agent.catalogue_service.notices import Announcement, announce
from lab_agent.catalogue_service.versions import (
    UNREADABLE_ALERT,
    SourceState,
    VersionHorizon,
    activate,
    import_if_changed,
    mark_changed,
    pack_tables,
    unpack_tables,
)
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.ids import OrderKey, ResourceId
from lab_agent.domain.records import OrderRecord
from lab_agent.domain.state_machines import OrderState
from lab_agent.errors import CatalogueError
from lab_agent.settings.groups import RetentionSettings
from lab_agent.workflow.retention import RetentionPurger
from tests.fakes.memory_store import MemoryStore
from tests.harness.clock import VirtualClock, wait_until
from tests.harness.paths import CATALOGUE

DAY = timedelta(days=1)
HORIZON = VersionHorizon(7 * DAY, DAY)


NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CATALOGUE, tmp_path / "catalogue"))


def without(folder: Path, item: str) -> None:
    path = folder / "contract_items.csv"
    path.write_text("".join(row for row in path.read_text().splitlines(keepends=True) if f",{item}," not in row))


async def test_restart_keeps_every_version(folder: Path) -> None:
    store, clock = MemoryStore(), VirtualClock(NOON)
    first = CatalogueCache(store, folder, HORIZON, clock)
    assert first.view() is None
    await first.reload()
    began = clock.time
    without(folder, "001.002")
    clock.time += timedelta(hours=2)
    await first.reload()
    for cache in (first, CatalogueCache(store, None, HORIZON, clock)):
        await cache.refresh()
        view = cache.view()
        assert view is not None
        assert [each.active_until for each in view.versions] == [None, began + timedelta(hours=2)]
        assert view.current_item("C-100", "001.002") is None
        assert view.versions[1].catalogue.item("C-100", "001.002") is not None


async def test_new_stop_notice_is_visible_to_rules(folder: Path) -> None:
    store, clock = MemoryStore(), VirtualClock(NOON)
    cache = CatalogueCache(store, folder, HORIZON, clock)
    await cache.reload()
    view = cache.view()
    assert view is not None
    item = view.versions[0].catalogue.item("C-100", "001.001")
    assert item is not None
    said = Announcement(item="001.001", start=clock.time, end=clock.time + DAY)
    await announce(store, said, by=None, now=clock.time)
    assert await cache.refresh() is True
    assert await cache.refresh() is False
    view = cache.view()
    assert view is not None
    assert isinstance(view.availability("C-100", item, clock.time), Stopped)
    assert isinstance(view.availability("C-100", item, clock.time + DAY), Available)


async def test_unreadable_catalogue_keeps_current_version(folder: Path) -> None:
    store, clock = MemoryStore(), VirtualClock(NOON)
    cache = CatalogueCache(store, folder, HORIZON, clock)
    await cache.reload()
    before = cache.view()
    (folder / "items.csv").unlink()
    await cache.reload()
    assert cache.view() == before
    empty = CatalogueCache(MemoryStore(), folder, HORIZON, clock)
    await empty.reload()
    assert empty.view() is None


async def test_watch_detects_import_by_another_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "REFRESH_INTERVAL", 0.01)
    store, clock = MemoryStore(), VirtualClock(NOON)
    cache = CatalogueCache(store, folder, HORIZON, clock)
    watch = asyncio.create_task(cache.watch())
    try:
        await activate(store, read_tables(CATALOGUE), origin="x", by=None, now=clock.time)
        await wait_until(lambda: cache.view() is not None, "the imported catalogue is read")
        without(folder, "001.002")
        cache.request_reload()
        await wait_until(lambda: len(cache.view().versions) == 2, "the changed folder is read")
    finally:
        watch.cancel()


async def test_two_processes_import_folder_once(folder: Path) -> None:
    store, clock = MemoryStore(), VirtualClock(NOON)
    states = [(await import_if_changed(store, folder, now=clock.time)).state for _ in range(2)]
    assert states == [SourceState.ACTIVATED, SourceState.IN_FORCE]
    assert len(await store.run(lambda uow: uow.catalogues.active_since(clock.time))) == 1


@pytest.mark.parametrize(
    ("imported", "folder_holds", "state"),
    [
        ([("folder", None)], "the same", SourceState.IN_FORCE),
        ([("folder", None)], "another", SourceState.ACTIVATED),
        ([("own", "anna")], "the same", SourceState.UNUSED),
        ([("own", "anna")], "another", SourceState.UNUSED),
        ([("own", "anna")], "mistakes", SourceState.UNUSED),
        ([("own", "anna")], "nothing", SourceState.UNUSED),
        ([("folder", None), ("own", "anna")], "the same", SourceState.UNUSED),
        ([("folder", None), ("folder", "anna")], "the same", SourceState.IN_FORCE),
        ([("folder", None), ("folder", "anna")], "another", SourceState.UNUSED),  # asked for, though it was active already
        ([("folder", "anna"), ("own", "anna"), ("folder", "anna")], "the same", SourceState.IN_FORCE),
    ],
)
async def test_folder_replaces_only_what_nobody_imported(
    folder: Path, tmp_path: Path, imported: list[tuple[str, str | None]], folder_holds: str, state: SourceState
) -> None:
    store, clock = MemoryStore(), VirtualClock(NOON)
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    without(own, "001.010")
    for place, by in imported:
        tables = read_tables(own if place == "own" else folder)
        await activate(store, tables, origin=place, by=by, now=clock.time)
        clock.advance(60)
    in_force = await store.run(lambda uow: uow.catalogues.newest())
    change_folder(folder, folder_holds)
    done = await import_if_changed(store, folder, now=clock.time)
    assert done.state is state
    newest = await store.run(lambda uow: uow.catalogues.newest())
    assert (newest == in_force) is (state is not SourceState.ACTIVATED)
    assert done.former == (in_force.version if state is SourceState.ACTIVATED else None)


def change_folder(folder: Path, holds: str) -> None:
    match holds:
        case "another":
            without(folder, "001.002")
        case "mistakes":
            (folder / "items.csv").write_text("item\n")
        case "nothing":
            shutil.rmtree(folder)


def test_packed_tables_unpack_without_loss() -> None:
    tables = read_tables(CATALOGUE)
    again = unpack_tables(pack_tables(tables))
    for name, table in tables.items():
        cells = [{key: text for key, text in row.cells.items() if text} for row in table.rows]
        assert [{key: text for key, text in row.cells.items() if text} for row in again[name].rows] == cells


async def damage(store: MemoryStore, place: int) -> None:
    def work(uow: Any) -> None:
        kept = uow.catalogues._data.catalogues
        kept[place] = replace(kept[place], content=b"damaged")
        mark_changed(uow)
        uow.commit()

    await store.run(work)


async def open_alerts(store: MemoryStore) -> list[AlertKey]:
    found = await store.run(lambda uow: uow.catalogues._data.alerts)  # type: ignore[attr-defined]
    return [each.key for each in found if each.closed_at is None]


async def test_unreadable_active_version_disables_older_versions(folder: Path) -> None:
    """While the active version cannot be read, no order is assessed by an older one."""
    store, clock = MemoryStore(), VirtualClock(NOON)
    await _versions(folder, store, clock, 2, 1)
    await damage(store, -1)
    cache = CatalogueCache(store, None, HORIZON, clock)
    with capture_logs() as lines:
        for _ in range(2):
            await cache.reload()
            await store.run(_touched)
    assert cache.view() is None
    assert await open_alerts(store) == [UNREADABLE_ALERT]
    assert [each["action"] for each in lines] == ["catalogue_unreadable"]
    await activate(store, read_tables(folder), origin="x", by=None, now=clock.time)
    await cache.reload()
    view = cache.view()
    assert view is not None
    assert [each.active_until for each in view.versions] == [None, clock.time - DAY]
    assert await open_alerts(store) == []


async def test_damaged_content_keeps_cached_version_and_opens_alert(folder: Path) -> None:
    """What was read before is used while its stored bytes are damaged, and an alert says so."""
    store, clock = MemoryStore(), VirtualClock(NOON)
    await _versions(folder, store, clock, 2, 1)
    cache = CatalogueCache(store, None, HORIZON, clock)
    await cache.reload()
    before = cache.view()
    await damage(store, -1)
    await cache.reload()
    assert cache.view() == before
    assert await open_alerts(store) == [UNREADABLE_ALERT]


async def test_unreadable_older_version_skipped_and_reported_once(folder: Path) -> None:
    store, clock = MemoryStore(), VirtualClock(NOON)
    await _versions(folder, store, clock, 3, 2, 1)
    await damage(store, 1)
    cache = CatalogueCache(store, None, HORIZON, clock)
    with capture_logs() as lines:
        for _ in range(2):
            await cache.reload()
            await store.run(_touched)
    view = cache.view()
    assert view is not None
    assert len(view.versions) == 2
    assert view.unreadable_until == (clock.time - DAY,)
    assert [each["action"] for each in lines].count("catalogue_invalid") == 1
    assert await open_alerts(store) == []


async def test_unexpected_source_failure_keeps_current_catalogue(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = MemoryStore(), VirtualClock(NOON)
    cache = CatalogueCache(store, folder, HORIZON, clock)
    await cache.reload()
    before = cache.view()

    def fail(_tables: object, _version: str) -> None:
        raise RecursionError

    without(folder, "001.002")
    monkeypatch.setattr(versions, "build_catalogue", fail)
    with capture_logs() as lines:
        await cache.reload()
    assert cache.view() == before
    assert [each["action"] for each in lines] == ["condition_found", "catalogue_invalid"]
    assert lines[0]["alert"] == "catalogue.invalid"
    assert "RecursionError" in lines[0]["reason"]


@pytest.mark.parametrize("error", [KeyError("x"), PermissionError(13, "Permission denied")])
async def test_stored_version_failing_to_parse_is_unreadable(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    store, clock = MemoryStore(), VirtualClock(NOON)
    await _versions(folder, store, clock, 1)

    def fail(_tables: object, _version: str) -> None:
        raise error

    monkeypatch.setattr(versions, "build_catalogue", fail)
    with pytest.raises(CatalogueError, match="cannot be read"):
        await load_newest_readable(store)


@pytest.mark.parametrize("by", [None, "anna"])
async def test_folder_repairs_version_that_it_holds(folder: Path, by: str | None) -> None:
    """Whoever imported it: its importer stays, and no other content takes its place."""
    store, clock = MemoryStore(), VirtualClock(NOON)
    await activate(store, read_tables(folder), origin="own", by=by, now=clock.time)
    await damage(store, -1)
    states = [(await import_if_changed(store, folder, now=clock.time + DAY)).state for _ in range(2)]
    assert states == [SourceState.ACTIVATED, SourceState.IN_FORCE]
    (healed,) = await store.run(lambda uow: uow.catalogues.active_since(clock.time))
    assert (healed.since, healed.content, healed.by) == (clock.time, pack_tables(read_tables(folder)), by)


async def test_folder_leaves_damaged_import_alone(folder: Path) -> None:
    store, clock = MemoryStore(), VirtualClock(NOON)
    await activate(store, read_tables(folder), origin="own", by="anna", now=clock.time)
    await damage(store, -1)
    without(folder, "001.002")
    assert (await import_if_changed(store, folder, now=clock.time + DAY)).state is SourceState.UNUSED


def test_unpack_rejects_cells_that_are_not_text() -> None:
    with pytest.raises(CatalogueError, match="cannot be read"):
        unpack_tables(zlib.compress(b'{"items": {"columns": ["item"], "rows": [[1]]}}'))


def _touched(uow: Any) -> None:
    mark_changed(uow)
    uow.commit()


# --- how far back -----------------------------------------------------------------------------------------------------------


async def _versions(folder: Path, store: MemoryStore, clock: VirtualClock, *ages: float) -> None:
    """Import a version so many days before the clock's time, oldest first; each has a name of its own."""
    for age in ages:
        rows = (CATALOGUE / "contracts.csv").read_text().replace("C-200,", f"C-200,{age} ")
        (folder / "contracts.csv").write_text(rows)
        await activate(store, read_tables(folder), origin=str(age), by=None, now=clock.time - age * DAY)


async def _purge(store: MemoryStore, clock: VirtualClock, horizon: VersionHorizon, **days: int) -> list[str]:
    settings = RetentionSettings.model_validate(days)
    await RetentionPurger(store, clock, settings, horizon.since).run()
    kept = await store.run(lambda uow: uow.catalogues.active_since(datetime.min.replace(tzinfo=UTC)))
    return [each.origin for each in reversed(kept)]


async def test_rule_lookback_follows_retention_setting(folder: Path) -> None:
    """The rules look as far back as the settings say."""
    store, clock = MemoryStore(), VirtualClock(NOON)
    await _versions(folder, store, clock, 40, 20, 9, 1)
    for days, count in ((7, 2), (10, 3), (30, 4)):  # a version counts until it was replaced, and a cache may be a day old
        cache = CatalogueCache(store, None, VersionHorizon(days * DAY, DAY), clock)
        await cache.refresh()
        view = cache.view()
        assert view is not None
        assert len(view.versions) == count


async def test_longer_contract_validity_extends_lookback(folder: Path) -> None:
    """A contract that clients may keep for longer makes the cache horizon farther back."""
    store, clock = MemoryStore(), VirtualClock(NOON)
    rows = (CATALOGUE / "contracts.csv").read_text().splitlines()
    assert rows[2].endswith(",12")
    (folder / "contracts.csv").write_text("\n".join([*rows[:2], rows[2].removesuffix("12") + "240"]) + "\n")
    await activate(store, read_tables(folder), origin="x", by=None, now=clock.time - 40 * DAY)
    await _versions(folder, store, clock, 12, 1)  # with twelve hours again
    cache = CatalogueCache(store, None, HORIZON, clock)
    await cache.refresh()
    view = cache.view()
    assert view is not None
    assert len(view.versions) == 3
    assert len(list(view._visible_versions("C-200", clock.time - 7 * DAY))) == 3


async def test_waiting_order_keeps_versions_of_its_time(folder: Path) -> None:
    store, clock = MemoryStore(), VirtualClock(NOON)
    await _versions(folder, store, clock, *range(400, 100, -20), 40, 20, *range(12, 0, -1))
    order = OrderRecord(
        key=OrderKey("R1"),
        task_id=ResourceId("t1"),
        state=OrderState.HELD,
        seen_at=clock.time - 130 * DAY,
        changed_at=clock.time,
    )

    def wait(uow: Any) -> None:
        uow.orders.add(order)
        uow.commit()

    await store.run(wait)
    kept = await _purge(store, clock, HORIZON, catalogue_days=1)
    assert kept[0] == "140"  # in force eight days before it was seen
    cache = CatalogueCache(store, None, HORIZON, clock)
    await cache.refresh()
    view = cache.view()
    assert view is not None
    assert len(view.versions) == len(kept)

    def decide(uow: Any) -> None:
        uow.orders.save(replace(order, state=OrderState.REJECTED))
        uow.commit()

    await store.run(decide)
    assert await _purge(store, clock, HORIZON, catalogue_days=1) == [str(age) for age in range(10, 0, -1)]


async def test_replaced_versions_purged_except_last_ten(folder: Path) -> None:
    """Replaced versions are purged in time, and the last ten stay."""
    store, clock = MemoryStore(), VirtualClock(NOON)
    await _versions(folder, store, clock, *range(300, 100, -20), 95, 85, 75)
    assert len(await _purge(store, clock, HORIZON, catalogue_days=290)) == 13
    assert (await _purge(store, clock, HORIZON, catalogue_days=270))[0] == "280"  # in force until 260 days ago
    assert (await _purge(store, clock, HORIZON))[0] == "240"  # nine came after it
    clock.time += 1000 * DAY
    assert len(await _purge(store, clock, HORIZON)) == 10

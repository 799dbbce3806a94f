"""The catalogue cache: versions from the store, also after a restart; reload from the folder; what is damaged; how far back."""

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

from lab_agent.catalogue import catalogue_cache as cache_module
from lab_agent.catalogue import versions
from lab_agent.catalogue.catalogue_fallback import load_newest_readable
from lab_agent.catalogue.notices import Announcement, announce
from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue.turnaround import Available, Stopped
from lab_agent.catalogue.versions import (
    INVALID_ALERT,
    UNREADABLE_ALERT,
    UNUSED_ALERT,
    SourceState,
    VersionHorizon,
    pack_tables,
    unpack_tables,
)
from lab_agent.operations.retention import RetentionPurger
from lab_agent.orders.records import OrderRecord
from lab_agent.settings.groups import RetentionSettings
from lab_agent.shared.errors import CatalogueError
from lab_agent.shared.ids import OrderKey, ResourceId
from lab_agent.shared.state_machines import OrderState
from lab_api.catalogue_sync import CatalogueSync
from tests.harness.clock import wait_until
from tests.harness.paths import CATALOGUE
from tests.integration.catalogue_service.conftest import DAY, HORIZON, Shop

ACTIVATED, IN_FORCE, UNUSED = SourceState.ACTIVATED, SourceState.IN_FORCE, SourceState.UNUSED


async def test_restart_keeps_every_version(shop: Shop) -> None:
    first, began = shop.cache(), shop.clock.time
    assert first.view() is None
    await first.reload()
    shop.leave_out("001.002")
    shop.clock.time += timedelta(hours=2)
    await first.reload()
    await first.refresh()
    for view in (first.view(), await shop.loaded()):
        assert [each.active_until for each in view.versions] == [None, began + timedelta(hours=2)]
        assert view.current_item("C-100", "001.002") is None
        assert view.versions[1].catalogue.item("C-100", "001.002") is not None


async def test_new_stop_notice_is_visible_to_rules(shop: Shop) -> None:
    cache, now = shop.cache(), shop.clock.time
    await cache.reload()
    await announce(shop.store, Announcement(item="001.001", start=now, end=now + DAY), by=None, now=now)
    assert [await cache.refresh() for _ in range(2)] == [True, False]
    view: Any = cache.view()
    item = view.versions[0].catalogue.item("C-100", "001.001")
    assert isinstance(view.availability("C-100", item, now), Stopped)
    assert isinstance(view.availability("C-100", item, now + DAY), Available)


async def test_watch_detects_import_by_another_process(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "REFRESH_INTERVAL", 0.01)
    cache: Any = shop.cache()
    watch = asyncio.create_task(cache.watch())
    try:
        await shop.import_folder(CATALOGUE)
        await wait_until(lambda: cache.view() is not None, "the imported catalogue is read")
        shop.leave_out("001.002")
        cache.request_reload()
        await wait_until(lambda: len(cache.view().versions) == 2, "the changed folder is read")
    finally:
        watch.cancel()


@pytest.mark.parametrize(
    ("imported", "folder_holds", "state"),
    [
        ([], "the same", ACTIVATED),
        ([("folder", None)], "the same", IN_FORCE),
        ([("folder", None)], "another", ACTIVATED),
        ([("own", "anna")], "the same", UNUSED),
        ([("own", "anna")], "another", UNUSED),
        ([("own", "anna")], "mistakes", UNUSED),
        ([("own", "anna")], "nothing", UNUSED),
        ([("folder", None), ("own", "anna")], "the same", UNUSED),
        ([("folder", None), ("folder", "anna")], "the same", IN_FORCE),
        ([("folder", None), ("folder", "anna")], "another", UNUSED),  # asked for, though it was active already
        ([("folder", "anna"), ("own", "anna"), ("folder", "anna")], "the same", IN_FORCE),
    ],
)
async def test_folder_replaces_only_what_nobody_imported(
    shop: Shop, tmp_path: Path, imported: list[tuple[str, str | None]], folder_holds: str, state: SourceState
) -> None:
    own = Path(shutil.copytree(shop.folder, tmp_path / "own"))
    shop.leave_out("001.010", own)
    for place, by in imported:
        await shop.import_folder(own if place == "own" else None, by=by, origin=place)
        shop.clock.advance(60)
    in_force = await shop.store.transact(lambda uow: uow.catalogues.newest())
    match folder_holds:
        case "another":
            shop.leave_out("001.002")
        case "mistakes":
            (shop.folder / "items.csv").write_text("item\n")
        case "nothing":
            shutil.rmtree(shop.folder)
    done = await shop.import_if_changed()
    newest = await shop.store.transact(lambda uow: uow.catalogues.newest())
    assert (done.state, newest == in_force) == (state, state is not ACTIVATED)
    assert done.former == (in_force.version if state is ACTIVATED and in_force else None)


# --- the alerts of a folder: opened by whoever imports it, closed by whoever succeeds


def spoil(shop: Shop) -> str:
    """Make a price that is none; gives what the file was."""
    prices = shop.folder / "contract_items.csv"
    good = prices.read_text()
    prices.write_text(good.replace("480.00", "free"))
    return good


@pytest.mark.parametrize(
    ("importer", "said"), [("agent", "contract_items"), ("api", "contract_items"), ("agent", "RecursionError")]
)
async def test_invalid_change_keeps_version_and_opens_alert(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, importer: str, said: str
) -> None:
    """So does an error of ours that nobody expects."""
    cache, sync = shop.cache(), CatalogueSync(shop.store, shop.folder, shop.clock.now)
    await cache.reload()
    await sync.open()
    before = cache.view()
    spoil(shop)
    if said == "RecursionError":
        monkeypatch.setattr(versions, "build_catalogue", failing(RecursionError()))
    shop.clock.advance(60)
    await (cache.reload() if importer == "agent" else sync.reload())
    assert cache.view() == before
    (alert,) = await shop.store.transact(lambda uow: uow.alerts.all_open())
    assert (alert.key, alert.since, said in alert.detail) == (INVALID_ALERT, shop.clock.now(), True)


@pytest.mark.parametrize("end", ["former content", "other content", "command"])
async def test_alert_ends_with_next_import(shop: Shop, end: str) -> None:
    """Also where the content is that of the version in force, so that nothing has to be activated."""
    cache = shop.cache()
    await cache.reload()
    good = spoil(shop)
    await cache.reload()
    assert await shop.alerts() == [INVALID_ALERT]
    if end == "command":
        await shop.import_folder(CATALOGUE)
    else:
        (shop.folder / "contract_items.csv").write_text(good if end == "former content" else good.replace("480.00", "510.00"))
        await cache.reload()
    assert await shop.alerts() == []


async def test_first_catalogue_invalid_told_too(shop: Shop) -> None:
    spoil(shop)
    cache = shop.cache()
    await cache.reload()
    assert cache.view() is None
    with pytest.raises(CatalogueError):
        await CatalogueSync(shop.store, shop.folder, shop.clock.now).open()
    assert await shop.alerts() == [INVALID_ALERT]


@pytest.mark.parametrize(("importer", "end"), [("agent", "imported"), ("api", "the same again")])
async def test_folder_without_effect_told_until_in_force(shop: Shop, tmp_path: Path, importer: str, end: str) -> None:
    own = Path(shutil.copytree(shop.folder, tmp_path / "own"))
    (own / "contracts.csv").write_text("contract,name\nC-100,Ours\nC-200,B\n")
    await shop.import_folder(own, by="anna", origin=str(own))
    cache, sync = shop.cache(), CatalogueSync(shop.store, shop.folder, shop.clock.now)
    await (cache.reload() if importer == "agent" else sync.open())
    (alert,) = await shop.store.transact(lambda uow: uow.alerts.all_open())
    assert (alert.key, alert.detail) == (UNUSED_ALERT, str(shop.folder))
    if end == "imported":
        await shop.import_folder(by="anna", origin=str(shop.folder))
    else:
        shutil.copytree(own, shop.folder, dirs_exist_ok=True)
        await (cache.reload() if importer == "agent" else sync.reload())
    assert await shop.alerts() == []


def failing(error: Exception) -> Any:
    def fail(_tables: object, _version: str) -> None:
        raise error

    return fail


# --- damaged


def test_packed_tables_unpack_without_loss() -> None:
    tables = read_tables(CATALOGUE)
    again = unpack_tables(pack_tables(tables))

    def cells(table: Any) -> Any:
        return [{key: text for key, text in row.cells.items() if text} for row in table.rows]

    assert {name: cells(again[name]) for name in tables} == {name: cells(table) for name, table in tables.items()}
    with pytest.raises(CatalogueError, match="cannot be read"):
        unpack_tables(zlib.compress(b'{"items": {"columns": ["item"], "rows": [[1]]}}'))


async def test_unreadable_active_version_disables_older_versions(shop: Shop) -> None:
    """No order is assessed by an older one; but what was read before is used while its stored bytes are damaged."""
    await shop.import_versions(2, 1)
    cache, knowing = shop.cache(has_folder=False), shop.cache(has_folder=False)
    await knowing.reload()
    before = knowing.view()
    await shop.set_content(2)
    for _ in range(2):
        await cache.reload()
        await shop.touch()
    assert cache.view() is None
    assert await shop.alerts() == [UNREADABLE_ALERT]
    await knowing.reload()
    assert (knowing.view(), before is None) == (before, False)
    await shop.import_folder()
    await cache.reload()
    view: Any = cache.view()
    assert [each.active_until for each in view.versions] == [None, shop.clock.time - DAY]
    assert await shop.alerts() == []


async def test_unreadable_older_version_skipped_and_reported_once(shop: Shop) -> None:
    await shop.import_versions(3, 2, 1)
    await shop.set_content(2)
    cache = shop.cache(has_folder=False)
    with capture_logs() as lines:
        for _ in range(2):
            await cache.reload()
            await shop.touch()
    view: Any = cache.view()
    assert (len(view.versions), view.unreadable_until) == (2, (shop.clock.time - DAY,))
    assert [each["action"] for each in lines].count("catalogue_invalid") == 1
    assert await shop.alerts() == []


@pytest.mark.parametrize("error", [KeyError("x"), PermissionError(13, "Permission denied")])
async def test_stored_version_failing_to_parse_is_unreadable(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await shop.import_versions(1)
    monkeypatch.setattr(versions, "build_catalogue", failing(error))
    with pytest.raises(CatalogueError, match="cannot be read"):
        await load_newest_readable(shop.store)


@pytest.mark.parametrize("by", [None, "anna"])
async def test_folder_repairs_version_that_it_holds(shop: Shop, by: str | None) -> None:
    """Whoever imported it: its importer stays, and no other content takes its place."""
    await shop.import_folder(by=by)
    await shop.set_content(1)
    assert [(await shop.import_if_changed(DAY)).state for _ in range(2)] == [ACTIVATED, IN_FORCE]
    (healed,) = await shop.store.transact(lambda uow: uow.catalogues.active_since(shop.clock.time))
    assert (healed.since, healed.content, healed.by) == (shop.clock.time, pack_tables(read_tables(shop.folder)), by)


async def test_folder_leaves_damaged_import_alone(shop: Shop) -> None:
    await shop.import_folder(by="anna")
    await shop.set_content(1)
    shop.leave_out("001.002")
    assert (await shop.import_if_changed(DAY)).state is UNUSED


# --- how far back


async def purge(shop: Shop, **days: int) -> list[str]:
    await RetentionPurger(shop.store, shop.clock, RetentionSettings.model_validate(days), HORIZON.since).run()
    kept = await shop.store.transact(lambda uow: uow.catalogues.active_since(datetime.min.replace(tzinfo=UTC)))
    return [each.origin for each in reversed(kept)]


async def test_rule_lookback_follows_retention_setting(shop: Shop) -> None:
    """A version counts until it was replaced, and a cache may be a day old."""
    await shop.import_versions(40, 20, 9, 1)
    for days, count in ((7, 2), (10, 3), (30, 4)):
        assert len((await shop.loaded(VersionHorizon(days * DAY, DAY))).versions) == count


async def test_longer_contract_validity_extends_lookback(shop: Shop) -> None:
    rows = (CATALOGUE / "contracts.csv").read_text().splitlines()
    assert rows[2].endswith(",12")
    (shop.folder / "contracts.csv").write_text("\n".join([*rows[:2], rows[2].removesuffix("12") + "240"]) + "\n")
    await shop.import_folder(age=40)
    await shop.import_versions(12, 1)  # with twelve hours again
    view = await shop.loaded()
    assert len(view.versions) == 3
    assert len(list(view._visible_versions("C-200", shop.clock.time - 7 * DAY))) == 3


async def test_waiting_order_keeps_versions_of_its_time(shop: Shop) -> None:
    now = shop.clock.time
    await shop.import_versions(*range(400, 100, -20), 40, 20, *range(12, 0, -1))
    given: dict[str, Any] = {"key": OrderKey("R1"), "task_id": ResourceId("t1"), "state": OrderState.HELD, "changed_at": now}
    order = OrderRecord(seen_at=now - 130 * DAY, **given)
    await shop.store.transact(lambda uow: uow.orders.add(order))
    kept = await purge(shop, catalogue_days=1)
    assert kept[0] == "140"  # in force eight days before it was seen
    assert len((await shop.loaded()).versions) == len(kept)
    await shop.store.transact(lambda uow: uow.orders.save(replace(order, state=OrderState.REJECTED)))
    assert await purge(shop, catalogue_days=1) == [str(age) for age in range(10, 0, -1)]

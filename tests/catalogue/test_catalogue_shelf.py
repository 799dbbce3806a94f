"""The judge's shelf: versions from the store, also after a restart; notices; reload from the folder."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lab_agent.catalogue.load import read
from lab_agent.catalogue.turnaround import Available, Stopped
from lab_agent.catalogues import shelf as shelf_module
from lab_agent.catalogues.keeping import put_in_force, take_from
from lab_agent.catalogues.notices import Announcement, announce
from lab_agent.catalogues.packed import pack, unpack
from lab_agent.catalogues.shelf import CatalogueShelf
from lab_agent.store.memory import MemoryStore

SAMPLE = Path(__file__).parents[2] / "config" / "catalogue"
DAY = timedelta(days=1)


@dataclass
class Clock:
    at: datetime = datetime(2026, 11, 20, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLE, tmp_path / "catalogue"))


def without(folder: Path, item: str) -> None:
    path = folder / "contract_items.csv"
    path.write_text("".join(row for row in path.read_text().splitlines(keepends=True) if f",{item}," not in row))


async def test_a_restart_forgets_no_version(folder: Path) -> None:
    store, clock = MemoryStore(), Clock()
    first = CatalogueShelf(store, folder, DAY, clock)
    assert first.view() is None
    await first.reload()
    began = clock.at
    without(folder, "001.002")
    clock.at += timedelta(hours=2)
    await first.reload()
    for shelf in (first, CatalogueShelf(store, None, DAY, clock)):
        await shelf.refresh()
        view = shelf.view()
        assert view is not None
        assert [each.until for each in view.versions] == [None, began + timedelta(hours=2)]
        assert view.current("C-100", "001.002") is None
        assert view.versions[1].catalogue.item("C-100", "001.002") is not None


async def test_a_stop_of_today_is_known_to_the_judge(folder: Path) -> None:
    store, clock = MemoryStore(), Clock()
    shelf = CatalogueShelf(store, folder, DAY, clock)
    await shelf.reload()
    view = shelf.view()
    assert view is not None
    item = view.versions[0].catalogue.item("C-100", "001.001")
    assert item is not None
    said = Announcement(item="001.001", start=clock.at, end=clock.at + DAY)
    await announce(store, said, by=None, now=clock.at)
    assert await shelf.refresh() is True
    assert await shelf.refresh() is False
    view = shelf.view()
    assert view is not None
    assert isinstance(view.status("C-100", item, clock.at), Stopped)
    assert isinstance(view.status("C-100", item, clock.at + DAY), Available)


async def test_what_cannot_be_read_keeps_what_is_known(folder: Path) -> None:
    store, clock = MemoryStore(), Clock()
    shelf = CatalogueShelf(store, folder, DAY, clock)
    await shelf.reload()
    before = shelf.view()
    (folder / "items.csv").unlink()
    await shelf.reload()
    assert shelf.view() == before
    empty = CatalogueShelf(MemoryStore(), folder, DAY, clock)
    await empty.reload()
    assert empty.view() is None


async def test_the_watch_sees_what_another_process_imports(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "LOOK_EVERY", 0.01)
    store, clock = MemoryStore(), Clock()
    shelf = CatalogueShelf(store, folder, DAY, clock)
    watch = asyncio.create_task(shelf.watch())
    try:
        await put_in_force(store, read(SAMPLE), origin="x", by=None, now=clock.at)
        async with asyncio.timeout(20):
            while shelf.view() is None:  # noqa: ASYNC110 - a condition with a deadline
                await asyncio.sleep(0.01)
        without(folder, "001.002")
        shelf.ask()
        async with asyncio.timeout(20):
            while len(shelf.view().versions) < 2:  # type: ignore[union-attr]  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        watch.cancel()


async def test_two_processes_take_a_folder_over_once(folder: Path) -> None:
    store, clock = MemoryStore(), Clock()
    assert [await take_from(store, folder, now=clock.at) for _ in range(2)] == [True, False]
    assert len(await store.run(lambda uow: uow.catalogues.in_force_since(clock.at))) == 1


async def test_an_import_by_command_is_not_undone_by_the_folder_of_the_settings(folder: Path, tmp_path: Path) -> None:
    store, clock = MemoryStore(), Clock()
    await put_in_force(store, read(SAMPLE), origin="x", by=None, now=clock.at, over=tmp_path / "missing")
    without(folder, "001.002")
    tables = read(SAMPLE)
    await put_in_force(store, tables, origin="x", by=None, now=clock.at, over=folder)  # never taken from there before
    assert await take_from(store, folder, now=clock.at) is False
    without(folder, "001.001")
    assert await take_from(store, folder, now=clock.at) is True


def test_tables_are_packed_without_loss() -> None:
    tables = read(SAMPLE)
    again = unpack(pack(tables))
    for name, table in tables.items():
        cells = [{key: text for key, text in row.cells.items() if text} for row in table.rows]
        assert [{key: text for key, text in row.cells.items() if text} for row in again[name].rows] == cells

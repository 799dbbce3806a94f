"""All notices on one board: what was announced and what the sheet says, and how a test then stands."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue_service.notices import (
    NO_READABLE_CATALOGUE,
    ActiveNotice,
    Announcement,
    NoticeBoard,
    announce,
    lift_notices,
)
from lab_agent.catalogue_service.versions import activate
from tests.fakes.memory_store import MemoryStore
from tests.harness.paths import CATALOGUE

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY = timedelta(days=1)
ITEM = "001.001"


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    await activate(store, read_tables(CATALOGUE), origin="x", by=None, now=NOW)
    return store


async def say(store: MemoryStore, days: int, contract: str | None = None, hours: int | None = None, start: int = 0) -> None:
    delay = None if hours is None else Decimal(hours)
    begins = NOW + start * DAY
    said = Announcement(item=ITEM, start=begins, end=NOW + days * DAY, contract=contract, delay_hours=delay)
    await announce(store, said, by="anna", now=NOW)


async def import_with(store: MemoryStore, folder: Path, *rows: str) -> None:
    shutil.copytree(CATALOGUE, folder)
    with (folder / "notices.csv").open("a") as file:
        file.write("\n".join(rows) + "\n")
    await activate(store, read_tables(folder), origin="y", by=None, now=NOW)


async def keep(store: MemoryStore, *contents: bytes) -> tuple[bytes, ...]:
    """Put other bytes in the place of the kept versions, as a bad disk and a restored backup do; what was there."""

    def work(uow: Any) -> tuple[bytes, ...]:
        kept = uow.catalogues._data.catalogues
        before = tuple(each.content for each in kept)
        kept[:] = [replace(each, content=content) for each, content in zip(kept, contents, strict=True)]
        uow.commit()
        return before

    return await store.run(work)


def describe(standing: ActiveNotice | None) -> str:
    if standing is None:
        return "usual"
    source = "sheet" if standing.sheet else standing.by
    return f"{'stopped' if standing.delay_hours is None else standing.delay_hours} {standing.contract or 'all'} {source}"


async def test_board_reflects_later_notices_and_imports(store: MemoryStore, tmp_path: Path) -> None:
    """The board sees what is announced and imported after its first look."""
    board = NoticeBoard(store)
    assert (await board.load_overview(NOW)).notices == ()
    await say(store, 2)
    await import_with(store, tmp_path / "new", f"{ITEM},C-200,delayed,2026-11-01T00:00+03:00,2026-12-01T00:00+03:00,24,")
    seen = await board.load_overview(NOW)
    assert [describe(each) for each in seen.notices] == ["stopped all anna", "24 C-200 sheet"]
    assert [describe(each) for each in (await board.load_overview(NOW + 3 * DAY)).notices] == ["24 C-200 sheet"]
    assert (await board.load_overview(NOW + 30 * DAY)).notices == ()
    await lift_notices(store, ITEM, None, now=NOW)
    assert [describe(each) for each in (await board.load_overview(NOW)).notices] == ["24 C-200 sheet"]


async def test_catalogue_reread_only_after_a_change(store: MemoryStore) -> None:
    board = NoticeBoard(store)
    first = await board.load_overview(NOW)
    assert (await board.load_overview(NOW)).catalogue is first.catalogue
    await say(store, 1)
    assert (await board.load_overview(NOW)).catalogue is not first.catalogue


async def test_status_of_test_listed_by_contract(store: MemoryStore) -> None:
    await say(store, 2, "C-100")
    await say(store, 9, hours=5)
    await say(store, 9, "C-200", hours=7, start=5)
    seen = await NoticeBoard(store).load_overview(NOW)
    both = seen.test_status(ITEM)
    assert {code: describe(each) for code, each in both.current.items()} == {"C-100": "stopped C-100 anna", "C-200": "5 all anna"}
    assert [describe(each) for each in both.other_notices] == ["7 C-200 anna"]
    one = seen.test_status(ITEM, "C-100")
    assert [describe(each) for each in (*one.current.values(), *one.other_notices)] == ["stopped C-100 anna", "5 all anna"]
    assert not one.is_normal
    other = seen.test_status("001.002")
    assert list(other.current.values()) == [None]  # C-200 does not offer it
    assert other.other_notices == ()
    assert other.is_normal
    assert seen.test_status(ITEM, "C-300").current == {}


async def test_unreadable_catalogue_gives_staleness_warning_until_readable(store: MemoryStore, tmp_path: Path) -> None:
    await import_with(store, tmp_path / "new", f"{ITEM},,stopped,2026-11-01T00:00+03:00,2026-12-01T00:00+03:00,,")
    board = NoticeBoard(store)
    older, newer = await keep(store, b"damaged", b"damaged")
    seen = await board.load_overview(NOW)
    assert seen.catalogue is None
    assert seen.staleness_warning == NO_READABLE_CATALOGUE
    await keep(store, older, b"damaged")
    seen = await board.load_overview(NOW)
    assert "sheet notices were looked up in the one before it" in str(seen.staleness_warning)
    assert seen.catalogue is not None
    assert seen.notices == ()
    await keep(store, older, newer)
    seen = await board.load_overview(NOW)
    assert seen.staleness_warning is None
    assert [describe(each) for each in seen.notices] == ["stopped all sheet"]


async def test_no_catalogue_gives_no_sheet_notices() -> None:
    seen = await NoticeBoard(MemoryStore()).load_overview(NOW)
    assert (seen.notices, seen.catalogue, seen.staleness_warning) == ((), None, None)

"""All notices on one board: what was announced and what the sheet says, and how a test then stands."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from lab_agent.catalogue.notices import NO_READABLE_CATALOGUE, ActiveNotice, Announcement, NoticeBoard, announce, lift_notices
from tests.harness.databases import InlineStore
from tests.harness.paths import CATALOGUE
from tests.integration.catalogue_service.conftest import DAY, Shop

ITEM = "001.001"


@pytest.fixture
async def shop(shop: Shop) -> Shop:
    await shop.import_folder()
    return shop


async def say(shop: Shop, days: int, contract: str | None = None, hours: int | None = None, start: int = 0) -> None:
    now, delay = shop.clock.now(), None if hours is None else Decimal(hours)
    said = Announcement(item=ITEM, start=now + start * DAY, end=now + days * DAY, contract=contract, delay_hours=delay)
    await announce(shop.store, said, by="anna", now=now)


async def import_with(shop: Shop, folder: Path, row: str) -> None:
    """Import the sheet with one more notice on the test, for all of November."""
    shutil.copytree(CATALOGUE, folder)
    contract, kind, hours = row.split(",")
    with (folder / "notices.csv").open("a") as file:
        file.write(f"{ITEM},{contract},{kind},2026-11-01T00:00+03:00,2026-12-01T00:00+03:00,{hours},\n")
    await shop.import_folder(folder)


def describe(standing: ActiveNotice | None) -> str:
    if standing is None:
        return "usual"
    source = "sheet" if standing.sheet else standing.by
    return f"{'stopped' if standing.delay_hours is None else standing.delay_hours} {standing.contract or 'all'} {source}"


async def standing(shop: Shop, board: NoticeBoard, later: timedelta = timedelta()) -> list[str]:
    return [describe(each) for each in (await board.load_overview(shop.clock.now() + later)).notices]


async def test_board_reflects_later_notices_and_imports(shop: Shop, tmp_path: Path) -> None:
    """The board sees what is announced and imported after its first look, and reads the catalogue again only then."""
    board, now = NoticeBoard(shop.store), shop.clock.now()
    first = await board.load_overview(now)
    assert first.notices == ()
    assert (await board.load_overview(now)).catalogue is first.catalogue
    await say(shop, 2)
    assert (await board.load_overview(now)).catalogue is not first.catalogue
    await import_with(shop, tmp_path / "new", "C-200,delayed,24")
    assert await standing(shop, board) == ["stopped all anna", "24 C-200 sheet"]
    assert await standing(shop, board, 3 * DAY) == ["24 C-200 sheet"]
    assert await standing(shop, board, 30 * DAY) == []
    await lift_notices(shop.store, ITEM, None, now=now)
    assert await standing(shop, board) == ["24 C-200 sheet"]


async def test_status_of_test_listed_by_contract(shop: Shop) -> None:
    await say(shop, 2, "C-100")
    await say(shop, 9, hours=5)
    await say(shop, 9, "C-200", hours=7, start=5)
    seen = await NoticeBoard(shop.store).load_overview(shop.clock.now())
    both = seen.test_status(ITEM)
    assert {code: describe(each) for code, each in both.current.items()} == {"C-100": "stopped C-100 anna", "C-200": "5 all anna"}
    assert [describe(each) for each in both.other_notices] == ["7 C-200 anna"]
    one = seen.test_status(ITEM, "C-100")
    assert [describe(each) for each in (*one.current.values(), *one.other_notices)] == ["stopped C-100 anna", "5 all anna"]
    assert not one.is_normal
    other = seen.test_status("001.002")
    assert list(other.current.values()) == [None]  # C-200 does not offer it
    assert (other.other_notices, other.is_normal) == ((), True)
    assert seen.test_status(ITEM, "C-300").current == {}


async def test_unreadable_catalogue_gives_staleness_warning_until_readable(shop: Shop, tmp_path: Path) -> None:
    await import_with(shop, tmp_path / "new", ",stopped,")
    board, now = NoticeBoard(shop.store), shop.clock.now()
    newer, older = [each.content for each in await shop.store.transact(lambda uow: uow.catalogues.active_since(now - DAY))]
    for number in (1, 2):
        await shop.set_content(number)
    seen = await board.load_overview(now)
    assert (seen.catalogue, seen.staleness_warning) == (None, NO_READABLE_CATALOGUE)
    await shop.set_content(1, older)
    seen = await board.load_overview(now)
    assert seen.staleness_warning not in {None, NO_READABLE_CATALOGUE}
    assert (seen.catalogue is None, seen.notices) == (False, ())
    await shop.set_content(2, newer)
    assert (await board.load_overview(now)).staleness_warning is None
    assert await standing(shop, board) == ["stopped all sheet"]


async def test_no_catalogue_gives_no_sheet_notices() -> None:
    seen = await NoticeBoard(InlineStore()).load_overview(datetime(2026, 11, 20, tzinfo=UTC))
    assert (seen.notices, seen.catalogue, seen.staleness_warning) == ((), None, None)

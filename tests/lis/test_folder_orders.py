"""Orders as files: none twice, none lost, none concluded from a folder that is not ours."""

import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from lab_agent.codec import load_order
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.errors import LisRefusal, LisUnavailable
from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.folder.orders import OrderFolder
from lab_agent.lis.testing import MemoryInbox, make_order, submit_order

ORDER = make_order(1)
KEY = ORDER.key


@pytest.fixture
def orders(tmp_path: Path) -> OrderFolder:
    made = OrderFolder(tmp_path, "{key}.cancel.json", 0o640)
    made.open()
    return made


@pytest.fixture
async def adapter(tmp_path: Path) -> AsyncIterator[FolderAdapter]:
    for name in ("orders", "results"):
        (tmp_path / name).mkdir()
    settings = FolderSettings(orders=tmp_path / "orders", results=tmp_path / "results", file_name="order_{key}.txt")
    made = FolderAdapter(settings, "folder")
    await made.start(MemoryInbox())
    yield made
    await made.stop()


async def test_the_file_is_the_order_under_the_name_of_the_settings(adapter: FolderAdapter, tmp_path: Path) -> None:
    await submit_order(adapter, ORDER)
    path = tmp_path / "orders" / f"order_{KEY}.txt"
    assert load_order(path.read_bytes()) == ORDER
    assert path.stat().st_mode & 0o777 == 0o640


async def test_a_cancel_file_tells_all_that_was_not_taken_yet(adapter: FolderAdapter, tmp_path: Path) -> None:
    path = tmp_path / "orders" / f"order_{KEY}.cancel.txt"
    await adapter.cancel(KEY, (LineKey("L1"),), "withdrawn")
    await adapter.cancel(KEY, (LineKey("L2"),), "too late")
    tree = json.loads(path.read_bytes())
    assert tree["order"] == KEY
    assert {entry["line"]: entry["reason"] for entry in tree["lines"]} == {"L1": "withdrawn", "L2": "too late"}
    path.unlink()
    await adapter.cancel(KEY, (LineKey("L2"),), "too late")
    assert len(json.loads(path.read_bytes())["lines"]) == 1


def test_the_part_says_whether_it_was_handed_over(orders: OrderFolder) -> None:
    assert orders.was_received(KEY) is None
    orders.prepare(KEY, b"{}")
    assert orders.was_received(KEY) is False
    orders.submit(KEY, f"{KEY}.json")
    assert orders.was_received(KEY) is True
    (orders.folder / f"{KEY}.json").unlink()
    assert orders.was_received(KEY) is True


def test_what_the_lis_has_taken_is_never_written_again(orders: OrderFolder) -> None:
    orders.prepare(KEY, b"{}")
    orders.submit(KEY, f"{KEY}.json")
    (orders.folder / f"{KEY}.json").unlink()
    orders.submit(KEY, f"{KEY}.json")
    orders.prepare(KEY, b"{}")  # as after a restored backup, or by a worker that lost its claim
    orders.submit(KEY, f"{KEY}.json")
    assert [path.name for path in orders.folder.iterdir()] == [".handed"]


def test_a_crash_within_prepare_is_begun_anew(orders: OrderFolder) -> None:
    (orders.folder / f".{KEY}.part").write_bytes(b"old")  # the part was there, the note not yet
    orders.prepare(KEY, b"new")
    orders.submit(KEY, f"{KEY}.json")
    assert (orders.folder / f"{KEY}.json").read_bytes() == b"new"


def test_a_folder_in_which_nothing_was_prepared_is_not_believed(orders: OrderFolder, tmp_path: Path) -> None:
    orders.prepare(KEY, b"{}")
    for path in tmp_path.iterdir():  # the share is gone, its mount point is an empty folder
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert orders.was_received(KEY) is None
    with pytest.raises(LisUnavailable, match="is the share mounted"):
        orders.submit(KEY, f"{KEY}.json")


def test_a_late_double_of_a_file_that_is_there_goes_away(orders: OrderFolder) -> None:
    orders.prepare(KEY, b"{}")
    orders.submit(KEY, f"{KEY}.json")
    (orders.folder / f".{KEY}.part").write_bytes(b"late")
    orders.submit(KEY, f"{KEY}.json")
    assert (orders.folder / f"{KEY}.json").read_bytes() == b"{}"
    assert orders.was_received(KEY) is True


def test_old_debris_and_old_notes_are_cleared_away(orders: OrderFolder) -> None:
    debris, young = orders.folder / ".abc.tmp", orders.folder / ".def.tmp"
    notes = {name: orders.folder / ".handed" / name for name in ("OLD", "OLDPART", "YOUNG")}
    for path in (debris, young, *notes.values(), orders.folder / ".OLDPART.part"):
        path.touch()
    ages = {debris: 2 * 3600, notes["OLD"]: 401 * 86400, notes["OLDPART"]: 401 * 86400}
    for path, age in ages.items():
        os.utime(path, (time.time() - age,) * 2)
    orders.open()
    assert not debris.exists()
    assert young.exists()
    assert {name for name, note in notes.items() if note.exists()} == {"OLDPART", "YOUNG"}


@pytest.mark.parametrize("key", ["", "../x", "a/b", ".", "x" * 65, "ключ", "a\0b"])
def test_a_key_that_is_no_file_name_is_refused(orders: OrderFolder, key: str) -> None:
    refused = (lambda: orders.prepare(key, b""), lambda: orders.submit(key, "x.json"), lambda: orders.cancel(key, ["L"], "x"))
    for call in refused:
        with pytest.raises(LisRefusal):
            call()


async def test_a_read_only_folder_is_a_passing_failure(adapter: FolderAdapter, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "orders")
    with pytest.raises(LisUnavailable, match=r"a folder of \[lis.folder\] cannot be used"):
        await adapter.prepare(ORDER)
    assert await adapter.was_received(OrderKey(KEY)) is None


@pytest.mark.parametrize("name", ["order.json", "{key}/x.json", ".{key}.json", "{key}.part", "{key}{key}"])
def test_a_file_name_must_hold_the_key_and_be_plain(name: str) -> None:
    with pytest.raises(ValidationError, match="file_name"):
        FolderSettings(orders=Path("o"), results=Path("r"), file_name=name)

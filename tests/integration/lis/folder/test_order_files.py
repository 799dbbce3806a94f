"""Orders as files: none twice, none lost, none concluded from a folder that is not ours."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.folder.order_files import OrderFolder
from lab_agent.lis.serialization import load_order
from lab_agent.lis.testing import make_order, submit_order
from lab_agent.shared.errors import LisRejected, LisUnavailable
from lab_agent.shared.ids import LineKey
from tests.integration.lis.folder.conftest import Place

ORDER = make_order(1)
KEY = ORDER.key
NAME = "order_{key}.txt"


@pytest.fixture
def orders(tmp_path: Path) -> OrderFolder:
    made = OrderFolder(tmp_path, "{key}.cancel.json", 0o640)
    made.open()
    return made


async def test_order_written_under_configured_name(place: Place) -> None:
    await submit_order(await place.adapter(file_name=NAME), ORDER)
    path = place.orders / f"order_{KEY}.txt"
    assert load_order(path.read_bytes()) == ORDER
    notifications = json.loads(path.read_bytes())["notifications"]
    assert {one["channel"]: one["wanted"] for one in notifications} == {"sms": True, "email": False}
    assert path.stat().st_mode & 0o777 == 0o640


async def test_cancel_file_collects_lines_not_yet_taken(place: Place) -> None:
    """A cancel file lists every cancelled line as long as the LIS has not taken the file away."""
    adapter = await place.adapter(file_name=NAME)
    path = place.orders / f"order_{KEY}.cancel.txt"
    await adapter.cancel(KEY, (LineKey("L1"),), "withdrawn")
    await adapter.cancel(KEY, (LineKey("L2"),), "too late")
    tree = json.loads(path.read_bytes())
    assert tree["order"] == KEY
    assert {entry["line"]: entry["reason"] for entry in tree["lines"]} == {"L1": "withdrawn", "L2": "too late"}
    path.unlink()
    await adapter.cancel(KEY, (LineKey("L2"),), "too late")
    assert len(json.loads(path.read_bytes())["lines"]) == 1


def test_order_taken_by_lis_never_written_again(orders: OrderFolder) -> None:
    assert orders.was_received(KEY) is None
    orders.prepare(KEY, b"{}")
    assert orders.was_received(KEY) is False
    orders.submit(KEY, f"{KEY}.json")
    assert orders.was_received(KEY) is True
    (orders.folder / f"{KEY}.json").unlink()
    assert orders.was_received(KEY) is True
    orders.submit(KEY, f"{KEY}.json")
    orders.prepare(KEY, b"{}")  # as after a restored backup, or by a worker that lost its claim
    orders.submit(KEY, f"{KEY}.json")
    assert [path.name for path in orders.folder.iterdir()] == [".prepared"]


def test_crash_during_prepare_starts_over(orders: OrderFolder) -> None:
    (orders.folder / f".{KEY}.part").write_bytes(b"old")  # the part was there, the note not yet
    orders.prepare(KEY, b"new")
    orders.submit(KEY, f"{KEY}.json")
    assert (orders.folder / f"{KEY}.json").read_bytes() == b"new"


def test_folder_without_prepared_order_not_trusted(orders: OrderFolder, tmp_path: Path) -> None:
    """In a folder that is not the one where the order was prepared, nothing is concluded and nothing submitted."""
    orders.prepare(KEY, b"{}")
    for path in tmp_path.iterdir():  # the share is gone, its mount point is an empty folder
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for call in (lambda: orders.was_received(KEY), lambda: orders.submit(KEY, f"{KEY}.json")):
        with pytest.raises(LisUnavailable, match=r"lacks \.prepared.*mount that again"):
            call()
    orders.open()  # the agent was started again with it
    assert orders.was_received(KEY) is None
    with pytest.raises(LisUnavailable, match="is the share mounted"):
        orders.submit(KEY, f"{KEY}.json")


def test_share_away_for_a_moment_hides_no_order(orders: OrderFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The share goes before the part is looked for, and comes back before the marker is: the order waits in it all the same."""
    orders.prepare(KEY, b"{}")
    share, real_stat = orders.folder, os.stat
    elsewhere = share.with_name("elsewhere")

    def stat_without_share(path: Any, **options: Any) -> os.stat_result:
        if not str(path).endswith(".part"):
            return real_stat(path, **options)
        share.rename(elsewhere)
        share.mkdir()
        try:
            return real_stat(path, **options)
        finally:
            share.rmdir()
            elsewhere.rename(share)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", stat_without_share)
        assert orders.was_received(KEY) is False
    orders.submit(KEY, f"{KEY}.json")
    assert (share / f"{KEY}.json").read_bytes() == b"{}"


def test_nothing_written_to_folder_that_was_not_opened(orders: OrderFolder) -> None:
    """A disk that came in the place of the folder after the start may be one that no laboratory system looks at."""
    shutil.rmtree(orders.folder / ".prepared")
    for write in (lambda: orders.prepare(KEY, b"{}"), lambda: orders.cancel(KEY, ("L1",), "withdrawn")):
        with pytest.raises(LisUnavailable, match=r"lacks \.prepared.*restart the agent"):
            write()
    assert list(orders.folder.iterdir()) == []
    orders.open()
    orders.prepare(KEY, b"{}")
    assert orders.was_received(KEY) is False


def test_late_duplicate_part_file_removed(orders: OrderFolder) -> None:
    orders.prepare(KEY, b"{}")
    orders.submit(KEY, f"{KEY}.json")
    (orders.folder / f".{KEY}.part").write_bytes(b"late")
    orders.submit(KEY, f"{KEY}.json")
    assert (orders.folder / f"{KEY}.json").read_bytes() == b"{}"
    assert orders.was_received(KEY) is True


def test_old_temporary_files_and_markers_removed(orders: OrderFolder) -> None:
    debris, young = orders.folder / ".abc.tmp", orders.folder / ".def.tmp"
    notes = {name: orders.folder / ".prepared" / name for name in ("OLD", "OLDPART", "YOUNG")}
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
def test_invalid_order_key_rejected(orders: OrderFolder, key: str) -> None:
    for call in (lambda: orders.prepare(key, b""), lambda: orders.submit(key, "x"), lambda: orders.cancel(key, ["L"], "x")):
        with pytest.raises(LisRejected):
            call()

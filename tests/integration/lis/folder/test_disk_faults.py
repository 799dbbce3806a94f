"""The disk of the LIS's folders: full, read-only, or not mounted any more. Each is told for what it is, and passes."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.testing import MemoryInbox, make_order, submit_order
from lab_agent.shared.errors import LisDiskFull, LisUnavailable
from tests.harness.small_disk import fill, mounted_disk, remount_read_only, unmount
from tests.integration.lis.folder.conftest import Place

ORDER = make_order(1)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path):
        yield tmp_path


@pytest.fixture
async def adapter(share: Path) -> AsyncIterator[FolderAdapter]:
    (share / "results").mkdir()
    made = FolderAdapter(FolderSettings(orders=share, results=share / "results"), "main")
    await made.start(MemoryInbox())
    yield made
    await made.stop()


async def test_full_disk_told_as_such_and_passes(adapter: FolderAdapter, share: Path) -> None:
    filler = fill(share)
    with pytest.raises(LisUnavailable, match=r"the disk of a folder of \[lis.main\] is full: make room there") as caught:
        await adapter.prepare(ORDER)
    assert isinstance(caught.value, LisDiskFull)
    with pytest.raises(LisUnavailable):
        await adapter.cancel(ORDER.key, (ORDER.lines[0].key,), "withdrawn")
    filler.unlink()
    await submit_order(adapter, ORDER)
    assert f"{ORDER.key}.json" in names(share)


async def test_readonly_disk_told_as_such(adapter: FolderAdapter, share: Path) -> None:
    remount_read_only(share)
    with pytest.raises(LisUnavailable, match="it is read-only: mount it for writing") as caught:
        await adapter.prepare(ORDER)
    assert not isinstance(caught.value, LisDiskFull)


async def test_unmounted_share_gets_no_order(adapter: FolderAdapter, share: Path) -> None:
    unmount(share)
    with pytest.raises(LisUnavailable, match=r"not mounted any more|cannot be used"):
        await adapter.prepare(ORDER)
    (share / "results").mkdir()  # whoever cleans up makes the folder anew: it is still the wrong disk
    with pytest.raises(LisUnavailable, match=f"the share of the folder {share.name} is not mounted any more: mount it again"):
        await adapter.prepare(ORDER)
    with pytest.raises(LisUnavailable):
        await adapter.collect()
    assert names(share) == ["results"]
    with mounted_disk(share):
        for name in (".prepared", "results", "results/done", "results/failed"):
            (share / name).mkdir()
        await submit_order(adapter, ORDER)
        assert f"{ORDER.key}.json" in names(share)


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, LisDiskFull), (errno.EDQUOT, LisDiskFull), (errno.EIO, LisUnavailable)]
)
async def test_error_of_sync_judged_by_number(
    place: Place, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[LisUnavailable]
) -> None:
    """Also where nobody may mount a disk: network shares say only at the sync that they are full."""

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    adapter = await place.adapter()
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LisUnavailable) as caught:
        await adapter.prepare(ORDER)
    assert type(caught.value) is kind


async def test_check_that_was_cut_off_leaves_nothing_for_long(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = await place.adapter()

    def found() -> set[Path]:
        return {path for folder in (place.orders, place.results) for path in folder.rglob("*")}

    before = found()

    def stop_there(_path: Path, *, missing_ok: bool) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", stop_there)
        for _ in range(3):
            with pytest.raises(LisUnavailable):
                await adapter.check()
    assert len(found() - before) == 1
    await adapter.check()
    assert found() == before

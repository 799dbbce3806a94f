"""Writers that pause, and what is put into the results folder that is no result: nothing is lost or left in silence."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.folder import FolderAdapter
from lab_agent.lis.serialization import dump_message
from tests.integration.lis.folder.conftest import REPORT, Place

WHOLE = dump_message(REPORT)
COLUMNS = {"report_id": "Report", "barcode": "Tube", "effective": "Taken", "code": "Code", "value": "Value"}
HEAD = b"Report;Tube;Taken;Code;Value\r\n"
ROW = b"B1;42;2024-05-17T08:30:00Z;718-7;13.40\r\n"
ROWS = ROW + ROW.replace(b"B1", b"B2") + ROW.replace(b"B1", b"B3")
SETTLE = 0.02
PAUSE = 5 * SETTLE


async def start(place: Place, **more: Any) -> FolderAdapter:
    return await place.adapter(**{"settle": SETTLE, "writer_pause": 30, "csv": {"columns": COLUMNS}, **more})


@pytest.mark.parametrize(
    ("name", "whole", "cut", "count"),
    [
        *(("a.json", WHOLE, cut, 1) for cut in (0, 40, len(WHOLE) - 1)),
        *(("a.csv", (HEAD + ROWS).decode().encode(encoding), -20, 3) for encoding in ("utf-8", "utf-16")),
    ],
)
async def test_half_file_waits_for_its_writer(place: Place, name: str, whole: bytes, cut: int, count: int) -> None:
    await start(place)
    with (place.results / name).open("wb") as file:
        file.write(whole[:cut])
        file.flush()
        await place.collect_for(PAUSE)
        assert (place.inbox.messages, place.inbox.rejections) == ({}, {})
        file.write(whole[cut:])
    await place.collect_until(lambda: len(place.inbox.messages) == count)
    assert name != "a.json" or place.inbox.contents == [REPORT]


async def test_json_is_rejected_at_once_or_when_never_finished(place: Place) -> None:
    """Half a letter is no fault yet."""
    await start(place)
    place.put("b.json", '{"report_id": "Ж'.encode()[:-1])
    await place.collect_for(PAUSE)
    assert not place.inbox.rejections
    place.put("a.json", b'{"kind": "fax"}')
    await place.collect_until(lambda: place.inbox.rejections)
    assert set(place.names("failed")) >= {"a.json"}
    await start(place, writer_pause=0.1)
    await place.collect_until((place.results / "failed" / "b.json").exists)


async def test_csv_without_last_line_end_is_read_later(place: Place) -> None:
    """Of a writer that died within a row, half a value may be there: that report alone is refused."""
    await start(place, writer_pause=0.1)
    place.put("a.csv", (HEAD + ROWS).rstrip())
    await place.collect_until(lambda: len(place.inbox.messages) == 2)
    assert "no line end" in place.reasons()


async def test_csv_written_on_after_reading_is_read_again(place: Place) -> None:
    """A writer that pauses between two lines cannot be told by the file; what it adds later is not lost, and is told."""
    await start(place)
    with (place.results / "a.csv").open("wb") as file:
        file.write(HEAD + ROW)
        file.flush()
        await place.collect_until((place.results / "done" / "a.csv").exists)
        file.write(ROWS.removeprefix(ROW))
    await place.collect_until(lambda: set(place.report_ids()) == {"B1", "B2", "B3"})
    assert "a.csv:changed_after_reading" in place.inbox.rejections
    assert (place.results / "done" / "a.csv").read_bytes() == HEAD + ROWS


@pytest.mark.parametrize(("pattern", "marker"), [("{name}.ok", "a.csv.ok"), ("{stem}.fin", "a.fin")])
async def test_marker_says_when_file_is_complete(place: Place, pattern: str, marker: str) -> None:
    """That of an earlier file does not count; a missing one is told once."""
    await start(place, complete_marker=pattern, writer_pause=0.05)
    (place.results / marker).touch()
    os.utime(place.results / marker, (1_000_000_000, 1_000_000_000))
    place.put("a.csv", HEAD + ROW)
    await place.collect_until(lambda: "a.csv:no_marker" in place.inbox.rejections)
    place.inbox.rejections.clear()
    await place.collect_for(PAUSE)
    assert (place.inbox.messages, place.inbox.rejections) == ({}, {})
    place.put("a.csv", (HEAD + ROWS).rstrip(), age=1)
    (place.results / marker).touch()
    await place.collect_until(lambda: len(place.inbox.messages) == 3)
    assert place.names() == []


def put_link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere.json")


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


@pytest.mark.parametrize(
    ("name", "put", "finding"),
    [
        *(("a.json", put_link, "symbolic_link"), ("a.csv", put_link, "symbolic_link"), ("a.json", Path.mkdir, "folder")),
        *(("a.json", os.mkfifo, "not_a_file"), ("a.json", put_socket, "not_a_file")),
        *(("a.txt", put_link, None), (".a.json", put_link, None), ("2024-05-17", Path.mkdir, None)),
    ],
)
async def test_entry_that_is_not_read_is_told_once(
    place: Place, name: str, put: Callable[[Path], None], finding: str | None
) -> None:
    """And once more when it returns."""
    adapter = await start(place)
    expected = [f"{name}:{finding}"] if finding else []
    for _ in range(2):
        put(place.results / name)
        await adapter.collect()
        assert list(place.inbox.rejections) == expected
        assert not any(name in reason for reason in place.inbox.rejections.values())  # a file name may name a patient
        assert (f"{name}.reason.txt" in place.names("failed")) is bool(finding)
        place.inbox.rejections.clear()
        await adapter.collect()
        assert not place.inbox.rejections
        if put is Path.mkdir:
            (place.results / name).rmdir()
        else:
            (place.results / name).unlink()
        await adapter.collect()


async def test_results_in_a_subfolder_are_told(place: Place) -> None:
    """A subfolder may hold documents; once a result lies there, somebody is waiting for it."""
    adapter = await start(place)
    (place.results / "today").mkdir()
    place.put("today/a.pdf", b"%PDF")
    await adapter.collect()
    assert not place.inbox.rejections
    place.put("today/a.json", WHOLE)
    await adapter.collect()
    assert list(place.inbox.rejections) == ["today:results_in_subfolder"]

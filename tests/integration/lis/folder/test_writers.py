"""Writers that pause, and what is put into the results folder that is no result: nothing is lost or left in silence."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lab_agent.domain.lab_messages import LabReport
from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.testing import MemoryInbox, make_order, make_report
from lab_agent.serialization import dump_message
from tests.harness.clock import DEADLINE

REPORT = make_report(1, make_order(1))
WHOLE = dump_message(REPORT)
COLUMNS = {"report_id": "Report", "barcode": "Tube", "effective": "Taken", "code": "Code", "value": "Value"}
HEAD = b"Report;Tube;Taken;Code;Value\r\n"
ROW = b"B1;42;2024-05-17T08:30:00Z;718-7;13.40\r\n"
ROWS = ROW + ROW.replace(b"B1", b"B2") + ROW.replace(b"B1", b"B3")
SETTLE = 0.02

Start = Callable[..., Awaitable[FolderAdapter]]


@pytest.fixture
def inbox() -> MemoryInbox:
    return MemoryInbox()


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
async def start(tmp_path: Path, results: Path, inbox: MemoryInbox) -> AsyncIterator[Start]:
    started: list[FolderAdapter] = []

    async def make(**more: Any) -> FolderAdapter:
        for folder in (tmp_path / "orders", results):
            folder.mkdir(exist_ok=True)
        given = {"orders": tmp_path / "orders", "results": results, "settle": SETTLE, "writer_pause": 30}
        adapter = FolderAdapter(FolderSettings.model_validate({**given, "csv": {"columns": COLUMNS}, **more}), "folder")
        await adapter.start(inbox)
        started.append(adapter)
        return adapter

    yield make
    for adapter in started:
        await adapter.stop()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def collect_until(adapter: FolderAdapter, ready: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not ready():
        assert time.monotonic() < end
        await adapter.collect()
        await asyncio.sleep(0.005)


async def collect_for(adapter: FolderAdapter, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await adapter.collect()
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("cut", [0, 1, 40, len(WHOLE) - 1])
async def test_half_json_waits_for_its_writer(start: Start, inbox: MemoryInbox, results: Path, cut: int) -> None:
    adapter = await start()
    with (results / "a.json").open("wb") as file:
        file.write(WHOLE[:cut])
        file.flush()
        await collect_for(adapter, 5 * SETTLE)
        assert not inbox.rejections
        file.write(WHOLE[cut:])
    await collect_until(adapter, lambda: bool(inbox.messages))
    assert inbox.contents == [REPORT]


async def test_half_letter_of_json_waits_for_its_writer(start: Start, inbox: MemoryInbox, results: Path) -> None:
    adapter = await start()
    half = '{"report_id": "Ж'.encode()[:-1]
    (results / "a.json").write_bytes(half)
    await collect_for(adapter, 5 * SETTLE)
    assert not inbox.rejections


async def test_json_never_finished_is_rejected(start: Start, inbox: MemoryInbox, results: Path) -> None:
    adapter = await start(writer_pause=0.1)
    (results / "a.json").write_bytes(WHOLE[:40])
    await collect_until(adapter, lambda: bool(inbox.rejections))
    assert (results / "failed" / "a.json").exists()


async def test_whole_json_with_a_fault_is_rejected_at_once(start: Start, inbox: MemoryInbox, results: Path) -> None:
    adapter = await start()
    (results / "a.json").write_bytes(b'{"kind": "fax"}')
    await collect_until(adapter, lambda: bool(inbox.rejections))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_csv_cut_within_a_line_waits(start: Start, inbox: MemoryInbox, results: Path, encoding: str) -> None:
    adapter = await start()
    data = (HEAD + ROWS).decode().encode(encoding)
    with (results / "a.csv").open("wb") as file:
        file.write(data[:-20])
        file.flush()
        await collect_for(adapter, 5 * SETTLE)
        assert (inbox.messages, inbox.rejections) == ({}, {})
        file.write(data[-20:])
    await collect_until(adapter, lambda: len(inbox.messages) == 3)


async def test_csv_without_last_line_end_is_read_later(start: Start, inbox: MemoryInbox, results: Path) -> None:
    """Of a writer that died within a row, half a value may be there: that report alone is refused."""
    adapter = await start(writer_pause=0.1)
    (results / "a.csv").write_bytes((HEAD + ROWS).rstrip())
    await collect_until(adapter, lambda: len(inbox.messages) == 2)
    (reason,) = (results / "failed").glob("*.reason.txt")
    assert "no line end" in reason.read_text()


async def test_csv_written_on_after_reading_is_read_again(start: Start, inbox: MemoryInbox, results: Path) -> None:
    """A writer that pauses between two lines cannot be told by the file; what it adds later is not lost, and is told."""
    adapter = await start()
    with (results / "a.csv").open("wb") as file:
        file.write(HEAD + ROW)
        file.flush()
        await collect_until(adapter, (results / "done" / "a.csv").exists)
        file.write(ROWS.removeprefix(ROW))
    await collect_until(adapter, lambda: len({report_id(one) for one in inbox.contents}) == 3)
    assert "a.csv:changed_after_reading" in inbox.rejections
    assert (results / "done" / "a.csv").read_bytes() == HEAD + ROWS


def report_id(message: object) -> str:
    assert isinstance(message, LabReport)
    return message.report_id


@pytest.mark.parametrize(("pattern", "marker"), [("{name}.ok", "a.csv.ok"), ("{stem}.fin", "a.fin")])
async def test_marker_says_when_file_is_complete(
    start: Start, inbox: MemoryInbox, results: Path, pattern: str, marker: str
) -> None:
    adapter = await start(complete_marker=pattern)
    (results / "a.csv").write_bytes(HEAD + ROW)
    await collect_for(adapter, 5 * SETTLE)
    (results / "a.csv").write_bytes((HEAD + ROWS).rstrip())
    await collect_for(adapter, 5 * SETTLE)
    assert not inbox.messages
    (results / marker).touch()
    await collect_until(adapter, lambda: len(inbox.messages) == 3)
    assert names(results) == ["done", "failed"]


async def test_marker_of_an_earlier_file_does_not_count(start: Start, inbox: MemoryInbox, results: Path) -> None:
    adapter = await start(complete_marker="{name}.ok")
    (results / "a.csv.ok").touch()
    os.utime(results / "a.csv.ok", (1_000_000_000, 1_000_000_000))
    (results / "a.csv").write_bytes(HEAD + ROWS)
    await collect_for(adapter, 5 * SETTLE)
    assert not inbox.messages


async def test_missing_marker_is_told_once(start: Start, inbox: MemoryInbox, results: Path) -> None:
    adapter = await start(complete_marker="{name}.ok", writer_pause=0.05)
    (results / "a.csv").write_bytes(HEAD + ROWS)
    await collect_until(adapter, lambda: "a.csv:no_marker" in inbox.rejections)
    inbox.rejections.clear()
    await collect_for(adapter, 5 * SETTLE)
    assert not inbox.rejections


def put_link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere.json")


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


@pytest.mark.parametrize(
    ("name", "put", "finding"),
    [
        ("a.json", put_link, "symbolic_link"),
        ("a.csv", put_link, "symbolic_link"),
        ("a.json", os.mkfifo, "not_a_file"),
        ("a.json", put_socket, "not_a_file"),
        ("a.json", Path.mkdir, "folder"),
        ("a.txt", put_link, None),
        (".a.json", put_link, None),
        ("2024-05-17", Path.mkdir, None),
    ],
)
async def test_entry_that_is_not_read_is_told_once(
    start: Start, inbox: MemoryInbox, results: Path, name: str, put: Callable[[Path], None], finding: str | None
) -> None:
    adapter = await start()
    put(results / name)
    expected = [f"{name}:{finding}"] if finding else []
    await adapter.collect()
    assert list(inbox.rejections) == expected
    assert not any(name in reason for reason in inbox.rejections.values())  # a file name may name a patient
    assert names(results / "failed") == [f"{name}.reason.txt"] * len(expected)
    inbox.rejections.clear()
    await adapter.collect()
    assert not inbox.rejections


async def test_results_in_a_subfolder_are_told(start: Start, inbox: MemoryInbox, results: Path) -> None:
    """A subfolder may hold documents; once a result lies there, somebody is waiting for it."""
    adapter = await start()
    (results / "today").mkdir()
    (results / "today" / "a.pdf").write_bytes(b"%PDF")
    await adapter.collect()
    assert not inbox.rejections
    (results / "today" / "a.json").write_bytes(WHOLE)
    await adapter.collect()
    assert list(inbox.rejections) == ["today:results_in_subfolder"]


async def test_removed_entry_is_told_when_it_returns(start: Start, inbox: MemoryInbox, results: Path) -> None:
    adapter = await start()
    for _ in range(2):
        put_link(results / "a.json")
        await adapter.collect()
        assert list(inbox.rejections) == ["a.json:symbolic_link"]
        inbox.rejections.clear()
        (results / "a.json").unlink()
        await adapter.collect()


@pytest.mark.parametrize("wrong", ["ok", "{name}", "{key}.ok", "{name}{stem}.ok", "../{name}.ok"])
def test_invalid_complete_marker_rejected(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ValidationError):
        FolderSettings.model_validate({"orders": tmp_path, "results": tmp_path, "complete_marker": wrong})


def test_writer_pause_follows_settle(tmp_path: Path) -> None:
    given = {"orders": tmp_path, "results": tmp_path}
    assert FolderSettings.model_validate(given).longest_pause == 60
    assert FolderSettings.model_validate({**given, "settle": 0}).longest_pause == 0
    assert FolderSettings.model_validate({**given, "writer_pause": 5}).longest_pause == 5

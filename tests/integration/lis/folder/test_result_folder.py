"""The drop folder: what is read, when, in what order, and where it goes."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab_agent.domain.lab_messages import Document, LabMessage, LabReport, ReportedObservation
from lab_agent.domain.values import Coding
from lab_agent.errors import LisUnavailable, StoreUnreachableError
from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.testing import MemoryInbox, make_correction, make_order, make_report
from lab_agent.serialization import dump_message
from tests.harness.clock import DEADLINE
from tests.harness.documents import PDF, PNG, make_pdf

REPORT = make_report(1, make_order(1))


class Place:
    """A folder adapter on two folders, with an inbox in memory."""

    def __init__(self, folder: Path) -> None:
        self.orders, self.results = folder / "orders", folder / "results"
        self.orders.mkdir()
        self.results.mkdir()
        self.inbox = MemoryInbox()
        self.adapters: list[FolderAdapter] = []

    async def adapter(self, **settings: Any) -> FolderAdapter:
        given = {"orders": self.orders, "results": self.results, "settle": 0, **settings}
        adapter = FolderAdapter(FolderSettings(**given), "folder")
        await adapter.start(self.inbox)
        self.adapters.append(adapter)
        return adapter

    def put(self, name: str, content: LabMessage | bytes = REPORT, *, age: float = 0.0) -> Path:
        path = self.results / name
        path.write_bytes(content if isinstance(content, bytes) else dump_message(content))
        moment = time.time() - age
        os.utime(path, (moment, moment))
        return path

    def names(self, folder: str = "") -> list[str]:
        return sorted(path.name for path in (self.results / folder).iterdir() if path.is_file())

    def reasons(self) -> str:
        return "\n".join(path.read_text() for path in (self.results / "failed").glob("*.reason.txt"))


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    yield made
    for adapter in made.adapters:
        await adapter.stop()


def with_file(*names: str) -> LabReport:
    return replace(REPORT, documents=tuple(Document(file=name) for name in names))


class Overtaken(MemoryInbox):
    """While the first message is being kept, the LIS puts another file in the place of the one that was read."""

    place: "Place"

    async def accept(self, message: str, content: LabMessage) -> bool:
        new = await MemoryInbox.accept(self, message, content)
        if len(self.messages) == 1:
            self.place.put("b.tmp", make_correction(REPORT, "1.30")).replace(self.place.results / "a.json")
        return new


async def test_oldest_file_read_first(place: Place) -> None:
    adapter = await place.adapter()
    for name, age in (("b.json", 10.0), ("a.json", 5.0), ("c.json", 20.0)):
        place.put(name, make_correction(REPORT, f"{age}"), age=age)
    assert await adapter.collect() == 3
    values = [str(one.observations[0].value_quantity.value) for one in place.inbox.contents]  # type: ignore[union-attr]
    assert values == ["20.0", "10.0", "5.0"]
    assert place.names("done") == ["a.json", "b.json", "c.json"]


async def test_changing_file_left_alone(place: Place) -> None:
    adapter = await place.adapter(settle=0.05)
    place.put("a.json", dump_message(REPORT)[:40])
    assert await adapter.collect() == 0
    for size in (60, 80, 100):
        await asyncio.sleep(0.06)  # longer than the settle time: only the change itself keeps it from being read
        place.put("a.json", dump_message(REPORT)[:size])
        assert await adapter.collect() == 0
    place.put("a.json", REPORT)
    await collected(adapter, place, 1)
    assert place.names("failed") == []


async def collected(adapter: FolderAdapter, place: Place, count: int) -> None:
    end = time.monotonic() + DEADLINE
    while len(place.inbox.messages) < count:
        assert time.monotonic() < end
        await adapter.collect()
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("name", [".a.json", "a.json.part", "a.json.tmp", "a.json~", "a.part", "notes.txt"])
async def test_temporary_and_foreign_names_left_alone(place: Place, name: str) -> None:
    adapter = await place.adapter()
    place.put(name)
    assert await adapter.collect() == 0
    assert place.names() == [name]


async def test_links_pipes_and_folders_left_alone(place: Place, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_bytes(dump_message(REPORT))
    (place.results / "link.json").symlink_to(secret)
    (place.results / "folder.json").mkdir()
    os.mkfifo(place.results / "pipe.json")
    adapter = await place.adapter()
    assert await adapter.collect() == 0
    assert not place.inbox.messages


@pytest.mark.parametrize(
    "name", ["a b.json", "a\nb.json", "Ünal.json", "x" * 250 + ".json", "-rf.json", "$(x).json", "%s.json", "..json.json"]
)
async def test_hostile_file_names_do_no_harm(place: Place, name: str) -> None:
    adapter = await place.adapter()
    place.put(name)
    if name.startswith("."):
        assert await adapter.collect() == 0
        return
    assert await adapter.collect() == 1
    (message,) = place.inbox.messages
    assert message.isprintable()
    assert place.names() == []
    assert len(place.names("done")) == 1


async def test_undecodable_file_name_does_no_harm(place: Place) -> None:
    place.put(os.fsdecode(b"\xff\xfe.json"))
    adapter = await place.adapter()
    assert await adapter.collect() == 1
    next(iter(place.inbox.messages)).encode("utf-8")


async def test_invalid_file_does_not_block_valid_ones(place: Place) -> None:
    adapter = await place.adapter(max_result_bytes=5_000)
    place.put("1.json", b'{"report_id": "X", "statsu": "final", "issued": "yesterday"}', age=9)
    place.put("2.json", b"\x00\xff", age=8)
    place.put("3.json", b"[" * 6_000, age=7)
    place.put("4.json", REPORT, age=6)
    assert await adapter.collect() == 1
    assert place.names() == []
    assert place.names("failed") == [
        "1.json", "1.json.reason.txt", "2.json", "2.json.reason.txt", "3.json", "3.json.reason.txt",
    ]  # fmt: skip
    reason = (place.results / "failed" / "1.json.reason.txt").read_text()
    for part in ("did you mean 'status'?", "status: ", "issued: "):
        assert part in reason
    assert "yesterday" not in reason
    assert "larger than 5000 bytes" in (place.results / "failed" / "3.json.reason.txt").read_text()


async def test_duplicate_json_key_fails_file_by_name(place: Place) -> None:
    """A JSON key that is there twice fails the file, and the reason names the key."""
    adapter = await place.adapter()
    place.put("1.json", dump_message(REPORT).replace(b'"status"', b'"order":"R1","status"', 1))
    place.put("2.json", dump_message(REPORT).replace(b'"report_id":"', b'"report_id":"\\t', 1))
    assert await adapter.collect() == 0
    assert "order: duplicate key" in place.reasons()
    assert "report_id: holds a control character" in place.reasons()


async def test_message_refused_by_store_does_not_block_others(place: Place) -> None:
    adapter = await place.adapter()
    place.put("1.json", age=9)
    place.put("2.json", age=8)
    place.inbox.fail_before = 2  # both together, then the first one by itself
    with pytest.raises(StoreUnreachableError):
        await adapter.collect()
    assert place.names() == ["1.json"]
    assert await adapter.collect() == 1
    assert place.names("done") == ["1.json", "2.json"]


async def test_done_and_failed_folders_never_overwritten(place: Place) -> None:
    adapter = await place.adapter()
    for digits in ("1", "2", "3"):
        place.put("a.json", make_correction(REPORT, digits))
        assert await adapter.collect() == 1
    bodies = {path.read_bytes() for path in (place.results / "done").iterdir()}
    assert len(bodies) == 3


async def test_file_kept_before_crash_only_moved(place: Place) -> None:
    adapter = await place.adapter()
    place.put("a.json", with_file("a.pdf"), age=5)
    place.put("a.pdf", PDF, age=6)
    place.inbox.fail_after = 1
    with pytest.raises(LisUnavailable):
        await adapter.collect()
    assert place.names() == ["a.json", "a.pdf"]
    again = await place.adapter()
    assert await again.collect() == 0
    assert place.names() == []
    assert place.names("done") == ["a.json", "a.pdf"]
    assert len(place.inbox.messages) == 1


async def test_file_replaced_during_read_is_read_too(place: Place) -> None:
    place.inbox = Overtaken()
    place.inbox.place = place
    adapter = await place.adapter()
    place.put("a.json", make_correction(REPORT, "1.20"))
    assert await adapter.collect() == 1
    assert place.names() == ["a.json"]
    assert await adapter.collect() == 1
    values = [str(one.observations[0].value_quantity.value) for one in place.inbox.contents]  # type: ignore[union-attr]
    assert values == ["1.20", "1.30"]


async def test_file_claimed_by_dead_process_returned(place: Place) -> None:
    place.put(".claimed-0a1b2c3d-a.json")
    adapter = await place.adapter()
    assert await adapter.collect() == 1
    assert place.names("done") == ["a.json"]


async def test_documents_read_and_moved(place: Place) -> None:
    adapter = await place.adapter()
    (place.results / "scans").mkdir()
    place.put("scans/b.pdf", make_pdf("b"))
    place.put("a.pdf", PDF)
    place.put("a.json", with_file("a.pdf", "scans/b.pdf"))
    assert await adapter.collect() == 1
    (report,) = place.inbox.contents
    assert isinstance(report, LabReport)
    assert [(one.content, one.file) for one in report.documents] == [(PDF, None), (make_pdf("b"), None)]
    assert place.names("done") == ["a.json", "a.pdf", "b.pdf"]


@pytest.mark.parametrize("name", ["a.pdf", "scans/a.png"])
async def test_report_waits_for_document_being_written(place: Place, name: str) -> None:
    whole = PDF if name.endswith("pdf") else PNG
    adapter = await place.adapter(writer_pause=DEADLINE)
    (place.results / "scans").mkdir()
    for size in (len(whole) // 2, len(whole) - 4):
        place.put(name, whole[:size])
        place.put("a.json", with_file(name))
        assert await adapter.collect() == 0
    place.put(name, whole)
    assert await adapter.collect() == 1
    (report,) = place.inbox.contents
    assert isinstance(report, LabReport)
    assert report.documents[0].content == whole


@pytest.mark.parametrize("settings", [{"writer_pause": 0}, {"complete_marker": "{stem}.ok"}])
async def test_document_that_stays_cut_off_is_taken(place: Place, settings: dict[str, Any]) -> None:
    """Nothing is lost: the report is held for a person, with the document as it came."""
    adapter = await place.adapter(**settings)
    place.put("a.pdf", PDF[:100])
    place.put("a.json", with_file("a.pdf"))
    place.put("a.ok", b"")
    assert await adapter.collect() == 1


async def test_report_waits_for_document_others_proceed(place: Place) -> None:
    adapter = await place.adapter()
    place.put("a.json", with_file("a.pdf"), age=9)
    place.put("b.json", make_correction(REPORT, "7"))
    assert await adapter.collect() == 1
    assert place.names() == ["a.json"]
    place.put("a.pdf", b"")
    assert await adapter.collect() == 0
    place.put("a.pdf", PDF)
    assert await adapter.collect() == 1
    assert place.names() == []


async def test_missing_document_fails_report(place: Place) -> None:
    adapter = await place.adapter(document_wait=0)
    place.put("a.json", with_file("a.pdf"))
    assert await adapter.collect() == 0
    assert place.names("failed") == ["a.json", "a.json.reason.txt"]
    assert "documents[0].file: did not arrive in time" in place.reasons()


@pytest.mark.parametrize(
    "name",
    [
        "../secret.pdf",
        "/etc/hostname",
        "a/../../secret.pdf",
        "..\\secret.pdf",
        "C:secret",
        "out/secret.pdf",
        "done/x.pdf",
        "l.pdf",
    ],
)
async def test_document_outside_folder_rejected(place: Place, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for path in (tmp_path / "secret.pdf", outside / "secret.pdf"):
        path.write_bytes(b"secret")
    (place.results / "out").symlink_to(outside)
    (place.results / "l.pdf").symlink_to(tmp_path / "secret.pdf")
    adapter = await place.adapter()
    (place.results / "done" / "x.pdf").write_bytes(b"another patient's")
    place.put("a.json", with_file(name))
    assert await adapter.collect() == 0
    assert not place.inbox.messages
    assert "documents[0].file: " in place.reasons()
    assert (tmp_path / "secret.pdf").exists()


async def test_attached_value_file_is_read(place: Place) -> None:
    adapter = await place.adapter()
    seen = ReportedObservation(code=Coding(code="11502-2"), value_attachment=Document(file="curve.png", content_type="image/png"))
    place.put("curve.png", b"PNG")
    place.put("a.json", replace(REPORT, observations=(seen,)))
    assert await adapter.collect() == 1
    (report,) = place.inbox.contents
    assert isinstance(report, LabReport)
    assert report.observations[0].value_attachment == Document(content=b"PNG", content_type="image/png")


async def test_documents_too_large_together_fail_report(place: Place) -> None:
    adapter = await place.adapter(max_document_bytes=10)
    place.put("a.pdf", b"123456")
    place.put("b.pdf", b"123456")
    place.put("a.json", with_file("a.pdf", "b.pdf"))
    assert await adapter.collect() == 0
    assert "documents[1].file: is too large" in place.reasons()


async def test_configured_time_zone_completes_times(place: Place) -> None:
    tree = {**json.loads(dump_message(REPORT)), "issued": "2024-05-17T08:30:00"}
    adapter = await place.adapter()
    place.put("a.json", json.dumps(tree).encode())
    assert await adapter.collect() == 0
    assert "issued: is a time without a zone" in place.reasons()
    moscow = await place.adapter(time_zone="Europe/Moscow")
    place.put("a.json", json.dumps(tree).encode())
    assert await moscow.collect() == 1
    (report,) = place.inbox.contents
    assert isinstance(report, LabReport)
    assert report.issued.isoformat() == "2024-05-17T08:30:00+03:00"


@pytest.mark.parametrize("missing", ["orders", "results"])
async def test_missing_folder_reported_as_unavailable(place: Place, missing: str) -> None:
    getattr(place, missing).rmdir()
    adapter = FolderAdapter(FolderSettings(orders=place.orders, results=place.results), "folder")
    with pytest.raises(LisUnavailable, match=missing):
        await adapter.start(place.inbox)
    with pytest.raises(LisUnavailable, match=missing):
        await adapter.check()
    await adapter.stop()


async def test_collection_limited_to_one_batch(place: Place) -> None:
    adapter = await place.adapter(batch=2)
    for seed in range(5):
        place.put(f"{seed}.json", make_correction(REPORT, str(seed)))
    assert [await adapter.collect() for _ in range(4)] == [2, 2, 1, 0]


async def test_collection_cancelled_anytime_loses_nothing(place: Place) -> None:
    adapter = await place.adapter()
    for seed in range(30):
        place.put(f"{seed:02d}.json", make_correction(REPORT, str(seed)))
    for pause in range(40):
        look = asyncio.ensure_future(adapter.collect())
        for _ in range(pause):
            await asyncio.sleep(0)
        look.cancel()
        await asyncio.wait({look})
    await collected(adapter, place, 30)
    end = time.monotonic() + DEADLINE
    while place.names():
        assert time.monotonic() < end
        await adapter.collect()
        await asyncio.sleep(0.005)
    assert len(place.inbox.messages) == 30
    assert place.names("failed") == []
    assert len([path for path in (place.results / "done").iterdir() if path.stat().st_size]) == 30


def refused(*names: str) -> bytes:
    """A report with a mistake that names these documents; the last one as a value."""
    *own, value = names
    attached = {"code": {"code": "x"}, "value_attachment": {"file": value}}
    tree = {"report_id": "R", "statsu": "final", "documents": [{"file": one} for one in own], "observations": [attached]}
    return json.dumps(tree).encode()


async def test_failed_reports_documents_moved_along(place: Place) -> None:
    adapter = await place.adapter()
    for name in ("a.pdf", "b.pdf", "nobodys.pdf"):
        place.put(name, b"%PDF", age=20)
    (place.results / "failed").mkdir(exist_ok=True)
    (place.results / "failed" / "a.pdf").write_bytes(b"an older one")
    outside = place.results.parent / "outside.pdf"
    outside.write_bytes(b"%PDF")
    place.put("1.json", refused("a.pdf", "../outside.pdf", "missing.pdf", "b.pdf"), age=9)
    await adapter.collect()
    assert place.names() == ["nobodys.pdf"]
    assert len(place.names("failed")) == 5
    assert (place.results / "failed" / "a.pdf").read_bytes() == b"an older one"
    assert outside.exists()
    assert "Its document b.pdf was moved here too, as b.pdf" in place.reasons()
    assert "Its document a.pdf was moved here too, as a" in place.reasons()


async def test_document_named_by_another_report_stays(place: Place) -> None:
    adapter = await place.adapter(settle=0)
    place.put("a.pdf", b"%PDF", age=20)
    place.put("1.json", refused("a.pdf"), age=9)
    place.put("2.json", with_file("a.pdf"), age=8)
    assert await adapter.collect() == 1
    assert place.names() == []
    assert place.names("done") == ["2.json", "a.pdf"]
    assert "a.pdf was not moved" in place.reasons()


async def test_documents_kept_while_another_report_unreadable(place: Place) -> None:
    adapter = await place.adapter(settle=60)
    place.put("a.pdf", b"%PDF", age=200)
    place.put("1.json", refused("a.pdf"), age=100)
    place.put("2.json", b'{"report_id": "half', age=0)
    await adapter.collect()
    assert "a.pdf" in place.names()


async def test_many_files_are_committed_together_in_their_order(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit waits for the disk: files that came at once share one, and what is bad among them is set aside alone."""
    adapter = await place.adapter()
    for number in range(30):
        place.put(f"{number:02}.json", refused("x.pdf") if number == 7 else REPORT, age=100 - number)
    commits: list[int] = []

    async def accept_all(inbox: MemoryInbox, messages: Any, whole: Any = MemoryInbox.accept_all) -> Any:
        commits.append(len(messages))
        return await whole(inbox, messages)

    monkeypatch.setattr(MemoryInbox, "accept_all", accept_all)
    assert await adapter.collect() == 29
    assert commits == [24, 5]
    assert place.names("failed") == ["07.json", "07.json.reason.txt"]
    assert len(place.names("done")) == 29

"""The drop folder: what is read, when, in what order, and where it goes."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.folder import FolderAdapter
from lab_agent.lis.lab_messages import Document, LabMessage, LabReport, ReportedObservation
from lab_agent.lis.serialization import dump_message
from lab_agent.lis.testing import MemoryInbox, make_correction
from lab_agent.shared.errors import LisUnavailable, StoreUnreachableError
from lab_agent.shared.values import Coding
from tests.harness.clock import DEADLINE
from tests.harness.documents import PDF, PNG, make_pdf
from tests.integration.lis.folder.conftest import REPORT, Place


def with_file(*names: str) -> LabReport:
    return replace(REPORT, documents=tuple(Document(file=name) for name in names))


def values(place: Place) -> list[str]:
    return [str(one.observations[0].value_quantity.value) for one in place.inbox.contents]  # type: ignore[union-attr]


async def test_oldest_file_read_first_and_done_never_overwritten(place: Place) -> None:
    adapter = await place.adapter()
    for name, age in (("b.json", 10.0), ("a.json", 5.0), ("c.json", 20.0)):
        place.put(name, make_correction(REPORT, f"{age}"), age=age)
    assert await adapter.collect() == 3
    assert values(place) == ["20.0", "10.0", "5.0"]
    assert place.names("done") == ["a.json", "b.json", "c.json"]
    for digits in ("1", "2"):
        place.put("a.json", make_correction(REPORT, digits))
        assert await adapter.collect() == 1
    assert len({path.read_bytes() for path in (place.results / "done").iterdir()}) == 5


async def test_changing_file_left_alone(place: Place) -> None:
    adapter = await place.adapter(settle=0.05)
    for size in (40, 60, 80, 100):
        place.put("a.json", dump_message(REPORT)[:size])
        assert await adapter.collect() == 0
        await asyncio.sleep(0.06)  # longer than the settle time: only the change itself keeps it from being read
    place.put("a.json", REPORT)
    await place.collect_until(lambda: place.inbox.messages)
    assert place.names("failed") == []


async def test_temporary_foreign_and_special_names_left_alone(place: Place, tmp_path: Path) -> None:
    names = [".a.json", "a.json.part", "a.json.tmp", "a.json~", "a.part", "notes.txt"]
    for name in names:
        place.put(name)
    (tmp_path / "secret.json").write_bytes(dump_message(REPORT))
    (place.results / "link.json").symlink_to(tmp_path / "secret.json")
    (place.results / "folder.json").mkdir()
    os.mkfifo(place.results / "pipe.json")
    assert await (await place.adapter()).collect() == 0
    assert set(names) <= set(place.names())


async def test_hostile_file_names_do_no_harm(place: Place) -> None:
    adapter = await place.adapter()
    names = ["a b", "a\nb", "Ünal", "x" * 250, "-rf", "$(x)", "%s", os.fsdecode(b"\xff\xfe")]
    for name in names:
        place.put(f"{name}.json")
        assert await adapter.collect() == 1, name
        assert [*place.inbox.messages][-1].isprintable()
        [*place.inbox.messages][-1].encode()
        assert place.names() == []
    assert len(place.names("done")) == len(names)


async def test_invalid_file_does_not_block_valid_ones(place: Place) -> None:
    adapter = await place.adapter(max_result_bytes=5_000)
    place.put("1.json", b'{"report_id": "X", "statsu": "final", "issued": "yesterday"}', age=9)
    place.put("2.json", b"\x00\xff", age=8)
    place.put("3.json", b"[" * 6_000, age=7)
    place.put("4.json", REPORT, age=6)
    place.put("5.json", dump_message(REPORT).replace(b'"status"', b'"order":"R1","status"', 1))
    place.put("6.json", dump_message(REPORT).replace(b'"report_id":"', b'"report_id":"\\t', 1))
    assert await adapter.collect() == 1
    assert place.names() == []
    assert place.names("failed") == [f"{number}.json{more}" for number in (1, 2, 3, 5, 6) for more in ("", ".reason.txt")]
    reason = (place.results / "failed" / "1.json.reason.txt").read_text()
    assert all(part in reason for part in ("did you mean 'status'?", "status: ", "issued: "))
    assert "yesterday" not in reason
    for part in ("larger than 5000 bytes", "order: duplicate key", "report_id: holds a control character"):
        assert part in place.reasons()


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


async def test_file_kept_before_crash_only_moved(place: Place) -> None:
    """Also one that a process had claimed when it died."""
    adapter = await place.adapter()
    place.put("a.json", with_file("a.pdf"), age=5)
    place.put("a.pdf", PDF, age=6)
    place.inbox.fail_after = 1
    with pytest.raises(LisUnavailable):
        await adapter.collect()
    assert place.names() == ["a.json", "a.pdf"]
    place.put(".claimed-0a1b2c3d-b.json")
    again = await place.adapter()
    assert await again.collect() == 1
    assert place.names() == []
    assert place.names("done") == ["a.json", "a.pdf", "b.json"]
    assert len(place.inbox.messages) == 2


class Overtaken(MemoryInbox):
    """While the first message is being kept, the LIS puts another file in the place of the one that was read."""

    place: Place

    async def accept(self, message: str, content: LabMessage) -> bool:
        new = await MemoryInbox.accept(self, message, content)
        if len(self.messages) == 1:
            self.place.put("b.tmp", make_correction(REPORT, "1.30")).replace(self.place.results / "a.json")
        return new


async def test_file_replaced_during_read_is_read_too(place: Place) -> None:
    place.inbox = Overtaken()
    place.inbox.place = place
    adapter = await place.adapter()
    place.put("a.json", make_correction(REPORT, "1.20"))
    assert await adapter.collect() == 1
    assert place.names() == ["a.json"]
    assert await adapter.collect() == 1
    assert values(place) == ["1.20", "1.30"]


async def test_documents_and_attached_values_read_and_moved(place: Place) -> None:
    adapter = await place.adapter()
    (place.results / "scans").mkdir()
    place.put("scans/b.pdf", make_pdf("b"))
    place.put("a.pdf", PDF)
    place.put("curve.png", b"PNG")
    seen = ReportedObservation(code=Coding(code="11502-2"), value_attachment=Document(file="curve.png", content_type="image/png"))
    place.put("a.json", replace(with_file("a.pdf", "scans/b.pdf"), observations=(seen,)))
    assert await adapter.collect() == 1
    assert [(one.content, one.file) for one in place.report.documents] == [(PDF, None), (make_pdf("b"), None)]
    assert place.report.observations[0].value_attachment == Document(content=b"PNG", content_type="image/png")
    assert place.names("done") == ["a.json", "a.pdf", "b.pdf", "curve.png"]


@pytest.mark.parametrize("name", ["a.pdf", "scans/a.png"])
async def test_report_waits_for_document_being_written(place: Place, name: str) -> None:
    """Others go on."""
    whole = PDF if name.endswith("pdf") else PNG
    adapter = await place.adapter(writer_pause=DEADLINE)
    (place.results / "scans").mkdir()
    place.put("a.json", with_file(name), age=9)
    place.put("b.json", make_correction(REPORT, "7"))
    assert await adapter.collect() == 1
    for size in (0, len(whole) // 2, len(whole) - 4):
        place.put(name, whole[:size])
        assert await adapter.collect() == 0
        assert place.names()[0] == "a.json"
    place.put(name, whole)
    assert await adapter.collect() == 1
    assert place.inbox.contents[1].documents[0].content == whole  # type: ignore[union-attr]
    assert place.names() == []


@pytest.mark.parametrize("settings", [{"writer_pause": 0}, {"complete_marker": "{stem}.ok"}])
async def test_document_that_stays_cut_off_is_taken(place: Place, settings: dict[str, Any]) -> None:
    """Nothing is lost: the report is held for a person, with the document as it came."""
    place.put("a.pdf", PDF[:100])
    place.put("a.json", with_file("a.pdf"))
    place.put("a.ok", b"")
    assert await (await place.adapter(**settings)).collect() == 1


async def test_missing_or_large_document_fails_report(place: Place) -> None:
    adapter = await place.adapter(document_wait=0, max_document_bytes=10)
    place.put("a.json", with_file("a.pdf"))
    for name in ("b.pdf", "c.pdf"):
        place.put(name, b"123456")
    place.put("b.json", with_file("b.pdf", "c.pdf"))
    assert await adapter.collect() == 0
    assert set(place.names("failed")) >= {"a.json", "a.json.reason.txt", "b.json", "b.json.reason.txt"}
    assert "documents[0].file: did not arrive in time" in place.reasons()
    assert "documents[1].file: is too large" in place.reasons()


async def test_document_outside_folder_rejected(place: Place, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    for path in (tmp_path / "secret.pdf", tmp_path / "outside" / "secret.pdf"):
        path.write_bytes(b"secret")
    (place.results / "out").symlink_to(tmp_path / "outside")
    (place.results / "l.pdf").symlink_to(tmp_path / "secret.pdf")
    adapter = await place.adapter()
    (place.results / "done" / "x.pdf").write_bytes(b"another patient's")
    places = ("../secret.pdf", "/etc/hostname", "a/../../secret.pdf", "..\\secret.pdf", "C:secret")
    for name in (*places, "out/secret.pdf", "done/x.pdf", "l.pdf"):
        place.put("a.json", with_file(name))
        assert await adapter.collect() == 0
        reason = next((place.results / "failed").glob("*.reason.txt"))
        assert "documents[0].file: " in reason.read_text("utf-8"), name
        reason.unlink()
    assert not place.inbox.messages
    assert (tmp_path / "secret.pdf").exists()


async def test_configured_time_zone_completes_times(place: Place) -> None:
    tree = json.dumps({**json.loads(dump_message(REPORT)), "issued": "2024-05-17T08:30:00"}).encode()
    for zone, taken in ((None, 0), ("Europe/Moscow", 1)):
        place.put("a.json", tree)
        assert await (await place.adapter(time_zone=zone)).collect() == taken
    assert "issued: is a time without a zone" in place.reasons()
    assert place.report.issued.isoformat() == "2024-05-17T08:30:00+03:00"


@pytest.mark.parametrize("missing", ["orders", "results"])
async def test_missing_folder_reported_as_unavailable(place: Place, missing: str) -> None:
    getattr(place, missing).rmdir()
    adapter = FolderAdapter(place.settings(), "folder")
    for call in (adapter.start(place.inbox), adapter.check()):
        with pytest.raises(LisUnavailable, match=missing):
            await call
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
    await place.collect_until(lambda: not place.names())
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
    """Also while that one is still being written."""
    adapter = await place.adapter(writer_pause=DEADLINE)
    place.put("a.pdf", PDF, age=200)
    place.put("1.json", refused("a.pdf"), age=100)
    place.put("2.json", dump_message(with_file("a.pdf"))[:40])
    await adapter.collect()
    assert place.names() == ["2.json", "a.pdf"]
    place.put("1.json", refused("a.pdf"), age=100)
    place.put("2.json", with_file("a.pdf"), age=90)
    assert await adapter.collect() == 1
    assert place.names() == []
    assert place.names("done") == ["2.json", "a.pdf"]
    assert "a.pdf was not moved" in place.reasons()


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

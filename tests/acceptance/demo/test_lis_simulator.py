"""The LIS simulator on its two folders: the agent must understand every message that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab_agent.domain.lab_messages import LabRejection, LabReport, ReportStatus
from lab_agent.serialization import load_message
from lab_sandbox.demo.lis.messages import SimulatorBehaviour
from lab_sandbox.demo.lis.simulator import LisSimulator, SimulatorFolders
from lab_sandbox.partner.errors import Json, encode

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
ORDERED = "2026-03-04T10:00:00+03:00"
BEHAVIOUR = SimulatorBehaviour(staged_items=frozenset({"050.002"}), rejected_items=frozenset({"002.003"}))


def order(*items: str, key: str = "RAAAAAAAAAAAAAAA") -> Json:
    return {
        "schema_version": 1,
        "key": key,
        "requisition": {"system": "http://clinic.example/requisitions", "value": "R-1"},
        "ordered_at": ORDERED,
        "patient": {"gender": "female", "birth_date": "1980-01-02"},
        "lines": [
            {"key": f"L{number}", "item": item, "text": f"Test {item}", "ordered_at": ORDERED, "specimens": ["s1"]}
            for number, item in enumerate(items, 1)
        ],
        "specimens": [{"id": "s1", "type": "10", "collected_at": "2026-03-04T09:30:00+03:00"}],
    }


@pytest.fixture
def folders(tmp_path: Path) -> SimulatorFolders:
    created = SimulatorFolders(tmp_path / "orders", tmp_path / "results", tmp_path / "own")
    created.create()
    return created


def simulator(folders: SimulatorFolders) -> LisSimulator:
    return LisSimulator(folders, BEHAVIOUR, 3600, lambda: NOW)


def write_order(folders: SimulatorFolders, content: Json) -> None:
    (folders.orders / f"{content['key']}.json").write_bytes(encode(content))


def results(folders: SimulatorFolders) -> Iterator[LabReport | LabRejection]:
    for file in sorted(folders.results.glob("*.json")):
        yield load_message(file.read_bytes())


def reports(folders: SimulatorFolders) -> list[LabReport]:
    """Those of lines."""
    return [one for one in results(folders) if isinstance(one, LabReport) and one.lines]


def test_every_test_gets_final_report_with_pdf(folders: SimulatorFolders):
    """The document for the whole order is a file beside its message and completes no line."""
    write_order(folders, order("001.001", "002.001"))
    simulator(folders).run_once()
    assert {one.lines for one in reports(folders)} == {("L1",), ("L2",)}
    assert {one.status for one in reports(folders)} == {ReportStatus.FINAL}
    assert all(one.documents[0].content and one.documents[0].content.startswith(b"%PDF-") for one in reports(folders))
    (wide,) = [one for one in results(folders) if isinstance(one, LabReport) and not one.lines]
    assert wide.completes == ()
    assert (folders.results / str(wide.documents[0].file)).read_bytes().startswith(b"%PDF-")


def test_haemolysed_specimen_rejected_and_others_reported(folders: SimulatorFolders):
    write_order(folders, order("002.003", "002.002"))
    simulator(folders).run_once()
    (rejection,) = [one for one in results(folders) if isinstance(one, LabRejection)]
    assert rejection.collect_again
    assert "haemolysed" in rejection.not_performed[0].reason
    assert {one.lines for one in results(folders) if isinstance(one, LabReport)} == {(), ("L2",)}


def test_cancelled_line_not_measured(folders: SimulatorFolders):
    def cancel(line: str) -> None:
        message = {"kind": "cancel", "order": "RAAAAAAAAAAAAAAA", "lines": [{"line": line, "reason": "withdrawn"}]}
        (folders.orders / "RAAAAAAAAAAAAAAA.cancel.json").write_bytes(encode(message))

    write_order(folders, order("001.001", "002.002"))
    cancel("L1")
    lis = simulator(folders)
    lis.run_once()
    assert {one.lines for one in reports(folders)} == {("L2",)}
    cancel("L2")
    assert lis.run_once() == ["received order RAAAAAAAAAAAAAAA.cancel"]


def test_restart_repeats_no_message(folders: SimulatorFolders):
    """The files that were put out are those that are kept."""
    write_order(folders, order("001.001"))
    simulator(folders).run_once()
    for file in folders.sent_messages.iterdir():
        assert (folders.results / file.name).read_bytes() == file.read_bytes()
    assert not list(folders.orders.iterdir())
    for file in folders.results.iterdir():
        file.unlink()
    assert simulator(folders).run_once() == []
    assert list(folders.results.iterdir()) == []

"""The LIS simulator on its two folders: the agent must understand every message that it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab_agent.domain.lab_messages import LabRejection, LabReport, ObservationStatus, ReportedObservation, ReportStatus
from lab_agent.serialization import load_message
from lab_sandbox.demo.lis.messages import STAGES, SimulatorBehaviour, build_messages
from lab_sandbox.demo.lis.simulator import LisSimulator, SimulatorFolders
from lab_sandbox.demo.lis.values import PANELS
from lab_sandbox.partner.errors import Json, decode, encode

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
ORDERED = "2026-03-04T10:00:00+03:00"
BEHAVIOUR = SimulatorBehaviour(staged_items=frozenset({"050.002"}), rejected_items=frozenset({"002.003"}))


def order(*items: str, key: str = "RAAAAAAAAAAAAAAA") -> Json:
    return {
        "schema_version": 1,
        "key": key,
        "requisition": {"system": "http://clinic.example/requisitions", "value": "R-1"},
        "contract": "C-100",
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


def simulator(folders: SimulatorFolders, stage_timeout: float = 3600) -> LisSimulator:
    return LisSimulator(folders, BEHAVIOUR, stage_timeout, lambda: NOW)


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


def test_all_value_types_are_produced():
    messages = [load_message(encode(one.body)) for one in build_messages(order(*PANELS), BEHAVIOUR, NOW)]
    values = [value for report in messages if isinstance(report, LabReport) for value in report.observations]
    forms = {one.name for one in fields(ReportedObservation) if one.name.startswith("value_")}
    assert {form for form in forms for value in values if getattr(value, form) is not None} == forms


def test_culture_reported_in_three_versions(folders: SimulatorFolders):
    """A culture comes in three versions, each when its stage is released, or after a while without an operator."""
    write_order(folders, order("050.002"))
    lis = simulator(folders)
    for version in range(1, len(STAGES) + 1):
        lis.run_once()
        found = reports(folders)
        assert [one.version for one in found] == list(range(1, version + 1))
        if version < 3:
            (folders.released_stages / f"R-1.{STAGES[version]}").touch()
    assert [one.status for one in found] == [ReportStatus.PRELIMINARY, ReportStatus.FINAL, ReportStatus.FINAL]
    assert {one.report_id for one in found} == {"L1"}
    assert found[2].observations[0].status is ObservationStatus.AMENDED
    assert found[1].observations[1] == found[2].observations[1]
    write_order(folders, order("050.002", key="RBBBBBBBBBBBBBBB") | {"requisition": {"system": "urn:x", "value": "R-2"}})
    simulator(folders, stage_timeout=0).run_once()
    assert [one.version for one in reports(folders) if one.order == "RBBBBBBBBBBBBBBB"] == [1, 2, 3]


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
    assert not [file for file in folders.results.iterdir() if file.name.startswith(".")]
    assert not list(folders.orders.iterdir())
    assert decode((folders.received_orders / "RAAAAAAAAAAAAAAA.json").read_bytes())["contract"] == "C-100"
    for file in folders.results.iterdir():
        file.unlink()
    assert simulator(folders).run_once() == []
    assert list(folders.results.iterdir()) == []


def test_order_of_which_all_was_sent_costs_nothing_more(folders: SimulatorFolders, monkeypatch: pytest.MonkeyPatch):
    write_order(folders, order("001.001"))
    lis = simulator(folders)
    assert lis.run_once()
    with monkeypatch.context() as patch:
        patch.setattr("lab_sandbox.demo.lis.simulator.build_messages", None)
        assert lis.run_once() == []
    write_order(folders, order("001.001", "002.001"))
    assert any("L2" in line for line in lis.run_once()), "what is written anew is looked at again"


def test_message_that_a_crash_left_unnoted_is_put_out_again_as_it_was(folders: SimulatorFolders, monkeypatch: pytest.MonkeyPatch):
    write_order(folders, order("001.001"))

    def crash(_self: Path, _target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", _failing_from(folders.sent_messages, crash))
        with pytest.raises(KeyboardInterrupt):
            simulator(folders).run_once()
    before = {file.name: file.read_bytes() for file in folders.results.iterdir()}
    later = LisSimulator(folders, BEHAVIOUR, 3600, lambda: NOW.replace(hour=13))
    later.run_once()
    assert before
    assert before.items() <= {file.name: file.read_bytes() for file in folders.results.iterdir()}.items()


def _failing_from(folder: Path, crash: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
    """Moves files as usual, but for those that are noted as sent."""
    move = Path.replace

    def replace(file: Path, target: Path) -> Path:
        return crash(file, target) if file.parent == folder and file.name.endswith(".unsent") else move(file, target)

    return replace

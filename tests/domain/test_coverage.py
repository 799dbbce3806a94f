"""Which lines a message of the LIS is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent.domain.coverage import OrderCodes, determine_coverage
from lab_agent.domain.ids import LineKey, OrderKey, ReportKey, ResourceId
from lab_agent.domain.journal import LineRecord, ReportRecord
from lab_agent.domain.lifecycle import LineState
from lab_agent.domain.results import Document, LabRejection, LabReport, NotPerformed, ReportStatus
from lab_agent.domain.versions import is_older

NOW = datetime(2026, 1, 2, tzinfo=UTC)
CODES = OrderCodes({"001": [LineKey("L1")], "002": [LineKey("L2")], "HB": [LineKey("L1")], "003": [LineKey("L3")]})


def lines(third: LineState = LineState.REJECTED) -> list[LineRecord]:
    states = {"L1": LineState.ACCEPTED, "L2": LineState.ACCEPTED, "L3": third}
    return [
        LineRecord(key=LineKey(key), order=OrderKey("R"), task_id=ResourceId(key), state=state, changed_at=NOW)
        for key, state in states.items()
    ]


def report(status: ReportStatus = ReportStatus.FINAL, **more: Any) -> LabReport:
    return LabReport(report_id="1", status=status, order="R", effective=NOW, issued=NOW, **more)


def test_a_final_report_that_names_nothing_completes_every_served_line() -> None:
    found = determine_coverage(report(), lines(), CODES)
    assert found.lines == found.completes == ("L1", "L2")


@pytest.mark.parametrize("name", ["L1", "001", "HB"])
def test_a_line_is_named_by_key_item_or_laboratory_code(name: str) -> None:
    named = report(lines=(name,)) if name == "L1" else report(items=(name,))
    assert determine_coverage(named, lines(), CODES).completes == ("L1",)


def test_a_preliminary_report_completes_nothing() -> None:
    found = determine_coverage(report(ReportStatus.PRELIMINARY), lines(), CODES)
    assert found.lines == ("L1", "L2")
    assert found.completes == ()


def test_the_lis_may_say_what_a_report_completes() -> None:
    assert determine_coverage(report(completes=("002",)), lines(), CODES).completes == ("L2",)
    assert determine_coverage(report(completes=()), lines(), CODES).completes == ()


def test_a_line_not_performed_is_not_completed() -> None:
    absent = (NotPerformed(item="002", reason="clotted"),)
    found = determine_coverage(report(not_performed=absent, documents=(Document(url="https://lab.example/1"),)), lines(), CODES)
    assert found.completes == ("L1",)
    assert found.not_performed == {"L2": "clotted"}
    alone = determine_coverage(report(not_performed=absent), lines(), CODES)
    assert (alone.lines, alone.completes, alone.not_performed) == (("L1", "L2"), (), {"L2": "clotted"})


def test_a_tube_or_a_number_of_a_line_names_its_lines_and_any_other_name_wins() -> None:
    known = replace(CODES, tubes={"T1": [LineKey("L1")], "T2": [LineKey("L1"), LineKey("L2")], "EMPTY": []}, accession="A-1")
    numbered = [replace(line, accession="A-1-2" if line.key == "L2" else None) for line in lines()]
    expected = {
        ("T1", None): ("L1",),
        ("T2", None): ("L1", "L2"),
        ("T9", None): ("L1", "L2"),
        (None, "A-1"): ("L1", "L2"),
        (None, "A-1-2"): ("L2",),
        (None, "A-9"): ("L1", "L2"),
        ("T2", "A-1-2"): ("L2",),
        ("T1", "A-1"): ("L1",),
        ("EMPTY", None): ("L1", "L2"),
    }
    for (barcode, accession), covered in expected.items():
        assert determine_coverage(report(barcode=barcode, accession=accession), numbered, known).lines == covered
    assert determine_coverage(report(barcode="T1", items=("002",)), numbered, known).completes == ("L2",)
    no_tube = replace(known, tubes={"T1": [LineKey("L1")]})
    assert determine_coverage(report(barcode="T1"), numbered, no_tube).lines == ("L1", "L2"), "no tube would ever name L2"
    refusal = LabRejection(barcode="T1", not_performed=(NotPerformed(reason="haemolysed"),))
    assert determine_coverage(refusal, numbered, known).not_performed == {"L1": "haemolysed"}


def test_a_refusal_without_names_is_about_the_whole_order() -> None:
    refusal = LabRejection(order="R", not_performed=(NotPerformed(reason="tube broken"),))
    assert determine_coverage(refusal, lines(), CODES).not_performed == {"L1": "tube broken", "L2": "tube broken"}


@pytest.mark.parametrize("named", [{"lines": ("L1", "L3")}, {"items": ("001", "003")}])
def test_a_withdrawn_line_is_left_aside_where_there_is_another(named: dict[str, Any]) -> None:
    found = determine_coverage(report(**named), lines(LineState.WITHDRAWN), CODES)
    assert (found.lines, found.completes, found.withdrawn, found.problem) == (("L1",), ("L1",), ("L3",), None)


def test_a_withdrawn_line_alone_is_covered_and_never_completed() -> None:
    found = determine_coverage(report(lines=("L3",), completes=("003",)), lines(LineState.WITHDRAWN), CODES)
    assert (found.lines, found.completes, found.withdrawn, found.problem) == (("L3",), (), ("L3",), None)
    assert determine_coverage(report(), lines(LineState.WITHDRAWN), CODES).lines == ("L1", "L2")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (report(items=("777",)), "777 is no line and no item of this order"),
        (report(lines=("L3",)), "L3 did not go to the laboratory"),
        (LabRejection(order="R", not_performed=(NotPerformed(item="003", reason="x"),)), "L3 did not go to the laboratory"),
    ],
)
def test_what_fits_nothing_says_why(message: LabReport | LabRejection, words: str) -> None:
    assert words in (determine_coverage(message, lines(), CODES).problem or "")


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({"version": 1, "sequence": 9}, {"version": 2, "sequence": 1}),
        ({"issued": NOW, "sequence": 9}, {"issued": NOW.replace(hour=5), "sequence": 1}),
        ({"sequence": 1}, {"sequence": 2}),
        ({"version": 1, "issued": NOW, "sequence": 1}, {"version": 1, "issued": NOW, "sequence": 2}),
    ],
)
def test_order_of_versions_is_explicit_then_issued_then_arrival(older: dict[str, Any], newer: dict[str, Any]) -> None:
    first, second = record(**older), record(**newer)
    assert is_older(first, second)
    assert not is_older(second, first)


def record(**more: Any) -> ReportRecord:
    return ReportRecord(key=ReportKey("P"), source="s", message="m", received_at=NOW, changed_at=NOW, body=b"{}", **more)

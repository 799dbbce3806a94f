"""Which lines a message of the LIS is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent.domain.ids import LineKey, OrderKey, ResourceId
from lab_agent.domain.lab_messages import Document, LabRejection, LabReport, NotPerformed, ReportStatus
from lab_agent.domain.records import LineRecord
from lab_agent.domain.report_coverage import OrderCodes, determine_coverage
from lab_agent.domain.state_machines import LineState

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


def test_final_report_without_references_completes_every_line() -> None:
    """A final report that names nothing completes every line at the laboratory."""
    found = determine_coverage(report(), lines(), CODES)
    assert found.lines == found.completes == ("L1", "L2")


@pytest.mark.parametrize("name", ["L1", "001", "HB"])
def test_line_named_by_key_item_or_code(name: str) -> None:
    """A line is named by its key, its item or the code of the laboratory."""
    named = report(lines=(name,)) if name == "L1" else report(items=(name,))
    assert determine_coverage(named, lines(), CODES).completes == ("L1",)


def test_preliminary_report_completes_nothing() -> None:
    found = determine_coverage(report(ReportStatus.PRELIMINARY), lines(), CODES)
    assert found.lines == ("L1", "L2")
    assert found.completes == ()


def test_lis_may_state_completed_lines() -> None:
    assert determine_coverage(report(completes=("002",)), lines(), CODES).completes == ("L2",)
    assert determine_coverage(report(completes=()), lines(), CODES).completes == ()


def test_line_not_performed_is_not_completed() -> None:
    absent = (NotPerformed(item="002", reason="clotted"),)
    found = determine_coverage(report(not_performed=absent, documents=(Document(url="https://lab.example/1"),)), lines(), CODES)
    assert found.completes == ("L1",)
    assert found.not_performed == {"L2": "clotted"}
    alone = determine_coverage(report(not_performed=absent), lines(), CODES)
    assert (alone.lines, alone.completes, alone.not_performed) == (("L1", "L2"), (), {"L2": "clotted"})


def test_barcode_and_accession_yield_to_explicit_references() -> None:
    """A tube or an accession number names its lines, and any other name wins over it."""
    known = replace(CODES, barcodes={"T1": [LineKey("L1")], "T2": [LineKey("L1"), LineKey("L2")], "EMPTY": []}, accession="A-1")
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
    no_tube = replace(known, barcodes={"T1": [LineKey("L1")]})
    assert determine_coverage(report(barcode="T1"), numbered, no_tube).lines == ("L1", "L2"), "no tube would ever name L2"
    refusal = LabRejection(barcode="T1", not_performed=(NotPerformed(reason="haemolysed"),))
    assert determine_coverage(refusal, numbered, known).not_performed == {"L1": "haemolysed"}


def test_rejection_without_references_covers_whole_order() -> None:
    refusal = LabRejection(order="R", not_performed=(NotPerformed(reason="tube broken"),))
    assert determine_coverage(refusal, lines(), CODES).not_performed == {"L1": "tube broken", "L2": "tube broken"}


@pytest.mark.parametrize("named", [{"lines": ("L1", "L3")}, {"items": ("001", "003")}])
def test_withdrawn_line_skipped_where_another_matches(named: dict[str, Any]) -> None:
    found = determine_coverage(report(**named), lines(LineState.WITHDRAWN), CODES)
    assert (found.lines, found.completes, found.withdrawn, found.problem) == (("L1",), ("L1",), ("L3",), None)


def test_withdrawn_line_alone_covered_but_never_completed() -> None:
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
def test_unmatched_reference_gives_reason(message: LabReport | LabRejection, words: str) -> None:
    assert words in (determine_coverage(message, lines(), CODES).problem or "")


def numbered(*numbers: str | None) -> list[LineRecord]:
    return [replace(line, accession=number) for line, number in zip(lines(), numbers, strict=False)]


@pytest.mark.parametrize(
    ("numbers", "completes"),
    [
        (("F1", "F2"), ("L1",)),
        (("F1", "F1"), ()),
        ((None, None), ()),
        (("F1", None), ("L1",)),
    ],
)
def test_number_in_completes_means_one_line(numbers: tuple[str | None, ...], completes: tuple[str, ...]) -> None:
    """A report that completes what its number means completes no line where that is a number of several."""
    found = determine_coverage(report(accession="F1", completes=("F1",)), numbered(*numbers), CODES)
    assert found.completes == completes
    assert found.problem is None


@pytest.mark.parametrize("name", ["accession", "barcode", "order"])
def test_number_of_order_with_one_line_completes_it(name: str) -> None:
    one = report(**{"accession": "F9"} | ({"barcode": "T9"} if name == "barcode" else {}))
    completes = {"accession": "F9", "barcode": "T9", "order": "R"}[name]
    found = determine_coverage(replace(one, completes=(completes,)), lines()[:1], CODES)
    assert found.completes == ("L1",)


def test_line_number_is_enough_for_unknown_item() -> None:
    """The laboratory's own code of a test is no extra test where the report gives the number of that test's line."""
    found = determine_coverage(report(accession="F2", items=("GLU-LIS",)), numbered("F1", "F2"), CODES)
    assert (found.lines, found.completes, found.extra_items) == (("L2",), ("L2",), ())


@pytest.mark.parametrize("numbers", [("F2", "F2"), (None, None)])
def test_shared_number_is_not_enough_for_unknown_item(numbers: tuple[str | None, ...]) -> None:
    assert determine_coverage(report(accession="F2", items=("GLU-LIS",)), numbered(*numbers), CODES).problem is not None


@pytest.mark.parametrize(
    ("given", "completes"),
    [
        ({"items": ("new",), "lines": ("L1",)}, ()),
        ({"items": ("new", "001"), "lines": ("L1",)}, ("L1",)),
        ({"items": ("new", "002"), "lines": ("L1",)}, ("L1", "L2")),
        ({"items": ("001",), "lines": ("L1",)}, ("L1",)),
    ],
)
def test_report_of_extra_tests_alone_completes_nothing(given: dict[str, Any], completes: tuple[str, ...]) -> None:
    found = determine_coverage(report(**given), lines(), CODES)
    assert found.completes == completes
    assert found.extra_items == tuple(each for each in given["items"] if each == "new")


def test_one_that_completes_its_number_and_another_line() -> None:
    codes = replace(CODES, accession="A")
    numbered = report(accession="A", lines=("L1",), completes=("A", "002"))
    assert determine_coverage(numbered, lines(), codes).completes == ("L1", "L2")
    assert determine_coverage(report(lines=("L1",), completes=("002",)), lines(), codes).completes == ("L2",)


def test_unknown_line_to_complete_is_a_problem() -> None:
    found = determine_coverage(report(completes=("999",)), lines(), CODES)
    assert found.lines == ()
    assert "999" in str(found.problem)

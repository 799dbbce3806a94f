"""Which lines a message of the LIS is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent.lis.lab_messages import Document, LabRejection, LabReport, NotPerformed, ReportStatus
from lab_agent.orders.records import LineRecord
from lab_agent.results.report_coverage import Coverage, OrderCodes, determine_coverage
from lab_agent.shared.ids import LineKey, OrderKey, ResourceId
from lab_agent.shared.state_machines import LineState

NOW = datetime(2026, 1, 2, tzinfo=UTC)
CODES = OrderCodes({"001": [LineKey("L1")], "002": [LineKey("L2")], "HB": [LineKey("L1")], "003": [LineKey("L3")]})
TUBES = {"T1": [LineKey("L1")], "T2": [LineKey("L1"), LineKey("L2")], "EMPTY": []}
NUMBERED = replace(CODES, barcodes=TUBES, accession="A-1")
ONE_TUBE = replace(NUMBERED, barcodes={"T1": [LineKey("L1")]})
SECOND = (None, "A-1-2")


def lines(third: LineState = LineState.REJECTED, numbers: Sequence[str | None] = (None, None)) -> list[LineRecord]:
    made = [LineRecord(key=LineKey(n), order=OrderKey("R"), task_id=ResourceId(n), changed_at=NOW) for n in ("L1", "L2", "L3")]
    states = (LineState.ACCEPTED, LineState.ACCEPTED, third)
    return [replace(line, state=state, accession=n) for line, state, n in zip(made, states, (*numbers, None), strict=True)]


def report(status: ReportStatus = ReportStatus.FINAL, **more: Any) -> LabReport:
    return LabReport(report_id="1", status=status, order="R", effective=NOW, issued=NOW, **more)


def cover(message: LabReport | LabRejection, codes: OrderCodes = CODES, **known: Any) -> Coverage:
    return determine_coverage(message, lines(**known), codes)


@pytest.mark.parametrize(
    ("message", "known", "covered", "completes"),
    [
        # a final report that names nothing completes every line at the laboratory, a preliminary one none
        (report(), {}, "L1 L2", "L1 L2"),
        (report(), {"third": LineState.WITHDRAWN}, "L1 L2", "L1 L2"),
        (report(ReportStatus.PRELIMINARY), {}, "L1 L2", ""),
        # a line is named by its key, its item or the code of the laboratory, and the message may say what it completes
        (report(items=("HB",)), {}, "L1", "L1"),
        (report(completes=("002",)), {}, None, "L2"),
        (report(completes=()), {}, None, ""),
        (report(lines=("L1",), completes=("002",)), {}, None, "L2"),
        (report(accession="A", lines=("L1",), completes=("A", "002")), {"codes": replace(CODES, accession="A")}, None, "L1 L2"),
        # a tube or an accession number names its lines, and any other name wins over it
        (report(barcode="T1"), {"codes": NUMBERED, "numbers": SECOND}, "L1", "L1"),
        (report(barcode="T2"), {"codes": NUMBERED, "numbers": SECOND}, "L1 L2", "L1 L2"),
        (report(barcode="T9"), {"codes": NUMBERED, "numbers": SECOND}, "L1 L2", None),
        (report(barcode="EMPTY"), {"codes": NUMBERED, "numbers": SECOND}, "L1 L2", None),
        (report(accession="A-1"), {"codes": NUMBERED, "numbers": SECOND}, "L1 L2", None),
        (report(accession="A-1-2"), {"codes": NUMBERED, "numbers": SECOND}, "L2", None),
        (report(accession="A-9"), {"codes": NUMBERED, "numbers": SECOND}, "L1 L2", None),
        (report(barcode="T2", accession="A-1-2"), {"codes": NUMBERED, "numbers": SECOND}, "L2", None),
        (report(barcode="T1", accession="A-1"), {"codes": NUMBERED, "numbers": SECOND}, "L1", None),
        (report(barcode="T1", items=("002",)), {"codes": NUMBERED, "numbers": SECOND}, None, "L2"),
        (report(barcode="T1"), {"codes": ONE_TUBE, "numbers": SECOND}, "L1 L2", None),  # no tube would ever name L2
        # what completes its own number completes no line where that is a number of several
        (report(accession="F1", completes=("F1",)), {"numbers": ("F1", "F2")}, None, "L1"),
        (report(accession="F1", completes=("F1",)), {"numbers": ("F1", "F1")}, None, ""),
        (report(accession="F1", completes=("F1",)), {}, None, ""),
        # the laboratory's own code of a test is no extra test where the report gives the number of that test's line
        (report(accession="F2", items=("GLU-LIS",)), {"numbers": ("F1", "F2")}, "L2", "L2"),
    ],
)
def test_message_covers_and_completes_the_lines_it_names(
    message: LabReport, known: dict[str, Any], covered: str | None, completes: str | None
) -> None:
    found = cover(message, **known)
    assert covered is None or " ".join(found.lines) == covered
    assert completes is None or " ".join(found.completes) == completes
    assert (found.problem, found.extra_items) == (None, ())


def test_line_not_performed_is_not_completed() -> None:
    absent = (NotPerformed(item="002", reason="clotted"),)
    found = cover(report(not_performed=absent, documents=(Document(url="https://lab.example/1"),)))
    assert (found.completes, found.not_performed) == (("L1",), {"L2": "clotted"})
    alone = cover(report(not_performed=absent))
    assert (alone.lines, alone.completes, alone.not_performed) == (("L1", "L2"), (), {"L2": "clotted"})
    whole = cover(LabRejection(order="R", not_performed=(NotPerformed(reason="tube broken"),)))
    assert whole.not_performed == {"L1": "tube broken", "L2": "tube broken"}
    of_tube = cover(LabRejection(barcode="T1", not_performed=(NotPerformed(reason="haemolysed"),)), NUMBERED, numbers=SECOND)
    assert of_tube.not_performed == {"L1": "haemolysed"}


@pytest.mark.parametrize(
    ("named", "covered"),
    [
        ({"items": ("001", "003")}, (("L1",), ("L1",), ("L3",))),
        ({"lines": ("L3",), "completes": ("003",)}, (("L3",), (), ("L3",))),
    ],
)
def test_withdrawn_line_skipped_where_another_matches(named: dict[str, Any], covered: tuple[tuple[str, ...], ...]) -> None:
    """Alone it is covered, and never completed."""
    found = cover(report(**named), third=LineState.WITHDRAWN)
    assert (found.lines, found.completes, found.withdrawn, found.problem) == (*covered, None)


@pytest.mark.parametrize(
    ("message", "numbers", "words"),
    [
        (report(items=("777",)), (None, None), "777 is no line and no item of this order"),
        (report(lines=("L3",)), (None, None), "L3 did not go to the laboratory"),
        (
            LabRejection(order="R", not_performed=(NotPerformed(item="003", reason="x"),)),
            (None, None),
            "L3 did not go to the lab",
        ),
        (report(accession="F2", items=("GLU-LIS",)), ("F2", "F2"), "GLU-LIS"),
        (report(completes=("999",)), (None, None), "999"),
    ],
)
def test_unmatched_reference_gives_reason(message: LabReport | LabRejection, numbers: Any, words: str) -> None:
    found = cover(message, numbers=numbers)
    assert words in (found.problem or "")
    assert "999" not in words or found.lines == ()


@pytest.mark.parametrize(("name", "number"), [("accession", "F9"), ("barcode", "T9"), ("order", "R")])
def test_number_of_order_with_one_line_completes_it(name: str, number: str) -> None:
    message = replace(report(accession="F9"), **{name: number}, completes=(number,))
    assert determine_coverage(message, lines()[:1], CODES).completes == ("L1",)


@pytest.mark.parametrize(
    ("items", "completes"), [(("new",), ()), (("new", "001"), ("L1",)), (("new", "002"), ("L1", "L2")), (("001",), ("L1",))]
)
def test_report_of_extra_tests_alone_completes_nothing(items: tuple[str, ...], completes: tuple[str, ...]) -> None:
    found = cover(report(items=items, lines=("L1",)))
    assert (found.completes, found.extra_items) == (completes, tuple(each for each in items if each == "new"))

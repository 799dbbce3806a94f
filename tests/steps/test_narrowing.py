"""What remains of a message for the lines that a person names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.results import AccessionUpdate, Document, LabRejection, LabReport, NotPerformed, ReportStatus
from lab_agent.steps.narrowing import assign_to_order

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ORDER = OrderKey("R")
L0, L1 = LineKey("L0"), LineKey("L1")
CODES = {"L0": (L0,), "L1": (L1,), "001": (L0,), "002": (L1,), "TWO": (L0, L1)}


def report(**fields: Any) -> LabReport:
    given = {"report_id": "r", "status": ReportStatus.FINAL, "barcode": "B", "effective": NOW, "issued": NOW}
    return LabReport(**{**given, "documents": (Document(url="https://lab.example/1"),), **fields})


def absent(*names: str | None) -> tuple[NotPerformed, ...]:
    return tuple(NotPerformed(item=name, reason=f"no {name}") for name in names)


def narrowed(message: Any, *lines: LineKey) -> Any:
    return assign_to_order(message, ORDER, lines, CODES)


@pytest.mark.parametrize(
    ("items", "kept", "completes"),
    [
        (("001", "002"), ("001",), (L0,)),
        (("001",), ("001",), None),
        (("001", "EXTRA"), ("001", "EXTRA"), None),
        (("002", "EXTRA"), ("EXTRA",), (L0,)),
        (("UNKNOWN",), (), (L0,)),
        (("TWO",), (), (L0,)),
        ((), (), None),
    ],
)
def test_items_of_other_lines_go_and_a_test_by_a_name_that_nobody_knows_is_one_of_these_lines(
    items: tuple[str, ...], kept: tuple[str, ...], completes: tuple[str, ...] | None
) -> None:
    found = narrowed(report(items=items), L0)
    assert (found.order, found.barcode, found.lines, found.items, found.completes) == (ORDER, None, (L0,), kept, completes)


def test_an_extra_test_of_a_line_stays_extra() -> None:
    found = narrowed(report(lines=("OTHER",), items=("EXTRA",)), L0)
    assert (found.lines, found.items, found.completes) == ((L0,), ("EXTRA",), None)


def test_without_lines_the_whole_order_is_meant() -> None:
    assert narrowed(report(lines=("OTHER",), items=("001",))) == report(order=ORDER, barcode=None, items=("001",))
    refusal = LabRejection(accession="A", not_performed=absent("002"))
    assert narrowed(refusal) == LabRejection(order=ORDER, not_performed=absent("002"))
    assert narrowed(AccessionUpdate(barcode="B", accession="7"), L0) == AccessionUpdate(order=ORDER, accession="7")


REFUSED: list[tuple[tuple[str | None, ...], list[tuple[str, str]]]] = [
    (("001", "002"), [("L0", "no 001")]),
    (("UNKNOWN",), [("L0", "no UNKNOWN")]),
    ((None,), [("L0", "no None")]),
    (("TWO",), [("L0", "no TWO")]),
    (("002",), [("L0", "no 002")]),
]


@pytest.mark.parametrize(("names", "left"), REFUSED)
def test_a_refusal_is_of_these_lines_alone(names: tuple[str | None, ...], left: list[tuple[str, str]]) -> None:
    for message in (LabRejection(barcode="B", not_performed=absent(*names)), report(documents=(), not_performed=absent(*names))):
        assert [(each.line, each.reason) for each in narrowed(message, L0).not_performed] == left


def test_beside_results_a_name_that_nobody_knows_stays_and_those_of_other_lines_go() -> None:
    found = narrowed(report(not_performed=absent("002", "UNKNOWN", "001", None)), L0)
    assert [(each.line, each.item) for each in found.not_performed] == [("L0", None), ("L0", None), (None, "UNKNOWN")]


def test_what_a_report_completes_by_a_name_that_nobody_knows_are_these_lines() -> None:
    assert narrowed(report(completes=("UNKNOWN",)), L0).completes == (L0,)
    assert narrowed(report(completes=("002",)), L0).completes == ()

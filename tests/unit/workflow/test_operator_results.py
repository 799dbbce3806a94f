"""What remains of a message for the lines that a person names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent.lis.lab_messages import AccessionUpdate, Document, LabRejection, LabReport, NotPerformed, ReportStatus
from lab_agent.results.result_actions import assign_to_order
from lab_agent.shared.ids import LineKey, OrderKey

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
def test_items_of_other_lines_removed_unknown_code_assigned(
    items: tuple[str, ...], kept: tuple[str, ...], completes: tuple[str, ...] | None
) -> None:
    """Items of other lines are removed; an unknown code is taken for the chosen lines."""
    found = narrowed(report(items=items), L0)
    assert (found.order, found.barcode, found.lines, found.items, found.completes) == (ORDER, None, (L0,), kept, completes)


def test_extra_test_of_line_stays_extra() -> None:
    found = narrowed(report(lines=("OTHER",), items=("EXTRA",)), L0)
    assert (found.lines, found.items, found.completes) == ((L0,), ("EXTRA",), None)


def test_no_chosen_lines_means_whole_order() -> None:
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
def test_rejection_is_limited_to_chosen_lines(names: tuple[str | None, ...], left: list[tuple[str, str]]) -> None:
    for message in (LabRejection(barcode="B", not_performed=absent(*names)), report(documents=(), not_performed=absent(*names))):
        assert [(each.line, each.reason) for each in narrowed(message, L0).not_performed] == left


def test_unknown_code_beside_results_is_kept() -> None:
    """Beside results an unknown code stays, and codes of other lines are removed."""
    found = narrowed(report(not_performed=absent("002", "UNKNOWN", "001", None)), L0)
    assert [(each.line, each.item) for each in found.not_performed] == [("L0", None), ("L0", None), (None, "UNKNOWN")]


def test_unknown_completed_code_means_chosen_lines() -> None:
    assert narrowed(report(completes=("UNKNOWN",)), L0).completes == (L0,)
    assert narrowed(report(completes=("002",)), L0).completes == ()

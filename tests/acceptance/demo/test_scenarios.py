"""The checks of the demo pass for what the laboratory sent, and each kind of fault makes its check fail.

That all of them pass for the real programs is seen in test_runs.py.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from lab_sandbox.demo.checks import CheckList, RecordedReport
from lab_sandbox.demo.result_comparison import OrderFindings, compare_results
from lab_sandbox.demo.scenarios import Scenario
from lab_sandbox.partner.basket import Basket
from lab_sandbox.partner.client import DownloadedDocument
from lab_sandbox.partner.clinic import PlacedLine, PlacedOrder
from lab_sandbox.partner.order_generator import OrderPlan
from lab_sandbox.partner.result_reader import OrderStatus, ReceivedReport

PDF = b"%PDF-1.4"
ITEMS = {"a": "001.001", "b": "999.999", "c": "002.004"}
CODE = {"system": "http://loinc.org", "code": "718-7"}
SCENARIO = Scenario(
    name="all",
    title="",
    plan=OrderPlan(seed="all", basket=Basket("C-100", ())),
    unknown_items=frozenset({ITEMS["b"]}),
    rejected_items=frozenset({ITEMS["c"]}),
)
ORDER = PlacedOrder(
    "R-1", "task-0", tuple(PlacedLine(item, number, number, f"t{number}") for number, item in ITEMS.items()), "", ()
)
SENT = (
    RecordedReport(
        ("a",), ({"status": "final", "code": CODE, "value_quantity": {"value": Decimal("1.20"), "unit": "g"}},), (PDF,)
    ),
    RecordedReport(tuple(ITEMS), (), (PDF + b"2",)),
)


def received(number: str, *observations: dict[str, Any], status: str = "final") -> ReceivedReport:
    based_on = [{"reference": f"procedurerequest/{each}"} for each in number]
    return ReceivedReport({"status": status, "basedOn": based_on, "presentedForm": [{"url": "x"}]}, observations)


VALUE = {"status": "final", "code": {"coding": [CODE]}, "valueQuantity": {"value": Decimal("1.20"), "unit": "g"}}
FOUND = OrderFindings(
    OrderStatus(
        "completed",
        {"a": "completed", "b": "cancelled", "c": "cancelled"},
        {"b": ("999.999 is unknown",), "c": ("haemolysed; collect again",)},
    ),
    (received("a", VALUE), received("abc")),
    ([DownloadedDocument(PDF, "application/pdf")], [DownloadedDocument(PDF + b"2", "application/pdf")]),
)


def failed(found: OrderFindings) -> set[str]:
    """The checks that fail, without the name of the scenario."""
    checks = CheckList(lambda _check: None)
    compare_results(SCENARIO, ORDER, found, SENT, checks)
    assert len(checks.checks) == 8
    return {each.name.removeprefix("all: ") for each in checks.checks if not each.ok}


def with_value(**quantity: Any) -> OrderFindings:
    return replace(FOUND, reports=(received("a", {**VALUE, "valueQuantity": quantity}), FOUND.reports[1]))


def with_status(**changes: Any) -> OrderFindings:
    return replace(FOUND, status=replace(FOUND.status, **changes))


REPORTS, FINAL = "each performed line has a report, the others have none", "every report is final"
VALUES, DOCUMENTS = "values equal those of the laboratory, digit by digit", "the PDFs equal those of the laboratory, byte by byte"
STATUSES, WHOLE = "every Task has the right final status", "one document covers the whole order"
REASON, AGAIN = "the clinic reads which code is unknown", "the clinic reads the reason and is asked to collect again"


@pytest.mark.parametrize(
    ("found", "checks"),
    [
        (FOUND, set()),
        (with_value(value=Decimal("1.200"), unit="g"), {VALUES}),
        (with_value(value=Decimal("1.20")), {VALUES}),
        (replace(FOUND, reports=(received("a"), FOUND.reports[1])), {REPORTS, VALUES, WHOLE}),
        (replace(FOUND, reports=(FOUND.reports[0], received("abc", status="partial"))), {FINAL}),
        (replace(FOUND, reports=FOUND.reports[:1], documents=FOUND.documents[:1]), {WHOLE, DOCUMENTS}),
        (replace(FOUND, documents=([DownloadedDocument(PDF + b"x", "application/pdf")], FOUND.documents[1])), {DOCUMENTS}),
        (replace(FOUND, documents=([DownloadedDocument(PDF, "text/html")], FOUND.documents[1])), {DOCUMENTS}),
        (with_status(order="requested"), {STATUSES}),
        (with_status(lines={**FOUND.status.lines, "c": "completed"}), {STATUSES}),
        (with_status(reasons={"c": FOUND.status.reasons["c"]}), {REASON}),
        (with_status(reasons={**FOUND.status.reasons, "c": ("haemolysed",)}), {AGAIN}),
    ],
)  # fmt: skip
def test_fault_fails_its_check(found: OrderFindings, checks: set[str]) -> None:
    assert failed(found) == checks

"""Which of several orders a number means: what is contradicted falls out, and one must be left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab_agent.lis.lab_messages import LabReport, ReportStatus
from lab_agent.lis.lab_order import OrderPatient
from lab_agent.results.order_choice import Candidate, Misfit, choose_order
from lab_agent.results.report_coverage import Coverage
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.state_machines import LineState

NOW = datetime(2026, 3, 3, 10, tzinfo=UTC)
DAY, FIRST, LAST = timedelta(days=1), datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
GLUCOSE, CREATININE = frozenset({"2345-7", "GLU"}), frozenset({"2160-0", "CREA"})
REPORT = LabReport(report_id="R", status=ReportStatus.FINAL, effective=NOW, issued=NOW)


def candidate(order: str, state: LineState = LineState.ACCEPTED, tests: frozenset[str] = frozenset(), **other: Any) -> Candidate:
    line = LineKey(f"L-{order}")
    given: dict[str, Any] = {
        "coverage": Coverage(lines=(line,)),
        "collected_at": NOW,
        "patient": ANNA,
        "is_another_patient": False,
        "has_report": False,
    }
    return Candidate(**{"order": OrderKey(order), "states": {line: state}, "tests": {line: tests}, **given, **other})


ANNA, BERT = OrderPatient(family="Meier", given=("Anna",)), OrderPatient(family="Schulz", given=("Bert",))
BOTH = {"A": Misfit.ANOTHER_PATIENT, "B": Misfit.ANOTHER_TEST}
LATER = {"B": Misfit.COLLECTED_LATER}
DONE, GONE = LineState.COMPLETED, LineState.WITHDRAWN


@pytest.mark.parametrize(
    ("candidates", "codes", "order", "misfits"),
    [
        ([candidate("A")], (), "A", {}),
        ([candidate("A", is_another_patient=True, coverage=Coverage(problem="no item"))], (), "A", {}),
        ([candidate("A"), candidate("B")], (), None, {}),
        ([candidate("A"), candidate("B", is_another_patient=True)], (), "A", {"B": Misfit.ANOTHER_PATIENT}),
        ([candidate("A"), candidate("B", coverage=Coverage(problem="no item"))], (), "A", {"B": Misfit.ANOTHER_TEST}),
        ([candidate("A"), candidate("B", collected_at=NOW + DAY)], (), None, {}),
        ([candidate("A"), candidate("B", collected_at=FIRST)], (), None, {}),
        ([candidate("A"), candidate("B", collected_at=NOW + DAY + timedelta(microseconds=1))], (), "A", LATER),
        ([candidate("A"), candidate("B", collected_at=LAST)], (), "A", LATER),
        ([candidate("A"), candidate("B", GONE)], (), "A", {"B": "withdrawn"}),
        ([candidate("A"), candidate("B", GONE, patient=BERT)], (), None, {}),
        ([candidate("A", DONE), candidate("B", GONE, patient=BERT)], (), "B", {"A": Misfit.HAS_RESULTS}),
        ([candidate("A"), candidate("B", DONE, has_report=True)], (), None, {}),
        ([candidate("A", tests=GLUCOSE), candidate("B")], GLUCOSE, "A", {"B": Misfit.ANOTHER_TEST}),
        ([candidate("B", tests=CREATININE)], GLUCOSE, None, {"B": Misfit.ANOTHER_TEST}),
        ([candidate("B", coverage=Coverage(lines=(LineKey("added"),)), states={LineKey("added"): DONE})], GLUCOSE, "B", {}),
        ([candidate("B", tests=CREATININE)], GLUCOSE | CREATININE, "B", {}),
        ([candidate("A", tests=GLUCOSE, is_another_patient=True), candidate("B")], GLUCOSE, None, BOTH),
    ],
)
def test_choice_leaves_one_order_or_says_why_not(candidates, codes, order, misfits):
    found = choose_order(candidates, REPORT, codes)
    assert found.order == order
    assert dict(found.misfits) == misfits

"""What is well said and hardly meant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.domain.lab_messages import Document, LabReport, NotPerformed, ReferenceRange, ReportedObservation, ReportStatus
from lab_agent.domain.report_versions import implausible_values
from lab_agent.domain.values import Coding, Quantity, Range

NOW = datetime(2026, 3, 3, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)


def amount(value: int, unit: str | None = "g/L") -> Quantity:
    return Quantity(value=Decimal(value), unit=unit)


def seen(**fields: Any) -> ReportedObservation:
    return ReportedObservation(code=Coding(code="1"), **{"value_string": "x", **fields})


def report(*observations: ReportedObservation, **fields: Any) -> LabReport:
    given = {"report_id": "r", "status": ReportStatus.FINAL, "order": "R", "effective": NOW - HOUR, "issued": NOW}
    return LabReport(**{**given, "observations": observations or (seen(),), **fields})


def odd(given: LabReport) -> list[str]:
    return [problem.where for problem in implausible_values(given, NOW)]


ODD: list[tuple[dict[str, Any], list[str]]] = [
    ({"issued": NOW + 25 * HOUR}, ["issued"]),
    ({"effective": NOW + 25 * HOUR, "issued": NOW + 25 * HOUR}, ["effective", "issued"]),
    ({"effective": datetime(1899, 12, 31, tzinfo=UTC)}, ["effective"]),
    ({"issued": NOW - 30 * HOUR}, ["issued"]),
    ({"observations": (seen(issued=NOW + 25 * HOUR),)}, ["observations[0].issued"]),
    (
        {"observations": (seen(), seen(reference_ranges=(ReferenceRange(low=amount(9), high=amount(2)),)))},
        ["observations[1].reference_ranges[0]"],
    ),
    (
        {"observations": (seen(reference_ranges=(ReferenceRange(age=Range(low=amount(-1), high=amount(2))),)),)},
        ["observations[0].reference_ranges[0].age"],
    ),
    ({"observations": ()}, ["observations"]),
]


@pytest.mark.parametrize(("fields", "where"), ODD)
def test_implausible_values_questioned_by_field(fields: dict[str, Any], where: list[str]) -> None:
    assert odd(report(**fields)) == where
    assert all(problem.hint for problem in implausible_values(report(**fields), NOW))


MEANT: list[dict[str, Any]] = [
    {"issued": NOW + 23 * HOUR},  # a zone that was mistaken, or a clock that is fast
    {"effective": NOW, "issued": NOW - 20 * HOUR},
    {"effective": NOW - 9000 * HOUR},  # a culture takes its time, and a correction comes when it comes
    {"status": ReportStatus.REGISTERED, "effective": NOW + 200 * HOUR, "observations": ()},
    {"status": ReportStatus.PARTIAL, "observations": ()},
    {"observations": (), "documents": (Document(url="x"),)},
    {"observations": (), "not_performed": (NotPerformed(reason="clotted"),)},
    {"observations": (seen(reference_ranges=(ReferenceRange(low=amount(9), high=amount(2, "mg/L")),)),)},
    {"observations": (seen(reference_ranges=(ReferenceRange(low=amount(2), high=amount(2)), ReferenceRange(high=amount(2)))),)},
]


@pytest.mark.parametrize("fields", MEANT)
def test_everyday_values_not_questioned(fields: dict[str, Any]) -> None:
    assert odd(report(**fields)) == []

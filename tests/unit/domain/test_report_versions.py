"""The order of versions, and what is well said and hardly meant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import permutations
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lab_agent.lis.lab_messages import (
    Document,
    LabReport,
    NotPerformed,
    ObservationStatus,
    ReferenceRange,
    ReportedObservation,
    ReportStatus,
)
from lab_agent.results.records import ReportRecord
from lab_agent.results.report_versions import VersionOrder, exists_twice, implausible_values, is_repeat
from lab_agent.shared.ids import ReportKey
from lab_agent.shared.values import Coding, PartialDate, Quantity, Range

NOW = datetime(2026, 3, 3, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)


def amount(value: int, unit: str | None = "g/L") -> Quantity:
    return Quantity(value=Decimal(value), unit=unit)


def seen(**fields: Any) -> ReportedObservation:
    return ReportedObservation(code=Coding(code="1"), **{"value_string": "x", **fields})


def report(*observations: ReportedObservation, **fields: Any) -> LabReport:
    given = {"report_id": "r", "status": ReportStatus.FINAL, "order": "R", "effective": NOW - HOUR, "issued": NOW}
    return LabReport(**{**given, "observations": observations or (seen(),), **fields})


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
    ({"effective": PartialDate("0001")}, ["effective"]),
    ({"effective": datetime.min.replace(tzinfo=UTC)}, ["effective"]),
    ({"effective": datetime.min.replace(tzinfo=UTC), "issued": datetime.min.replace(tzinfo=UTC)}, ["effective", "issued"]),
    ({"effective": PartialDate("9999-12-31")}, ["effective", "issued"]),
    ({"effective": datetime.max.replace(tzinfo=UTC), "issued": datetime.max.replace(tzinfo=UTC)}, ["effective", "issued"]),
    ({"effective": PartialDate("2026-04")}, ["effective", "issued"]),
    ({"effective": PartialDate("2026-03-05")}, ["effective", "issued"]),
]


MEANT: list[dict[str, Any]] = [
    {"effective": datetime(1900, 1, 1, tzinfo=UTC)},
    {"issued": NOW + 24 * HOUR},  # a zone that was mistaken, or a clock that is fast
    {"effective": NOW, "issued": NOW - 24 * HOUR},
    {"observations": (seen(reference_ranges=(ReferenceRange(age=Range(low=amount(0, "a"))),)),)},
    {"observations": (seen(reference_ranges=(ReferenceRange(age=Range(high=amount("0.5", "a"))),)),)},
    *({"effective": PartialDate(text)} for text in ("1900", "2025-12", "2026", "2026-03", "2026-03-03", "2026-03-04")),
    {"effective": NOW - 9000 * HOUR},  # a culture takes its time, and a correction comes when it comes
    {"status": ReportStatus.REGISTERED, "effective": NOW + 200 * HOUR, "observations": ()},
    {"status": ReportStatus.PARTIAL, "observations": ()},
    {"observations": (), "documents": (Document(url="x"),)},
    {"observations": (), "not_performed": (NotPerformed(reason="clotted"),)},
    {"observations": (seen(reference_ranges=(ReferenceRange(low=amount(9), high=amount(2, "mg/L")),)),)},
    {"observations": (seen(reference_ranges=(ReferenceRange(low=amount(2), high=amount(2)), ReferenceRange(high=amount(2)))),)},
]


@pytest.mark.parametrize(("fields", "where"), [*ODD, *((fields, []) for fields in MEANT)])
def test_implausible_values_questioned_by_field(fields: dict[str, Any], where: list[str]) -> None:
    """And everyday ones are not."""
    problems = list(implausible_values(report(**fields), NOW))
    assert [problem.where for problem in problems] == where
    assert all(problem.hint for problem in problems)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({"version": 0, "sequence": 9}, {"version": 1, "sequence": 1}),
        ({"issued": NOW, "sequence": 9}, {"issued": NOW + HOUR, "sequence": 1}),
        ({"sequence": 1}, {"sequence": 2}),
        ({"version": 2, "issued": NOW, "sequence": 9}, {"issued": NOW + HOUR, "sequence": 1}),
        ({"issued": NOW + HOUR, "sequence": 1}, {"sequence": 2}),
    ],
)
def test_versions_ordered_by_number_issued_then_arrival(older: dict[str, Any], newer: dict[str, Any]) -> None:
    """The order of versions is the explicit one, then the time of issue, then arrival; the first that all of them carry."""
    first, second = record(**older), record(**newer)
    order = VersionOrder.of([first, second])
    assert order.is_older(first, second)
    assert not order.is_older(first, first)
    assert not order.is_older(second, first)


def test_versions_with_and_without_number_have_one_order() -> None:
    """Two by two, these three would go round in a ring: 1 < 2 by number, 2 < none and none < 1 by the time of issue."""
    one = record(version=1, issued=NOW + 2 * HOUR, sequence=1)
    two = record(version=2, issued=NOW, sequence=2)
    none = record(issued=NOW + HOUR, sequence=3)
    order = VersionOrder.of([one, two, none])
    assert {order.oldest_first(given) for given in permutations([one, two, none])} == {(two, none, one)}
    assert order.is_older(two, one)


def record(**more: Any) -> ReportRecord:
    return ReportRecord(key=ReportKey("P"), source="s", message="m", received_at=NOW, changed_at=NOW, body=b"{}", **more)


@pytest.mark.parametrize(
    ("message", "before", "newest", "expected"),
    [
        ({}, {}, {"sequence": 1}, True),
        ({}, {}, {"sequence": 2, "issued": NOW + HOUR}, True),
        ({}, {}, {"sequence": 2, "issued": NOW}, False),
        ({"issued": NOW - HOUR}, {}, {"sequence": 2, "issued": NOW + HOUR}, False),
        ({}, {}, {"sequence": 2, "issued": None}, False),
        ({"version": 1}, {"version": 1}, {"sequence": 2, "version": 2, "issued": NOW}, True),
        ({"version": 2}, {"version": 2}, {"sequence": 2, "version": 2, "issued": NOW + HOUR}, False),
        ({"version": 1}, {"version": 1}, {"sequence": 2, "issued": NOW + HOUR}, True),
    ],
)
def test_message_repeated_unless_something_came_between(message, before, newest, expected) -> None:
    assert is_repeat(report(**message), report(**before), record(sequence=1), record(**newest)) is expected


def test_local_time_exists_twice_when_clocks_go_back() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    twice = [exists_twice(datetime(2026, 10, 25, hour, 30, tzinfo=zone)) for zone in (berlin, UTC) for hour in (1, 2, 3)]
    assert twice == [False, True, False, False, False, False]


@pytest.mark.parametrize(
    ("given", "corrects"),
    [
        (report(seen(), seen()), False),
        (report(correction=True), True),
        (report(seen(), seen(status=ObservationStatus.AMENDED)), True),
    ],
)
def test_correction_is_said_of_report_or_value(given: LabReport, corrects: bool) -> None:
    assert given.is_correction is corrects

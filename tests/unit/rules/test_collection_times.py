"""When a collection time is ahead of our clock, to the second, and which samples a tolerance test needs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.catalogue.model import Catalogue
from lab_agent.rules import collection_times
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.rules.context import Facts, RuleContext
from lab_agent.rules.rule import Violation
from tests.unit.rules.test_catalogue_history import with_item
from tests.unit.rules.test_rule_table import tolerance

SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)
AHEAD, FUTURE = "specimen.collected-ahead", "specimen.collected-future"


def told(order: Any, facts: Facts) -> dict[str, Violation]:
    context = RuleContext(order, None, facts)
    rules = (collection_times._check_collected_ahead, collection_times._check_collected_future)
    return {rule.id: each for rule in rules for each in rule.check(context)}


@pytest.mark.parametrize(
    ("ahead", "offset", "rules"),
    [
        (-5 * MINUTE, 0 * SECOND, []),
        (15 * MINUTE, 0 * SECOND, []),
        (15 * MINUTE + SECOND, 0 * SECOND, [AHEAD]),
        (DAY, 0 * SECOND, [AHEAD]),
        (DAY + SECOND, 0 * SECOND, [FUTURE]),
        (DAY + SECOND, 15 * MINUTE, [FUTURE]),
        (DAY + SECOND, -15 * MINUTE, [FUTURE]),
        (DAY + SECOND, 15 * MINUTE + SECOND, [AHEAD]),
        (DAY + SECOND, None, [AHEAD]),
    ],
)
def test_time_is_ahead_beyond_the_tolerance(
    wire: dict[str, Any], order_from_wire: Any, facts: Facts, ahead: timedelta, offset: timedelta | None, rules: list[str]
) -> None:
    wire["resources"]["Specimen/s1"]["collection"]["collectedDateTime"] = (facts.now + ahead).isoformat()
    assert list(told(order_from_wire(wire), replace(facts, service_clock_offset=offset))) == rules


@pytest.mark.parametrize(("offset", "text"), [(None, "?"), (90.4, "90"), (-90, "-90"), (0, "0")])
def test_time_ahead_is_told_with_the_clocks_offset(
    wire: dict[str, Any], order_from_wire: Any, facts: Facts, offset: float | None, text: str
) -> None:
    at = (facts.now + 20 * MINUTE).isoformat()
    wire["resources"]["Specimen/s1"]["collection"]["collectedDateTime"] = at
    known = replace(facts, service_clock_offset=None if offset is None else timedelta(seconds=offset))
    found = told(order_from_wire(wire), known)[AHEAD]
    assert (found.values, found.evidence) == ({"text": at, "offset": text}, (at,))


@pytest.mark.parametrize(
    ("period", "is_ahead"),
    [
        ({"start": -60, "end": 20}, True),
        ({"start": 20}, True),
        ({"end": 20}, True),
        ({"start": 20, "end": -60}, False),
        ({"start": -60}, False),
    ],
)
def test_end_of_a_period_counts_before_its_start(
    wire: dict[str, Any], order_from_wire: Any, facts: Facts, period: dict[str, int], is_ahead: bool
) -> None:
    ends = {name: (facts.now + minutes * MINUTE).isoformat() for name, minutes in period.items()}
    collection = wire["resources"]["Specimen/s1"]["collection"]
    del collection["collectedDateTime"]
    collection["collectedPeriod"] = ends
    assert bool(told(order_from_wire(wire), facts)) is is_ahead


def with_ways(catalogue: Catalogue, *ways: tuple[int, ...]) -> CatalogueHistory:
    """The tolerance test may be taken from several body sites, each with time points of its own."""
    (option,) = catalogue.contract("C-100").items["006.001"].options
    points = {point.minutes: point for point in option.time_points}
    options = tuple(
        replace(
            option,
            option=replace(option.option, bodysite_code=f"S{n}"),
            time_points=tuple(replace(points[0], minutes=each) for each in way),
        )
        for n, way in enumerate(ways)
    )
    return CatalogueHistory.from_catalogue(with_item(catalogue, "006.001", options=options))


@pytest.mark.parametrize(
    ("ways", "points"),
    [
        (((0, 60, 120), (0, 120)), "0, 120"),
        (((0, 120), (0, 60, 120)), "0, 120"),
        (((0, 120), (0, 60)), "0, 60"),
        (((0, 60), (0, 120)), "0, 60"),
        (((0, 30, 60, 90), (0, 60, 120), (60, 120)), "60, 120"),
        (((60, 120), (0, 60, 120), (0, 30, 60, 90)), "60, 120"),
    ],
)
def test_fewest_samples_are_asked_for(
    wire: dict[str, Any],
    order_from_wire: Any,
    catalogue: Catalogue,
    facts: Facts,
    ways: tuple[tuple[int, ...], ...],
    points: str,
) -> None:
    tolerance("08:00:00", points=None)(wire)
    context = RuleContext(order_from_wire(wire), with_ways(catalogue, *ways), facts)
    (found,) = collection_times._check_tolerance_points.check(context)
    assert found.values == {"code": "006.001", "points": points}


@pytest.mark.parametrize(("other_way", "rules"), [((60, 120), ["specimen.tolerance-sequence"]), ((), [])])
def test_way_without_time_points_leaves_times_open(
    wire: dict[str, Any], order_from_wire: Any, catalogue: Catalogue, facts: Facts, other_way: tuple[int, ...], rules: list[str]
) -> None:
    """Samples that do not tell their time points may have been taken that way."""
    tolerance("08:00:00", "09:30:00", points=None)(wire)
    context = RuleContext(order_from_wire(wire), with_ways(catalogue, (0, 60), other_way), facts)
    checks = (collection_times._check_tolerance_points, collection_times._check_tolerance_sequence)
    assert [rule.id for rule in checks if list(rule.check(context))] == rules

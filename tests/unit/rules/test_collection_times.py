"""When a collection time is ahead of our clock, to the second, and what is told of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.rules import collection_times
from lab_agent.rules.context import Facts, RuleContext
from lab_agent.rules.rule import Violation

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

"""When the time of an order is in the future, and when a follow-up study needs the number of the earlier order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.rules.context import Facts
from tests.unit.rules.test_rule_table import Wire, alone, follow_up, pr1

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


@pytest.mark.parametrize(
    ("ahead", "is_future"), [(-MINUTE, False), (MINUTE, False), (15 * MINUTE, False), (15 * MINUTE + SECOND, True)]
)
def test_order_is_of_the_future_beyond_the_tolerance(
    wire: Wire, assess_wire: Any, rule_outcomes: Any, facts: Facts, ahead: timedelta, is_future: bool
) -> None:
    pr1(wire)["occurrenceDateTime"] = (facts.now + ahead).isoformat()
    assert rule_outcomes(assess_wire(wire)) == ({"line.time-future": "warn"} if is_future else {})


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("beside_others", [True, False])
def test_old_order_number_is_needed_alone_or_as_set(
    wire: Wire, assess_wire: Any, rule_outcomes: Any, facts: Facts, is_alone: bool, beside_others: bool
) -> None:
    follow_up(None)(wire)
    if is_alone:
        alone(wire)
    found = rule_outcomes(assess_wire(wire, facts=replace(facts, old_order_beside_others=beside_others)))
    assert found == ({"line.old-order": "refuse"} if is_alone or beside_others else {})

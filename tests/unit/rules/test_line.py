"""When the time of an order is in the future."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lab_agent.rules.context import Facts
from tests.unit.rules.test_rule_table import Wire, pr1

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


@pytest.mark.parametrize(
    ("ahead", "is_future"), [(-MINUTE, False), (MINUTE, False), (15 * MINUTE, False), (15 * MINUTE + SECOND, True)]
)
def test_order_is_of_the_future_beyond_the_tolerance(
    wire: Wire, assess_wire: Any, rule_outcomes: Any, facts: Facts, ahead: timedelta, is_future: bool
) -> None:
    pr1(wire)["occurrenceDateTime"] = (facts.now + ahead).isoformat()
    assert rule_outcomes(assess_wire(wire)) == ({"line.time-future": "warn"} if is_future else {})

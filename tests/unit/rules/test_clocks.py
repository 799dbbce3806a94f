"""How a difference of clocks is told, and what waits for it; and by which right the laboratory may do what it does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lab_agent.rules.clocks import clocks_differ, defer, format_difference
from lab_agent.rules.engine import RULES
from lab_agent.rules.rule import Violation


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 seconds"),
        (1, "1 second"),
        (29, "29 seconds"),
        (31, "1 minute"),
        (60, "1 minute"),
        (120, "2 minutes"),
        (1_799, "30 minutes"),
        (1_801, "1 hour"),
        (7_200, "2 hours"),
        (43_199, "12 hours"),
        (43_201, "1 day"),
        (172_800, "2 days"),
    ],
)
def test_difference_is_told_in_its_largest_unit(seconds: float, text: str) -> None:
    assert format_difference(timedelta(seconds=seconds)) == text


def test_what_waits_for_the_clocks_keeps_its_place_and_evidence() -> None:
    birth = next(each for each in RULES if each.id == "patient.birth-possible")
    deferred = defer(Violation("Patient", ("t1",), {"x": "y"}, ("seen",)), birth, timedelta(hours=1))
    assert deferred == Violation(
        "Patient", ("t1",), {"rule": "patient.birth-possible", "difference": "1 hour"}, ("patient.birth-possible", "seen")
    )
    assert clocks_differ.id == "order.clocks-differ"


@pytest.mark.parametrize(
    ("security", "lacks"),
    [
        ([], False),
        ([("updatebody", "lab-guid")], False),
        ([("owner", "lab-guid")], False),
        ([("read", "lab-guid")], True),
        ([("owner", "other")], True),
        ([("updatebody", "other"), ("read", "lab-guid")], True),
    ],
)
def test_right_is_ours_by_name_or_as_owner(
    wire: dict[str, Any], assess_wire: Any, rule_outcomes: Any, security: list[tuple[str, str]], lacks: bool
) -> None:
    wire["order_task"]["meta"] = {"security": [{"system": name, "code": code} for name, code in security]}
    assert ("rights.update" in rule_outcomes(assess_wire(wire))) is lacks

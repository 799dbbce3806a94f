"""What holds orders is said in words, whatever rule it is."""

from __future__ import annotations

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.orders_and_results import HOLD_CAUSES, RESULT_HOLDS
from lab_agent.conditions.table import CONDITIONS
from lab_agent.domain.order_holds import HoldCause
from lab_agent.domain.report_records import HoldReason
from lab_agent.rules.engine import RULES
from lab_agent.rules.rule import Rule, Severity

HELD = CONDITIONS[ConditionId.ORDERS_HELD]


@pytest.mark.parametrize("rule", [each for each in RULES if Severity.HOLD in each.allowed_severities], ids=lambda rule: rule.id)
def test_rule_that_can_hold_has_words(rule: Rule) -> None:
    title = HELD.fill(HELD.title, rule.id)
    if rule.severity is Severity.HOLD:
        assert title == f"Orders are held: {HOLD_CAUSES[rule.id]}"
    else:
        assert title == f"Orders are held: our settings let rule {rule.id} hold what it would reject or warn of"


def test_words_are_of_what_can_hold() -> None:
    assert set(HOLD_CAUSES) == {*HoldCause, *(each.id for each in RULES if each.severity is Severity.HOLD)}
    assert set(RESULT_HOLDS) == set(HoldReason)

"""The first sentence that a page says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AffectedCount, OpenCondition, Severity
from lab_agent.conditions.table import CONDITIONS
from lab_agent.monitoring.verdict import Verdict, give_verdict

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


def found(condition: ConditionId, *affected: AffectedCount, minutes: float = 12, subject: str = "") -> OpenCondition:
    since = NOW - timedelta(minutes=minutes)
    return OpenCondition(condition=CONDITIONS[condition], subject=subject, since=since, affected=affected)


ORDERS, RESULTS = (
    AffectedCount(number=3, noun="order", rest=" to fetch"),
    AffectedCount(number=4, noun="result", rest=" to deliver"),
)
OUTAGE = found(ConditionId.EXCHANGE_UNAVAILABLE, ORDERS, RESULTS)


@pytest.mark.parametrize(
    ("conditions", "waiting", "text", "severity"),
    [
        ((), 0, "Works: nothing waits for a person.", None),
        ((found(ConditionId.LIS_NEEDS_RESTART, subject="hl7"),), 0, "Works: nothing waits for a person.", None),
        ((), 1, "Works, and 1 thing waits for a person.", Severity.WARNING),
        ((), 7, "Works, and 7 things wait for a person.", Severity.WARNING),
        (
            (OUTAGE,),
            7,
            "The exchange service does not answer, for 12 min; 3 orders to fetch and 4 results to deliver wait.",
            Severity.CRITICAL,
        ),
        (
            (OUTAGE, found(ConditionId.RESULTS_HELD), found(ConditionId.BACKUP_OLD), found(ConditionId.LIS_NEEDS_RESTART)),
            0,
            "The exchange service does not answer, for 12 min; 3 orders to fetch and 4 results to deliver wait. And 2 more.",
            Severity.CRITICAL,
        ),
        (
            (found(ConditionId.RESULTS_HELD, AffectedCount(number=1, noun="result"), subject="whatever"),),
            0,
            "Results are held: whatever, for 12 min; 1 result waits.",
            Severity.WARNING,
        ),
        (
            (found(ConditionId.DISK_LOW, subject="/srv", minutes=-5),),
            0,
            "The disk of /srv is nearly full, for 0 s; once it is full, nothing can be written there.",
            Severity.WARNING,
        ),
    ],
    ids=["works", "notice", "one waits", "some wait", "outage", "several", "one", "clock was set back"],
)
def test_verdict_is_made_of_the_worst_condition(
    conditions: tuple[OpenCondition, ...], waiting: int, text: str, severity: Severity | None
):
    assert give_verdict(conditions, NOW, waiting) == Verdict(text, severity)


def test_verdict_is_one_line_whatever_a_subject_holds():
    text = give_verdict([found(ConditionId.LIS_UNAVAILABLE, subject="x\n\u202e" + "y" * 5000)], NOW).text
    assert text.isprintable()
    assert len(text) < 400

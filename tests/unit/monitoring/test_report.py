"""Conditions that say the same: the one that says more is told."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.records import Alert
from lab_agent.monitoring.report import list_conditions

NOW = datetime(2026, 3, 2, 3, tzinfo=UTC)
SILENT, DOWN = ConditionId.LIS_SILENT, ConditionId.LIS_UNAVAILABLE
PART, UNCONFIRMED = ConditionId.EXCHANGE_PART_UNAVAILABLE, ConditionId.JOBS_OUTCOME_UNKNOWN


def told(*keys: tuple[ConditionId, str]) -> set[AlertKey]:
    alerts = [Alert(condition=condition, subject=subject, detail="", since=NOW, opened_at=NOW) for condition, subject in keys]
    return {each.key for each in list_conditions(alerts, None)}


@pytest.mark.parametrize(
    ("found", "left_out"),
    [
        ([(SILENT, "one"), (DOWN, "one")], {(SILENT, "one")}),
        ([(SILENT, "one"), (DOWN, "two")], set()),
        ([(SILENT, "one"), (SILENT, "two"), (DOWN, "two")], {(SILENT, "two")}),
        ([(ConditionId.JOBS_LIS_UNAVAILABLE, "one"), (DOWN, "two")], set()),
        ([(PART, "deliver_report"), (UNCONFIRMED, "")], {(PART, "deliver_report")}),
        ([(PART, "deliver_report"), (ConditionId.JOBS_WRITE_REJECTED, "")], set()),
    ],
)
def test_what_another_says_about_the_same_subject_is_left_out(
    found: list[tuple[ConditionId, str]], left_out: set[tuple[ConditionId, str]]
) -> None:
    assert told(*found) == set(found) - left_out

"""What is counted by the hour, and by five minutes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from lab_agent.domain.activity import HOUR, HourlyActivity, Measure, hour_of, summarize
from lab_agent.domain.api_refusals import KEPT, PERIOD, PROBE_USER_AGENT, period_start

NOW = datetime(2026, 1, 2, 3, 44, 55, 123, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "median", "percentile"),
    [
        ((), None, None),
        ((3.0, 1.0, 2.0), 2.0, 3.0),
        (tuple(float(each) for each in range(100, 0, -1)), 51.0, 96.0),
        ((1.00061, 1.0), 1.001, 1.001),
    ],
)
def test_times_of_an_hour_are_summarized(seconds: tuple[float, ...], median: float | None, percentile: float | None) -> None:
    assert summarize(NOW, Measure.FAILURES, 7, seconds) == HourlyActivity(
        hour=NOW, measure=Measure.FAILURES, count=7, median=median, percentile_95=percentile
    )


def test_counts_are_by_the_hour_and_by_five_minutes() -> None:
    assert (hour_of(NOW), HOUR) == (datetime(2026, 1, 2, 3, tzinfo=UTC), timedelta(hours=1))
    forty = datetime(2026, 1, 2, 3, 40, tzinfo=UTC)
    half_past = timezone(timedelta(hours=5, minutes=30))
    assert period_start(NOW) == period_start(forty) == period_start(NOW.astimezone(half_past)) == forty
    assert (timedelta(minutes=5), timedelta(days=2), "lab-agent-probe") == (PERIOD, KEPT, PROBE_USER_AGENT)

"""Ages in their two largest units."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lab_agent.domain.ages import format_age

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.9, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (119, "1 min"),
        (3_599, "59 min"),
        (3_600, "1 h"),
        (3_660, "1 h 1 min"),
        (86_340, "23 h 59 min"),
        (86_399, "23 h 59 min"),
        (86_400, "1 d"),
        (90_000, "1 d 1 h"),
        (270_000, "3 d 3 h"),
        (345_600, "4 d"),
        (-1, "in 1 s"),
        (-300, "in 5 min"),
    ],
)
def test_age_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_age(NOW - timedelta(seconds=seconds), NOW) == text


def test_age_of_nothing_is_never() -> None:
    assert format_age(None, NOW) == "never"

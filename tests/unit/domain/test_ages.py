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
        (59, "59 s"),
        (60, "1 min"),
        (3_600, "1 h"),
        (3_660, "1 h 1 min"),
        (86_399, "23 h 59 min"),
        (86_400, "1 d"),
        (90_000, "1 d 1 h"),
        (-1, "in 1 s"),
    ],
)
def test_age_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_age(NOW - timedelta(seconds=seconds), NOW) == text
    assert format_age(None, NOW) == "never"

"""Moments and hours as staff write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from lab_agent.catalogue import notices
from lab_agent.shared.errors import DataInvalidError

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("12h", NOW + timedelta(hours=12)),
        (" 3D ", NOW + timedelta(days=3)),
        ("2026-11-20T08:00+03:00", datetime(2026, 11, 20, 5, tzinfo=UTC)),
        ("2026-11-20T08:00Z", datetime(2026, 11, 20, 8, tzinfo=UTC)),
        ("2026-11-20", datetime(2026, 11, 20).astimezone()),
        ("2026-11-20T08:00", datetime(2026, 11, 20, 8).astimezone()),
    ],
)
def test_time_parsed_in_every_accepted_form(text: str, meant: datetime) -> None:
    assert notices.parse_time("until", text, NOW) == meant


EXTREMES = ["99999d", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "0001-01-01"]


@pytest.mark.parametrize("text", ["", "soon", "12", "12m", "-3d", "2026-13-01", "\x00", *EXTREMES])
def test_invalid_time_error_names_field(text: str) -> None:
    with pytest.raises(DataInvalidError) as caught:
        notices.parse_time("until", text, NOW)
    (problem,) = caught.value.problems
    assert (problem.where, problem.hint) == ("until", "write it as 2026-11-20T08:00+03:00, 2026-11-20, 12h or 3d")


@pytest.mark.parametrize(("text", "meant"), [("24", "24"), ("1,5", "1.5"), ("0.250", "0.250"), ("999999", "999999")])
def test_hours_parsed_with_exact_digits(text: str, meant: str) -> None:
    assert str(notices.parse_hours("hours", text)) == meant == str(Decimal(meant))


@pytest.mark.parametrize(
    "text", ["", "x", "NaN", "Infinity", "1e999999", "1e-999999", "0e999999", "1" * 30, "٣٫٥", "1,5,0", "--1"]
)
def test_invalid_hours_error_names_field(text: str) -> None:
    with pytest.raises(DataInvalidError) as caught:
        notices.parse_hours("hours", text)
    assert [(problem.where, problem.hint) for problem in caught.value.problems] == [("hours", "write digits, as in 24")]

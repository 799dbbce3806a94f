"""Dates of which not all is known, moments compared with them, and ranges."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from lab_agent.shared.values import (
    DateOrTime,
    PartialDate,
    Quantity,
    day_span,
    earliest_moment,
    is_calculable,
    is_certainly_after,
    is_in_calendar,
    is_inverted_range,
    latest_moment,
    to_local,
)

NOON = datetime(2024, 5, 17, 12, tzinfo=UTC)


def amount(value: str, unit: str = "mmol/L", code: str | None = None) -> Quantity:
    return Quantity(value=Decimal(value), unit=unit, code=code)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2024", date(2024, 1, 1), date(2024, 12, 31)),
        ("2024-02", date(2024, 2, 1), date(2024, 2, 29)),
        ("2023-02", date(2023, 2, 1), date(2023, 2, 28)),
        ("2024-05-17", date(2024, 5, 17), date(2024, 5, 17)),
    ],
)
def test_partial_date_means_a_span_of_days(text: str, first: date, last: date) -> None:
    value = PartialDate(text)
    assert (value.first_day, value.last_day, value.isoformat()) == (first, last, text)
    assert day_span(value) == (first, last)
    assert day_span(first) == (first, first)


@pytest.mark.parametrize("text", ["", "24", "2024-5", "2024-13", "2024-02-30", "2024-05-17T12:00", "٢٠٢٤"])
def test_other_text_is_no_partial_date(text: str) -> None:
    with pytest.raises(ValueError, match=r"date|month|day|isoformat"):
        PartialDate(text)


def test_date_lies_between_its_moments() -> None:
    assert (earliest_moment(NOON), latest_moment(NOON)) == (NOON, NOON)
    may = PartialDate("2024-05")
    assert earliest_moment(may) == datetime(2024, 5, 1, tzinfo=UTC)
    assert latest_moment(may) == datetime(2024, 5, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other", "after"),
    [
        (NOON, NOON, False),
        (NOON.replace(minute=1), NOON, True),
        (NOON, NOON.replace(minute=1), False),
        (NOON, PartialDate("2024-05-17"), False),
        (NOON, PartialDate("2024-05-16"), True),
        (PartialDate("2024-05-17"), NOON, False),
        (PartialDate("2024-05-18"), NOON, True),
        (PartialDate("2024-05"), PartialDate("2024-05-17"), False),
        (PartialDate("2024-06"), PartialDate("2024-05"), True),
        (PartialDate("2024"), PartialDate("2024"), False),
    ],
)
def test_comparison_is_certain_whatever_a_date_means(one: DateOrTime, other: DateOrTime, after: bool) -> None:
    assert is_certainly_after(one, other) is after


@pytest.mark.parametrize(
    ("low", "high", "inverted"),
    [
        (amount("2"), amount("1"), True),
        (amount("1"), amount("1"), False),
        (amount("1"), amount("2"), False),
        (amount("2"), None, False),
        (None, amount("1"), False),
        (amount("2"), amount("1", "g/L"), False),
        (amount("2", code="a"), amount("1", code="b"), False),
    ],
)
def test_range_is_inverted_where_low_is_larger(low: Quantity | None, high: Quantity | None, inverted: bool) -> None:
    assert is_inverted_range(low, high) is inverted


FIRST, LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC)
EAST, WEST, MOMENT = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12)), timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("moment", "inside"),
    [
        (FIRST, True),
        (FIRST - MOMENT, False),
        (FIRST.astimezone(EAST), True),
        ((FIRST - MOMENT).astimezone(EAST), False),
        (datetime(1, 1, 1, tzinfo=EAST), False),
        (datetime(1, 1, 1, 12, tzinfo=WEST), True),
        (LAST, True),
        (LAST + MOMENT, False),
        (LAST.astimezone(WEST), True),
        ((LAST + MOMENT).astimezone(WEST), False),
        (datetime(9999, 12, 31, 23, 59, tzinfo=WEST), False),
        (NOON, True),
    ],
)
def test_calendar_ends_a_day_before_its_ends(moment: datetime, inside: bool) -> None:
    assert is_in_calendar(moment) is inside
    if inside:
        assert {moment.astimezone(zone) for zone in (EAST, WEST)} == {moment}


def test_time_is_calculable_far_from_calendars_ends() -> None:
    for year, calculable in ((1, False), (1099, False), (1100, True), (2026, True), (8999, True), (9000, False), (9999, False)):
        assert is_calculable(datetime(year, 1, 1, tzinfo=UTC)) is calculable
        assert is_calculable(datetime(year, 12, 31, 23, 59, tzinfo=UTC)) is calculable


def test_time_is_given_in_this_machines_zone() -> None:
    """But at the calendar's end it stays in its own."""
    assert (to_local(NOON), to_local(NOON).utcoffset()) == (NOON, NOON.astimezone().utcoffset())
    for moment in (datetime(1, 1, 1, tzinfo=EAST), datetime(9999, 12, 31, 23, 59, tzinfo=WEST)):
        assert to_local(moment).isoformat() == moment.isoformat()

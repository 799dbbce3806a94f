"""Small values that orders and results share, named as FHIR names them."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

_PARTIAL_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identifier:
    """A value that names something within a system (an address)."""

    system: str | None = None
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """A code within a system."""

    system: str | None = None
    code: str
    display: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeableConcept:
    """Codings of one meaning, and the words for people."""

    coding: tuple[Coding, ...] = ()
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A measured amount; `value` keeps the digits that it came with. `comparator` is one of < <= >= >."""

    value: Decimal
    comparator: str | None = None
    unit: str | None = None
    system: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """From `low` to `high`; one of them may be missing."""

    low: Quantity | None = None
    high: Quantity | None = None


LOW_HIGH_HINT = "give low and high so that low is the smaller one"


def is_inverted_range(low: Quantity | None, high: Quantity | None) -> bool:
    """Whether low is the larger one; amounts in different units are not compared."""
    return low is not None and high is not None and (low.code, low.unit) == (high.code, high.unit) and low.value > high.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """`numerator` to `denominator`, such as a titre."""

    numerator: Quantity
    denominator: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledData:
    """A series of samples (FHIR STU3 SampledData): `period` in milliseconds between samples, `data` as decimals and E, U, L."""

    origin: Quantity
    period: Decimal
    dimensions: int
    data: str
    factor: Decimal | None = None
    lower_limit: Decimal | None = None
    upper_limit: Decimal | None = None


@dataclass(frozen=True, slots=True)
class PartialDate:
    """A date of which no time is known, as FHIR's dateTime has it: `2024`, `2024-05` or `2024-05-17`.

    Raises `ValueError` for any other text, and for a day that does not exist.
    """

    text: str

    def __post_init__(self) -> None:
        if not _PARTIAL_DATE.fullmatch(self.text):
            raise ValueError("a date is written as 2024, 2024-05 or 2024-05-17")
        _ = self.first_day

    @property
    def first_day(self) -> date:
        """The first day that it may mean."""
        return date.fromisoformat(self.text + "-01-01"[len(self.text) - len("2024") :])

    @property
    def last_day(self) -> date:
        """The last day that it may mean."""
        first = self.first_day
        if len(self.text) == len("2024-05-17"):
            return first
        month = first.month if len(self.text) == len("2024-05") else 12
        return first.replace(month=month, day=calendar.monthrange(first.year, month)[1])

    def isoformat(self) -> str:
        """Give it as it was written, which is ISO 8601."""
        return self.text


BirthDate = date | PartialDate
"""A whole date, or the year or month where no more is known (FHIR STU3: date)."""


def may_be_same_day(one: BirthDate, other: BirthDate) -> bool:
    """Whether two dates agree as far as both say: `1980` and `1980-05-17` do."""
    length = min(len(one.isoformat()), len(other.isoformat()))
    return one.isoformat()[:length] == other.isoformat()[:length]


def day_span(value: BirthDate) -> tuple[date, date]:
    """The first and the last day that it may mean."""
    return (value.first_day, value.last_day) if isinstance(value, PartialDate) else (value, value)


DateOrTime = datetime | PartialDate
"""A moment, or the date of it where no time is known."""


def earliest_moment(value: DateOrTime) -> datetime:
    """The first moment that a date may mean in UTC, or the moment itself."""
    return value if isinstance(value, datetime) else datetime.combine(value.first_day, time.min, UTC)


def latest_moment(value: DateOrTime) -> datetime:
    """The last moment that a date may mean in UTC, or the moment itself."""
    return value if isinstance(value, datetime) else datetime.combine(value.last_day, time.max, UTC)


_DAY = timedelta(days=1)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC) + _DAY, datetime.max.replace(tzinfo=UTC) - _DAY
_CALCULABLE_YEARS = range(1100, 9000)


def is_in_calendar(moment: datetime) -> bool:
    """Whether a time can be written in every time zone: the calendar ends with the years 1 and 9999."""
    return _FIRST <= moment <= _LAST


def is_calculable(moment: datetime) -> bool:
    """Whether a time can be moved by whatever the rules move times by: the clocks' difference, or the catalogue's hours.

    Clocks differ by less than 1,000 years (`clock_comparison`), and no test takes more than a century. The years 1 and 9999,
    which programs write for "no time" and "for ever", are none of these.
    """
    return moment.year in _CALCULABLE_YEARS


def to_local(moment: datetime) -> datetime:
    """A time in this machine's time zone; as it is at the ends of the calendar, which the zone may not have."""
    try:
        return moment.astimezone()
    except (OverflowError, ValueError, OSError):
        return moment


def is_certainly_after(one: DateOrTime, other: DateOrTime) -> bool:
    """Whether one lies after the other, whatever a date may mean; a date and a time are compared by the days as written."""
    if isinstance(one, datetime) and isinstance(other, datetime):
        return one > other
    first = one.date() if isinstance(one, datetime) else one.first_day
    return first > (other.date() if isinstance(other, datetime) else other.last_day)


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """From `start` to `end`; one of them may be missing."""

    start: DateOrTime | None = None
    end: DateOrTime | None = None

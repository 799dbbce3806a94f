"""HL7 timestamps: `YYYYMMDDHHMMSS.ffff+ZZZZ`, possibly shortened. Nothing is invented: no zone, no minutes."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo

from lab_agent.shared.values import BirthDate, DateOrTime, PartialDate, is_in_calendar

_TIMESTAMP = re.compile(
    r"(?P<year>\d{4})(?:(?P<month>\d\d)(?:(?P<day>\d\d)"
    r"(?:(?P<hour>\d\d)(?:(?P<minute>\d\d)(?:(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6})\d*)?)?)?)?)?)?"
    r"(?P<zone>[+-]\d{4})?\Z",
    re.ASCII,
)
_TIME_OF_DAY = re.compile(
    r"(?P<hour>\d\d)(?P<minute>\d\d)(?:(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6})\d*)?)?(?P<zone>[+-]\d{4})?\Z", re.ASCII
)


class InvalidTimestampError(ValueError):
    """An invalid timestamp; the text says why."""


def format_timestamp(moment: datetime) -> str:
    """Write a time with its offset, and with fractions of a second where it has any."""
    fraction = f".{moment.microsecond // 100:04d}".rstrip("0").rstrip(".")
    return f"{format_date(moment)}{moment:%H%M%S}{fraction}" + f"{moment:%z}"[:5]


def format_date(value: BirthDate) -> str:
    """Write a date, as far as it is known: `19800517`, `198005` or `1980`."""
    return value.text.replace("-", "") if isinstance(value, PartialDate) else f"{value.year:04d}{value:%m%d}"


def parse_timestamp(text: str, zone: tzinfo | None) -> datetime:
    """Read a time with a day at least; `zone` applies if it has none. Raises `InvalidTimestampError`."""
    found = _TIMESTAMP.match(text.strip())
    if found is None or found["day"] is None:
        raise InvalidTimestampError("is not a time such as 20240517083000+0300")
    tz = _parse_offset(found["zone"]) or zone
    if tz is None:
        raise InvalidTimestampError("has no time zone, and the setting time_zone is not set")
    try:
        parts = [int(found[name] or 0) for name in ("year", "month", "day", "hour", "minute", "second")]
        year, month, day, hour, minute, second = parts
        read = datetime(year, month, day, hour, minute, second, _microseconds(found["fraction"]), tzinfo=tz)
    except ValueError as exc:
        raise InvalidTimestampError("is not a valid date and time") from exc
    if not is_in_calendar(read):
        raise InvalidTimestampError("is out of range")
    return read


def has_minutes(text: str) -> bool:
    """Whether a time is more precise than a day."""
    found = _TIMESTAMP.match(text.strip())
    return found is not None and found["minute"] is not None


def parse_partial_date(text: str) -> str:
    """Read a date of any precision as ISO 8601: 2024, 2024-05 or 2024-05-17. Raises `InvalidTimestampError`.

    Of an hour without minutes only the day is kept: FHIR's dateTime has no hour alone.
    """
    found = _TIMESTAMP.match(text.strip())
    if found is None:
        raise InvalidTimestampError("is not a date such as 20240517")
    try:
        date(int(found["year"]), int(found["month"] or 1), int(found["day"] or 1))
    except ValueError as exc:
        raise InvalidTimestampError("is not a valid date") from exc
    if int(found["hour"] or 0) > 23:
        raise InvalidTimestampError("is not a valid date and time")
    return "-".join(part for part in (found["year"], found["month"], found["day"]) if part)


def parse_date_or_time(text: str, zone: tzinfo | None) -> DateOrTime:
    """Read a time; a day, month or year without minutes is a date: midnight would be invented. Raises `InvalidTimestampError`."""
    return parse_timestamp(text, zone) if has_minutes(text) else PartialDate(parse_partial_date(text))


def parse_time_of_day(text: str) -> time:
    """Read a time of day, ignoring its zone. Raises `InvalidTimestampError`."""
    found = _TIME_OF_DAY.match(text.strip())
    if found is None:
        raise InvalidTimestampError("is not a time of day such as 0830")
    try:
        return time(int(found["hour"]), int(found["minute"]), int(found["second"] or 0), _microseconds(found["fraction"]))
    except ValueError as exc:
        raise InvalidTimestampError("is not a valid time of day") from exc


def _microseconds(fraction: str | None) -> int:
    return int((fraction or "").ljust(6, "0"))


def _parse_offset(text: str | None) -> tzinfo | None:
    if text is None:
        return None
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[3:5]))
    if int(text[3:5]) > 59 or offset >= timedelta(hours=24):
        raise InvalidTimestampError("has an invalid UTC offset")
    return UTC if not offset else timezone(-offset if text[0] == "-" else offset)

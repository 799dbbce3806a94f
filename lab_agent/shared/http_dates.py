"""Times in HTTP headers: dates, and how long a service asks to wait. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_MAX_RETRY_AFTER = 3600.0
_SECONDS_PATTERN = re.compile(r"([0-9]+(?:\.[0-9]*)?)\s*(?:,.*)?")


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds to wait, from either form of Retry-After (seconds or an HTTP-date); None if it is missing or invalid.

    A proxy may have written a header twice ("120, 120"), and some servers write "30.0": the first number counts. At most an
    hour: a longer wait is more often a wrong clock than a wish. `now` is the time on the clock of who says so: an
    HTTP-date is meant by the same clock as the header Date (`retry_after_of`).
    """
    text = (value or "").strip()
    if text.isascii() and (seconds := _SECONDS_PATTERN.fullmatch(text)):
        return min(float(seconds.group(1)), _MAX_RETRY_AFTER)
    until = parse_http_date(text)
    return None if until is None else min(max(0.0, (until - now).total_seconds()), _MAX_RETRY_AFTER)


def retry_after_of(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds to wait by the headers of a response; `now`, by our clock, is taken only where it has no Date of its own."""
    return parse_retry_after(headers.get("retry-after"), parse_http_date(headers.get("date")) or now)


def parse_http_date(value: str | None) -> datetime | None:
    """Read an HTTP-date, such as that of the header Date; None if it is missing or invalid."""
    try:
        found = parsedate_to_datetime((value or "").strip())
    except (ValueError, TypeError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)

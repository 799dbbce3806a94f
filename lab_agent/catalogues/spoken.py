"""Moments and hours of a notice as staff write them, in a command or on the status page."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

from lab_agent.errors import DataInvalidError, Problem

_DURATION = re.compile(r"([0-9]{1,4})([hd])")
_MAX_DIGITS = 6
"""More hours than a million, or finer parts of one, nobody means; and no arithmetic of ours shall meet 1e999999."""


def parse_time(where: str, text: str, now: datetime) -> datetime:
    """A moment: 2026-11-20T08:00+03:00, 2026-11-20 (midnight), 12h or 3d; without an offset it is in this machine's zone.

    `where` names the option or the field. Raises `DataInvalidError`.
    """
    if found := _DURATION.fullmatch(text.strip().lower()):
        count = int(found[1])
        return now + (timedelta(hours=count) if found[2] == "h" else timedelta(days=count))
    try:
        read = datetime.fromisoformat(text.strip())
        read = read if read.tzinfo else read.astimezone()
        read.astimezone(UTC)  # what no calendar holds in UTC could not be kept
    except (ValueError, OverflowError, OSError) as exc:
        mend = "write it as 2026-11-20T08:00+03:00, 2026-11-20, 12h or 3d"
        raise DataInvalidError((Problem(where, f"{text!r} is not a moment", mend),)) from exc
    return read


def parse_hours(where: str, text: str) -> Decimal:
    """A number of hours; a comma is a point. Raises `DataInvalidError`."""
    try:
        number = Decimal(text.replace(",", "."))
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise DataInvalidError((Problem(where, f"{text!r} is not a number", "write digits, as in 24"),))
    if max(number.adjusted(), -int(number.as_tuple().exponent)) > _MAX_DIGITS:
        raise DataInvalidError((Problem(where, f"{text!r} is out of all measure", "write digits, as in 24"),))
    return number

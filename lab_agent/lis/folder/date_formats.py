"""Dates as a spreadsheet or a laboratory system writes them (17.05.2024 8:30), read into the published form (ISO 8601)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

_TIME_DIRECTIVES = re.compile(r"%[HIMSfpzXcT]")
_DAY_DIRECTIVE = re.compile(r"%d[^%\w]+|[^%\w]+%d")
_SAMPLE = datetime(2024, 11, 28, 17, 45, 59)  # noqa: DTZ001 - to try a format on


@dataclass(frozen=True, slots=True)
class DateFormat:
    """A format of Python's `strptime`, such as `%d.%m.%Y`; a time of day after the date, or none, needs no format of its own."""

    pattern: str

    def __post_init__(self) -> None:
        try:
            read = datetime.strptime(_SAMPLE.strftime(self.pattern), self.pattern)  # noqa: DTZ007 - only its date counts
        except ValueError:
            raise ValueError("is not a format of dates such as %d.%m.%Y or %d.%m.%Y %H:%M") from None
        if read.date() != _SAMPLE.date():
            raise ValueError("must contain day, month and year, such as %d.%m.%Y")

    def to_iso(self, text: str) -> str:
        """The date or time in ISO 8601, only as precise as it is written; a text of another form stays as it is."""
        for pattern in self._patterns():
            try:
                read = datetime.strptime(text, pattern)  # noqa: DTZ007 - the zone, if it is missing, is the adapter's setting
            except ValueError:
                continue
            if _has_separators(pattern) or read.strftime(pattern) == text:
                return _format(read, pattern)
        return text

    def _patterns(self) -> list[str]:
        """The format itself; its date with times as ISO writes them; its date; its month."""
        times = _TIME_DIRECTIVES.search(self.pattern)
        day = self.pattern[: times.start()].rstrip(" T,") if times else self.pattern
        month = [_DAY_DIRECTIVE.sub("", day, count=1)] if _DAY_DIRECTIVE.search(day) else []
        return [self.pattern, *(f"{day} {time}" for time in ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f")), day, *month]


def _has_separators(pattern: str) -> bool:
    """Whether the digits of two parts cannot run into each other, so that leading zeros may be missing."""
    return not re.search(r"%\w%\w", pattern)


def _format(read: datetime, pattern: str) -> str:
    if _TIME_DIRECTIVES.search(pattern):
        return read.isoformat()
    return read.strftime("%Y-%m-%d") if "%d" in pattern or "%j" in pattern else read.strftime("%Y-%m")

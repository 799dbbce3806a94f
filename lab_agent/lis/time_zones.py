"""The setting `time_zone`, which all built-in adapters share: the zone of times that the LIS writes without one."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator


def _validate_time_zone(value: str) -> str:
    if value not in available_timezones():
        raise ValueError("is not a time zone such as Europe/Moscow")
    return value


TimeZoneName = Annotated[str, AfterValidator(_validate_time_zone)]


def to_zone(name: str | None) -> ZoneInfo | None:
    """The zone with that name; None if none is set."""
    return ZoneInfo(name) if name else None

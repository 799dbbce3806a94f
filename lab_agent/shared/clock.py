"""Time: of the day, as a port (`Clock`), and such as only goes forward, whatever is done to the machine's clock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Gives the current time; tests have one that they set."""

    def now(self) -> datetime:
        """The current time, aware and in UTC."""
        ...


CORRECTION = timedelta(seconds=1)
"""By how much a clock may deviate from steady time without having been set."""


def steady_seconds() -> float:
    """Seconds since some moment; unlike those of `time.monotonic`, they go on while the machine is suspended (Linux)."""
    boot_time: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment by our clock, and by steady time, in seconds."""

    at: datetime
    steady: float

    @property
    def zero(self) -> datetime:
        """What our clock said, or would have said, at the start of steady time; another one after it was set."""
        return self.at - timedelta(seconds=self.steady)


def drift_allowed(now: Moment, before: Moment) -> timedelta:
    """What a clock that is slewed may deviate without being set: half a thousandth of the time (adjtime), and a second."""
    return CORRECTION + timedelta(seconds=abs(now.steady - before.steady) / 1000)

"""Time that only goes forward, whatever is done to the machine's clock."""

from __future__ import annotations

import time


def steady_seconds() -> float:
    """Seconds since some moment; unlike those of `time.monotonic`, they go on while the machine is suspended (Linux)."""
    boot_time: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)

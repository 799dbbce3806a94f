"""How often a contract may ask. The exchange service is one client for all partners, so the pace is the contract's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from lab_api.problems import Refused


class Pace:
    """A bucket for each contract: `burst` requests at once, refilled at `rate` a second. For the contracts that exist alone."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, contract: str) -> None:
        """Count a request of this contract. Raises `Refused` (429) with the seconds after which it may ask again."""
        now = self._clock()
        left, at = self._buckets.get(contract, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._rate)
        if left < 1:
            self._buckets[contract] = (left, now)
            seconds = max(1, math.ceil((1 - left) / self._rate))
            said = f"contract: asks too often — try again in {seconds} s"
            raise Refused(429, "throttled", said, {"Retry-After": str(seconds)})
        self._buckets[contract] = (left - 1, now)

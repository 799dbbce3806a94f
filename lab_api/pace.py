"""How often a contract may ask. The exchange service is one client for all partners, so the pace is the contract's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from lab_api.problems import ApiError


class Unsynced(NamedTuple):
    """So many requests of one contract, the first of them so many seconds ago."""

    requests: int
    seconds: float


class TokenBuckets:
    """A bucket for each contract: `burst` requests at once, refilled at `rate` a second. For the contracts that exist alone.

    It is this process's own; `lab_api.sharing` brings it in step with those of the other processes.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        self._unsynced: dict[str, tuple[int, float]] = {}

    def consume(self, contract: str) -> None:
        """Count a request of this contract. Raises `Refused` (429) with the seconds after which it may ask again."""
        now = self._clock()
        left, at = self._buckets.get(contract, (float(self.burst), now))
        left = min(float(self.burst), left + (now - at) * self.rate)
        if left < 1:
            self._buckets[contract] = (left, now)
            seconds = max(1, math.ceil((1 - left) / self.rate))
            said = f"contract: asks too often — try again in {seconds} s"
            raise ApiError(429, "throttled", said, {"Retry-After": str(seconds)})
        self._buckets[contract] = (left - 1, now)
        count, since = self._unsynced.get(contract, (0, now))
        self._unsynced[contract] = (count + 1, since)

    def unsynced(self) -> dict[str, Unsynced]:
        """What the other processes do not know of, by contract."""
        now = self._clock()
        return {contract: Unsynced(count, now - since) for contract, (count, since) in self._unsynced.items()}

    def apply_shared(self, reported: Mapping[str, Unsynced], remaining: Mapping[str, float]) -> None:
        """Go on from what is left for all processes together, once they were `told`; requests since then count on top."""
        now = self._clock()
        for contract, each in remaining.items():
            more = self._unsynced.pop(contract)[0] - reported[contract].requests
            if more:
                self._unsynced[contract] = (more, now)
            self._buckets[contract] = (each - more, now)

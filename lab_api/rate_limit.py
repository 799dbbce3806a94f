"""One pace for all processes: what each has let through is added up in the store, every two seconds and not with every request.

A contract has one bucket there. Between two looks each process goes by what was left at the last one, so that in such a window
the processes together may let more through; it becomes a debt of the bucket, which all of them wait for. Over any longer time
`api.rate` holds for all together, whichever of them is asked. A process that nobody asks neither reads nor writes.

How often a contract may ask. The exchange service is one client for all partners, so the pace is the contract's.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from lab_agent.ports.repositories import Store, UnitOfWork
from lab_api.catalogue_sync import repeat
from lab_api.errors import ApiError


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


SHARE_INTERVAL = 2.0
"""Seconds between two looks."""
_LOCK_KEY, _BUCKETS_KEY = "api.rate_limit.lock", "api.rate_limit.buckets"
StoredBuckets = dict[str, tuple[float, float]]
"""By contract: what was left, and when (seconds since 1970)."""


class SharedTokenBuckets:
    """Brings the pace of this process in step with that of the others."""

    def __init__(self, store: Store, buckets: TokenBuckets, now: Callable[[], datetime]) -> None:
        self._store = store
        self._buckets = buckets
        self._now = now

    async def run(self) -> None:
        """Keep in step, for as long as the program runs; while the store is away, the process's own pace holds."""
        await repeat(self.share, SHARE_INTERVAL, "the pace")

    async def share(self) -> None:
        """Tell what was let through, and learn what is left. Raises `StoreError`, and then it is told the next time."""
        told, now = self._buckets.unsynced(), self._now().timestamp()
        if told:
            self._buckets.apply_shared(told, await self._store.run(lambda uow: self._debit_stored(uow, told, now)))

    def _debit_stored(self, uow: UnitOfWork, unsynced: Mapping[str, Unsynced], now: float) -> dict[str, float]:
        uow.key_values.set(_LOCK_KEY, str(now))  # whoever writes this first goes first; the others wait until it has committed
        buckets: StoredBuckets = json.loads(uow.key_values.get(_BUCKETS_KEY) or "{}")
        spent = {contract: self._debit(buckets.get(contract), each, now) for contract, each in unsynced.items()}
        uow.key_values.set(_BUCKETS_KEY, json.dumps({**buckets, **spent}))
        uow.commit()
        return {contract: left for contract, (left, _) in spent.items()}

    def _debit(self, bucket: tuple[float, float] | None, unsynced: Unsynced, now: float) -> tuple[float, float]:
        """The bucket after these requests: it was full at the most before the first of them, and was refilled since."""
        burst, rate, began = float(self._buckets.burst), self._buckets.rate, now - unsynced.seconds
        left, at = bucket or (burst, began)
        before = min(burst, left + max(0.0, began - at) * rate)
        after = before + max(0.0, now - max(at, began)) * rate - unsynced.requests
        return min(burst, after), max(
            now, min(at, now + SHARE_INTERVAL)
        )  # no clock of another machine stops the refilling for long

"""How often a contract may ask: one token bucket for each contract, shared by all processes of a store.

The limit is the contract's, since the exchange service is one client for all partners; a reverse proxy cannot keep it, since the
contract of a basket stands in its body. Every two seconds, and not with every request, a process adds its count to the store's
and takes over what is left. In between the processes together may admit more; that becomes a debt of the bucket, so that over
any longer time `api.rate` holds for all of them. An idle process neither reads nor writes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from lab_agent.store.unit_of_work import Store, UnitOfWork
from lab_api.catalogue_sync import repeat
from lab_api.errors import ApiError


class Unsynced(NamedTuple):
    """Requests of one contract that the store does not count yet, and how many seconds ago the first one was."""

    requests: int
    seconds: float


class TokenBuckets:
    """A bucket for each contract: `burst` requests at once, refilled at `rate` a second. Count existing contracts only."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        self._unsynced: dict[str, tuple[int, float]] = {}

    def consume(self, contract: str) -> None:
        """Count a request of this contract. Raises `ApiError` (429) with the seconds to wait."""
        now = self._clock()
        left, at = self._buckets.get(contract, (float(self.burst), now))
        left = min(float(self.burst), left + (now - at) * self.rate)
        if left < 1:
            self._buckets[contract] = (left, now)
            seconds = max(1, math.ceil((1 - left) / self.rate))
            diagnostics = f"contract: too many requests — try again in {seconds} s"
            raise ApiError(429, "throttled", diagnostics, {"Retry-After": str(seconds)})
        self._buckets[contract] = (left - 1, now)
        count, since = self._unsynced.get(contract, (0, now))
        self._unsynced[contract] = (count + 1, since)

    def unsynced(self) -> dict[str, Unsynced]:
        """What the store does not count yet, by contract."""
        now = self._clock()
        return {contract: Unsynced(count, now - since) for contract, (count, since) in self._unsynced.items()}

    def apply_shared(self, reported: Mapping[str, Unsynced], remaining: Mapping[str, float]) -> None:
        """Continue from what is left for all processes, once `reported` was counted; later requests come on top."""
        now = self._clock()
        for contract, each in remaining.items():
            more = self._unsynced.pop(contract)[0] - reported[contract].requests
            if more:
                self._unsynced[contract] = (more, now)
            self._buckets[contract] = (each - more, now)


SHARE_INTERVAL = 2.0
"""Seconds between two exchanges with the store."""
_LOCK_KEY, _BUCKETS_KEY = "api.rate_limit.lock", "api.rate_limit.buckets"
StoredBuckets = dict[str, tuple[float, float]]
"""By contract: how many requests were left, and when (seconds since 1970)."""


class SharedTokenBuckets:
    """Synchronizes the buckets of this process with those of the store."""

    def __init__(self, store: Store, buckets: TokenBuckets, now: Callable[[], datetime]) -> None:
        self._store = store
        self._buckets = buckets
        self._now = now

    async def run(self) -> None:
        """Synchronize until cancelled; while the database is unavailable, the process limits by its own count."""
        await repeat(self.share, SHARE_INTERVAL, "the rate limit")

    async def share(self) -> None:
        """Report what was admitted, and take over what is left. Raises `StoreError`; the next call then reports it."""
        unsynced, now = self._buckets.unsynced(), self._now().timestamp()
        if unsynced:
            remaining = await self._store.transact(lambda uow: self._debit_stored(uow, unsynced, now))
            self._buckets.apply_shared(unsynced, remaining)

    def _debit_stored(self, uow: UnitOfWork, unsynced: Mapping[str, Unsynced], now: float) -> dict[str, float]:
        uow.key_values.set(_LOCK_KEY, str(now))  # takes the row lock: other processes wait until we have committed
        buckets: StoredBuckets = json.loads(uow.key_values.get(_BUCKETS_KEY) or "{}")
        spent = {contract: self._debit(buckets.get(contract), each, now) for contract, each in unsynced.items()}
        uow.key_values.set(_BUCKETS_KEY, json.dumps({**buckets, **spent}))
        return {contract: left for contract, (left, _) in spent.items()}

    def _debit(self, bucket: tuple[float, float] | None, unsynced: Unsynced, now: float) -> tuple[float, float]:
        """The bucket after these requests: before the first of them it was full at most, and it was refilled since."""
        burst, rate, began = float(self._buckets.burst), self._buckets.rate, now - unsynced.seconds
        left, at = bucket or (burst, began)
        before = min(burst, left + max(0.0, began - at) * rate)
        after = before + max(0.0, now - max(at, began)) * rate - unsynced.requests
        # The clock of another machine must not stop the refilling for long.
        return min(burst, after), max(now, min(at, now + SHARE_INTERVAL))

"""One pace for all processes: what each has let through is added up in the store, every two seconds and not with every request.

A contract has one bucket there. Between two looks each process goes by what was left at the last one, so that in such a window
the processes together may let more through; it becomes a debt of the bucket, which all of them wait for. Over any longer time
`api.rate` holds for all together, whichever of them is asked. A process that nobody asks neither reads nor writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime

from lab_agent.ports.store import Store, UnitOfWork
from lab_api.looking import repeat
from lab_api.pace import TokenBuckets, Unsynced

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

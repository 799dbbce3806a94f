"""Attempts at passwords: failures make a name wait, and few passwords are hashed at once, of one address and in all.

An attempt counts as failed from its beginning, so that many at once are no way around the wait. It is by name: that bounds the
guesses at an account, wherever they come from. An address makes nobody wait, since right users may be behind the same proxy; it
has its share of the places alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

T = TypeVar("T")

MAX_WAIT = timedelta(seconds=60)
_RESET_AFTER = timedelta(minutes=15)
_MAX_KEYS = 2_000
_MAX_PARALLEL_CHECKS = 2
"""Passwords checked at once: each check takes 64 MiB, and guessing must not use up this machine's memory."""
_MAX_PLACES = 32
_MAX_PLACES_OF_ADDRESS = 8
_BUSY_WAIT = timedelta(seconds=1)


class AttemptThrottle:
    """Counts failures by key, in memory. The first ones are free; fifteen minutes without a failure reset the count."""

    def __init__(self, free_attempts: int) -> None:
        self._free_attempts = free_attempts
        self._failures: dict[str, tuple[int, datetime]] = {}

    def reserve(self, key: str, now: datetime) -> timedelta:
        """Count an attempt as failed until `reset`, and give zero; or give how long `key` has to wait, which counts nothing.

        Of very many keys the oldest are forgotten, so that guessing fills no memory.
        """
        count, last = self._failures.get(key, (0, now))
        if now - last > _RESET_AFTER:
            count = 0
        if count >= self._free_attempts:
            wait = last + min(MAX_WAIT, timedelta(seconds=2.0 ** min(count - self._free_attempts, 10))) - now
            if wait > timedelta():
                return wait
        self._failures.pop(key, None)
        self._failures[key] = (count + 1, now)
        while len(self._failures) > _MAX_KEYS:
            del self._failures[next(iter(self._failures))]
        return timedelta()

    def release(self, key: str) -> None:
        """Take back an attempt that was not made after all."""
        if key in self._failures:
            count, last = self._failures[key]
            self._failures[key] = (max(0, count - 1), last)

    def reset(self, key: str) -> None:
        """Forget the failures of `key`, since it succeeded."""
        self._failures.pop(key, None)


class AttemptRefusedError(Exception):
    """The password was not checked; `wait` is when it may be tried again."""

    def __init__(self, wait: timedelta) -> None:
        super().__init__()
        self.wait = wait

    @property
    def seconds(self) -> int:
        """The wait in whole seconds, for Retry-After."""
        return int(self.wait.total_seconds()) + 1


class PasswordAttempts:
    """Lets passwords be checked, a few at once."""

    def __init__(self, free_attempts: int = 3) -> None:
        self._throttle = AttemptThrottle(free_attempts)
        self._slots = asyncio.Semaphore(_MAX_PARALLEL_CHECKS)
        self._places: Counter[str] = Counter()

    async def check(self, key: str, address: str, now: datetime, verify: Callable[[], Awaitable[T | None]]) -> T | None:
        """Give what `verify` finds: None for a wrong password. Raises `AttemptRefusedError` without a check."""
        if self._places[address] >= _MAX_PLACES_OF_ADDRESS or self._places.total() >= _MAX_PLACES:
            raise AttemptRefusedError(_BUSY_WAIT)
        if wait := self._throttle.reserve(key, now):
            raise AttemptRefusedError(wait)
        self._places[address] += 1
        try:
            async with self._slots:
                found = await verify()
        except BaseException:
            self._throttle.release(key)
            raise
        finally:
            self._places -= Counter([address])
        if found is not None:
            self._throttle.reset(key)
        return found

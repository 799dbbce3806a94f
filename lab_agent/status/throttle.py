"""Slows down whoever guesses passwords: after a few failures each further one doubles the wait."""

from __future__ import annotations

from datetime import datetime, timedelta

MAX_WAIT = timedelta(seconds=60)
_RESET_AFTER = timedelta(minutes=15)
_MAX_KEYS = 2_000


class LoginThrottle:
    """Counts failures by key, in memory. `free` of them cost nothing; a quarter of an hour without one forgets them all."""

    def __init__(self, free_attempts: int) -> None:
        self._free_attempts = free_attempts
        self._failures: dict[str, tuple[int, datetime]] = {}

    def remaining_wait(self, key: str, now: datetime) -> timedelta:
        """How long `key` has to wait before it may try; zero if it may now."""
        count, last = self._recent_failures(key, now)
        if count < self._free_attempts:
            return timedelta()
        pause = min(MAX_WAIT, timedelta(seconds=2.0 ** min(count - self._free_attempts, 10)))
        return max(last + pause - now, timedelta())

    def record_failure(self, key: str, now: datetime) -> None:
        """Count a failure. Of very many keys the oldest are forgotten, so that guessing fills no memory."""
        count, _ = self._recent_failures(key, now)
        self._failures.pop(key, None)
        self._failures[key] = (count + 1, now)
        while len(self._failures) > _MAX_KEYS:
            del self._failures[next(iter(self._failures))]

    def reset(self, key: str) -> None:
        """Forget the failures of `key`, since it succeeded."""
        self._failures.pop(key, None)

    def _recent_failures(self, key: str, now: datetime) -> tuple[int, datetime]:
        count, last = self._failures.get(key, (0, now))
        return (0, now) if now - last > _RESET_AFTER else (count, last)

"""Time in tests: one clock that stands still until a test moves it, and one way to wait for something."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

DEADLINE = 60.0
"""Seconds that a test waits for something, at most."""


class VirtualClock:
    """A `Clock` that a test sets (`time`) and moves; where a callable is wanted, give its `now`."""

    def __init__(self, time: datetime = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)) -> None:
        self.time = time

    def now(self) -> datetime:
        return self.time

    def advance(self, seconds: float = 0.0, **span: float) -> None:
        """Move on by so many seconds, or by a span such as `minutes=5`."""
        self.time += timedelta(seconds=seconds, **span)


async def wait_until(
    condition: Callable[[], bool] | Callable[[], Awaitable[bool]],
    description: str = "the condition",
    timeout: float = DEADLINE,
    interval: float = 0.05,
) -> None:
    """Check until the condition holds; fail with `description` at the time-out."""
    deadline = time.monotonic() + timeout
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {description}"
        await asyncio.sleep(interval)


async def wait_until_ended(unfinished: Callable[[], Awaitable[str]], patience: float, interval: float = 0.3) -> None:
    """Wait until there is nothing unfinished, which is told in words; fail once nothing has moved for `patience` seconds."""
    seen, since = "", time.monotonic()
    while found := await unfinished():
        if found != seen:
            seen, since = found, time.monotonic()
        assert time.monotonic() < since + patience, f"nothing moves any more: {found}"
        await asyncio.sleep(interval)

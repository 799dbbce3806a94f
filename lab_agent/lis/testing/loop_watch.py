"""Notices when the event loop stands still: one adapter that blocks it stops all the others, and the agent's heartbeats."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

MAX_BLOCKED_SECONDS = 0.5
"""Longest time that nothing else may run. A call that waits longer belongs into `asyncio.to_thread`."""
_INTERVAL_SECONDS = 0.01


class LoopBlockedError(AssertionError):
    """The event loop stood still."""


@asynccontextmanager
async def watch_event_loop() -> AsyncIterator[None]:
    """Raise `LoopBlockedError` at the end if the loop stood still meanwhile."""
    watch = _Watch()
    ticking = asyncio.create_task(watch.tick())
    watch.start()
    try:
        yield
    finally:
        watch.finish()
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
    if watch.longest > MAX_BLOCKED_SECONDS:
        what = f"expected that nothing blocks the event loop for {MAX_BLOCKED_SECONDS} seconds, came {watch.longest:.1f} seconds"
        raise LoopBlockedError(f"{what}: run calls that block in asyncio.to_thread, or use an asynchronous library")


class _Watch(threading.Thread):
    """Counts its own rounds without a tick of the loop, so that a machine that stands still itself blames nobody."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="event-loop-watch")
        self.longest = 0.0
        self._ticked = threading.Event()
        self._ended = threading.Event()

    async def tick(self) -> None:
        while True:
            self._ticked.set()
            await asyncio.sleep(_INTERVAL_SECONDS)

    def run(self) -> None:
        rounds = 0
        while not self._ended.wait(_INTERVAL_SECONDS):
            rounds = 0 if self._ticked.is_set() else rounds + 1
            self._ticked.clear()
            self.longest = max(self.longest, rounds * _INTERVAL_SECONDS)

    def finish(self) -> None:
        self._ended.set()
        self.join()

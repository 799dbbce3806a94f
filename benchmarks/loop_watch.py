"""How long the event loop was busy with one thing, by the CPU of its thread: what else the machine does is not counted."""

from __future__ import annotations

import asyncio
import time

_INTERVAL = 0.005


class LoopWatch:
    """The longest time between two turns of a task that only sleeps, less the time that the loop itself slept."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch the running loop from now on."""
        self._longest = 0.0
        self._task = self._task or asyncio.get_running_loop().create_task(self._tick())

    def take(self) -> float:
        """Seconds."""
        return self._longest

    async def _tick(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(_INTERVAL)
            now = time.thread_time()
            self._longest, before = max(self._longest, now - before), now

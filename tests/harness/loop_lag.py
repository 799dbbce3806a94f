"""How long an event loop was kept from its next step, at most."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

_TICK_SECONDS = 0.005


@dataclass
class LoopLag:
    """The longest time between two steps of the loop, in seconds: of the clock, and of CPU of the loop's own thread.

    A busy machine lengthens the first; the second is what our own code did in one step.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    async def watch(self) -> None:
        while True:
            started, cpu = time.monotonic(), time.thread_time()
            await asyncio.sleep(_TICK_SECONDS)
            self.seconds = max(self.seconds, time.monotonic() - started - _TICK_SECONDS)
            self.cpu_seconds = max(self.cpu_seconds, time.thread_time() - cpu)


@asynccontextmanager
async def loop_lag() -> AsyncIterator[LoopLag]:
    """Measure the running loop. What other tests have left in memory is not looked through by the collector meanwhile."""
    lag = LoopLag()
    gc.collect()
    gc.freeze()
    task = asyncio.create_task(lag.watch(), name="loop lag")
    await asyncio.sleep(0)
    try:
        yield lag
    finally:
        await asyncio.sleep(0)  # a step that lasted until now counts, too
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        gc.unfreeze()

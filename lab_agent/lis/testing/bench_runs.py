# ruff: noqa: S101 — what a suite of tests runs with
"""How the tests of the contract suite run: each on a bench of its own, while somebody watches the event loop."""

from __future__ import annotations

import asyncio
import functools
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar
from unittest import SkipTest

from lab_agent.errors import LabAgentError
from lab_agent.lis.testing.harness import Bench, LisState, MemoryInbox
from lab_agent.lis.testing.loop_watch import watch_event_loop
from lab_agent.ports.lis import Inbox, Lis

C = TypeVar("C", bound="BenchSuite")
TIMEOUT_SECONDS = 10.0
"""Seconds the suite waits for what must happen."""


class BenchSuite(ABC):
    """Tests that run on benches."""

    @abstractmethod
    async def bench(self, folder: Path) -> Bench:
        """Make a bench in an empty folder."""


def with_bench(test: Callable[[C, Bench], Awaitable[None]]) -> Callable[[C, Path], None]:
    """Run an asynchronous test on a bench of its own, without a pytest plug-in."""

    async def run(suite: C, folder: Path) -> None:
        bench = await suite.bench(folder)
        try:
            async with watch_event_loop():
                await test(suite, bench)
        finally:
            await bench.close()

    def sync(self: C, tmp_path: Path) -> None:
        asyncio.run(run(self, tmp_path))

    functools.update_wrapper(sync, test, assigned=("__name__", "__qualname__", "__doc__", "__module__"))
    del sync.__wrapped__  # type: ignore[attr-defined]  # otherwise pytest would look for fixtures in its arguments
    return sync


@asynccontextmanager
async def running_adapter(bench: Bench, inbox: Inbox) -> AsyncIterator[Lis]:
    """Start a new adapter; stop it at the end."""
    adapter = bench.adapter()
    await adapter.start(inbox)
    try:
        yield adapter
    finally:
        await adapter.stop()


async def change_state(bench: Bench, state: LisState) -> None:
    """Let the LIS be in that state; a test is skipped where it cannot be."""
    try:
        await bench.set_state(state)
    except NotImplementedError:
        raise SkipTest(f"this laboratory system cannot be {state.value}") from None


async def collect_exactly(adapter: Lis, inbox: MemoryInbox, count: int) -> None:
    """Collect until the inbox holds `count` messages, then once more: a surplus message would arrive now."""
    await collect_until(adapter, lambda: len(inbox.messages) >= count, f"{count} messages in the inbox")
    with suppress(LabAgentError):
        await adapter.collect()
    assert len(inbox.messages) == count, f"{len(inbox.messages)} messages in the inbox instead of {count}"


async def collect_until_attempted(adapter: Lis, inbox: MemoryInbox) -> None:
    """Collect until the adapter has attempted a delivery that was set up to fail."""
    with suppress(TimeoutError):
        await collect_until(adapter, lambda: not (inbox.fail_before or inbox.fail_after), "an attempt", timeout=2.0)


async def wait_for_unacknowledged(bench: Bench, unacknowledged: int) -> None:
    """Wait until exactly `unacknowledged` messages are left."""

    async def problem() -> str:
        left = await bench.unacknowledged_count()
        return "" if left == unacknowledged else f"{left} unacknowledged messages instead of {unacknowledged}"

    await wait_until(problem)


async def wait_until(find_problem: Callable[[], Awaitable[str]]) -> None:
    """Wait until nothing is wrong any more. Raises `TimeoutError` with what was wrong last."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while problem := await find_problem():
        if time.monotonic() > end:
            raise TimeoutError(problem)
        await asyncio.sleep(0.01)


async def collect_until(adapter: Lis, is_reached: Callable[[], bool], what: str, *, timeout: float | None = None) -> None:
    """Collect, as the agent does again and again, until something is so. Raises `TimeoutError`."""
    end = time.monotonic() + (timeout or TIMEOUT_SECONDS)
    while not is_reached():
        if time.monotonic() > end:
            raise TimeoutError(f"timed out waiting for {what}")
        with suppress(LabAgentError):
            await adapter.collect()
        if not is_reached():
            await asyncio.sleep(0.01)

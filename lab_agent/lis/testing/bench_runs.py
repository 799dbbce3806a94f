"""How the tests of the contract suite run: each on a bench of its own, while somebody watches the event loop."""

from __future__ import annotations

import asyncio
import functools
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import fields, is_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from unittest import SkipTest

from lab_agent.lis.laboratory_system import Inbox, Lis
from lab_agent.lis.testing.harness import Bench, LisState, MemoryInbox
from lab_agent.lis.testing.loop_watch import watch_event_loop
from lab_agent.shared.errors import LabAgentError
from lab_agent.shared.text import shorten

C = TypeVar("C", bound="BenchSuite")
TIMEOUT_SECONDS = 10.0
"""Seconds the suite waits for what must happen."""
_MAX_DIFFERENCES, _LONGEST = 5, 200


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
        except Exception as exc:
            exc.add_note(f"The contract: {' '.join((test.__doc__ or '').split())}")
            raise
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
    await collect_until(adapter, lambda: len(inbox.messages), count, "messages in the inbox")
    with suppress(LabAgentError):
        await adapter.collect()
    expect("messages in the inbox", len(inbox.messages), count)


async def collect_until_attempted(adapter: Lis, inbox: MemoryInbox) -> None:
    """Collect until the adapter has attempted a delivery that was set up to fail."""
    with suppress(TimeoutError):
        await collect_until(adapter, lambda: not (inbox.fail_before or inbox.fail_after), 1, "an attempt", timeout=2.0)


async def wait_for_unacknowledged(bench: Bench, unacknowledged: int) -> None:
    """Wait until exactly `unacknowledged` messages are left."""

    async def problem() -> str:
        left = await bench.unacknowledged_count()
        return "" if left == unacknowledged else f"unacknowledged messages: expected {unacknowledged}, came {left}"

    await wait_until(problem)


async def wait_until(find_problem: Callable[[], Awaitable[str]]) -> None:
    """Wait until nothing is wrong any more. Raises `TimeoutError` with what was wrong last."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while problem := await find_problem():
        if time.monotonic() > end:
            raise TimeoutError(problem)
        await asyncio.sleep(0.01)


async def collect_until(adapter: Lis, number: Callable[[], int], least: int, what: str, *, timeout: float | None = None) -> None:
    """Collect, as the agent does again and again, until there are at least so many. Raises `TimeoutError`."""
    end, last = time.monotonic() + (timeout or TIMEOUT_SECONDS), ""
    while number() < least:
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: expected {least}, came {number()} in time{last}")
        try:
            await adapter.collect()
        except LabAgentError as exc:
            last = f"; collect raised {type(exc).__name__}: {exc}"
        if number() < least:
            await asyncio.sleep(0.01)


def expect(what: str, came: object, expected: object) -> None:
    """Raise `AssertionError` with each place where what came is not what was expected; digits count, as in 1.20."""
    if found := list(_differences(came, expected)):
        rest = f"; {len(found) - _MAX_DIFFERENCES} more" if len(found) > _MAX_DIFFERENCES else ""
        raise AssertionError(f"{what}: {'; '.join(found[:_MAX_DIFFERENCES])}{rest}")


async def expect_orders(bench: Bench, *keys: str) -> None:
    """Raise `AssertionError` unless the LIS has received these orders, each once."""
    expect("orders in the LIS", list(await bench.orders()), list(keys))


def demand(holds: bool, expected: str, came: object) -> None:
    """Raise `AssertionError` unless it holds."""
    if not holds:
        raise AssertionError(f"expected {expected}, came {came}")


def _differences(came: Any, expected: Any, place: str = "") -> Iterator[str]:
    at = f"{place}: " if place else ""
    if is_dataclass(expected) and type(came) is type(expected):
        for each in fields(expected):
            yield from _differences(getattr(came, each.name), getattr(expected, each.name), f"{place}.{each.name}".lstrip("."))
    elif isinstance(expected, list | tuple) and isinstance(came, list | tuple) and len(came) == len(expected):
        for number, (one, other) in enumerate(zip(came, expected, strict=True)):
            yield from _differences(one, other, f"{place}[{number}]")
    elif came != expected or (isinstance(expected, Decimal) and str(came) != str(expected)):
        yield f"{at}expected {shorten(repr(expected), _LONGEST)}, came {shorten(repr(came), _LONGEST)}"

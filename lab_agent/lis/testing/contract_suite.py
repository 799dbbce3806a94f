# ruff: noqa: S101 — a suite of tests asserts
"""The contract suite: what every adapter must guarantee, whatever the laboratory system behind it is.

It checks both sides: what the adapter returns and what the LIS received. A restart is a new adapter on the same LIS; the old
one is simply dropped, as a killed process would drop it.
"""

from __future__ import annotations

import asyncio
import functools
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from lab_agent.domain.lab_messages import LabMessage, LabReport
from lab_agent.errors import LabAgentError
from lab_agent.lis.registry import interface_problems
from lab_agent.lis.testing.harness import Bench, MemoryInbox, resume_submit, submit_order
from lab_agent.lis.testing.samples import make_correction, make_order, make_rejection, make_report
from lab_agent.ports.lis import Inbox, Lis, SubmitResult

C = TypeVar("C", bound="AdapterContract")
TIMEOUT_SECONDS = 10.0
"""Seconds the suite waits for what must happen."""


def with_bench(test: Callable[[C, Bench], Awaitable[None]]) -> Callable[[C, Path], None]:
    """Run an asynchronous test on a bench of its own, without a pytest plug-in."""

    async def run(suite: C, folder: Path) -> None:
        bench = await suite.bench(folder)
        try:
            await test(suite, bench)
        finally:
            await bench.close()

    def sync(self: C, tmp_path: Path) -> None:
        asyncio.run(run(self, tmp_path))

    functools.update_wrapper(sync, test, assigned=("__name__", "__qualname__", "__doc__", "__module__"))
    del sync.__wrapped__  # type: ignore[attr-defined]  # otherwise pytest would look for fixtures in its arguments
    return sync


class AdapterContract(ABC):
    """Subclass it as `Test…` and implement `bench`."""

    @abstractmethod
    async def bench(self, folder: Path) -> Bench:
        """Make a bench in an empty folder."""

    def expected(self, message: LabMessage) -> LabMessage:
        """Return what arrives of a published message; override it where the LIS cannot express all of it."""
        return message

    @with_bench
    async def test_the_class_is_an_adapter(self, bench: Bench) -> None:
        """The class has everything that the agent calls."""
        assert interface_problems(type(bench.adapter()), "adapter") == ()

    @with_bench
    async def test_a_healthy_lis_passes_the_check(self, bench: Bench) -> None:
        """`check` raises nothing where nothing is wrong."""
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await adapter.check()

    @with_bench
    async def test_stopping_twice_is_harmless(self, bench: Bench) -> None:
        """`stop` is idempotent, even before `start`."""
        adapter = bench.adapter()
        await adapter.stop()
        await adapter.start(MemoryInbox())
        await adapter.stop()
        await adapter.stop()

    @with_bench
    async def test_orders_arrive_once_each(self, bench: Bench) -> None:
        """Submitted orders are in the LIS, and the adapter knows that."""
        orders = [make_order(seed) for seed in range(4)]
        async with running_adapter(bench, MemoryInbox()) as adapter:
            for order in orders:
                await adapter.prepare(order)
                assert isinstance(await adapter.submit(order), SubmitResult)
                assert await adapter.was_received(order.key) is not False
        assert sorted(await bench.orders()) == sorted(order.key for order in orders)

    @with_bench
    async def test_a_prepared_order_is_not_seen_by_the_lis(self, bench: Bench) -> None:
        """`prepare` may be repeated and has no effect in the LIS."""
        order = make_order(1)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await adapter.prepare(order)
            await adapter.prepare(order)
            assert list(await bench.orders()) == []
            assert await adapter.was_received(order.key) is not True
            await adapter.submit(order)
        assert list(await bench.orders()) == [order.key]

    @with_bench
    async def test_a_crash_after_prepare_gives_one_order(self, bench: Bench) -> None:
        """The agent died before it committed *prepared*, and starts over."""
        order = make_order(2)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await adapter.prepare(order)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            assert await resume_submit(adapter, order, prepared_committed=False)
        assert list(await bench.orders()) == [order.key]

    @with_bench
    async def test_a_crash_before_submit_gives_at_most_one_order(self, bench: Bench) -> None:
        """The agent died between the commit of *prepared* and `submit`, and asks `was_received` first."""
        order = make_order(3)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await adapter.prepare(order)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            settled = await resume_submit(adapter, order, prepared_committed=True)
        assert list(await bench.orders()) == ([order.key] if settled else [])

    @with_bench
    async def test_a_crash_after_submit_gives_one_order(self, bench: Bench) -> None:
        """The agent died after `submit`, several times; the LIS may have picked up the order in between."""
        order = make_order(4)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await submit_order(adapter, order)
        for _ in range(3):
            assert list(await bench.orders()) == [order.key]
            async with running_adapter(bench, MemoryInbox()) as adapter:
                assert await adapter.was_received(order.key) is not False
                await resume_submit(adapter, order, prepared_committed=True)
        assert list(await bench.orders()) == [order.key]

    @with_bench
    async def test_submit_may_be_repeated_where_the_adapter_says_so(self, bench: Bench) -> None:
        """`idempotent` is a promise."""
        order = make_order(5)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await submit_order(adapter, order)
            if adapter.idempotent:
                await adapter.submit(order)
                await submit_order(adapter, order)
        assert list(await bench.orders()) == [order.key]

    @with_bench
    async def test_withdrawals_may_be_repeated_and_none_is_lost(self, bench: Bench) -> None:
        """Two withdrawals, one of them repeated."""
        order = next(order for order in map(make_order, range(100)) if len(order.lines) > 1)
        first, second = order.lines[0].key, order.lines[1].key
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await submit_order(adapter, order)
            await adapter.cancel(order.key, (first,), "withdrawn by the clinic")
            await adapter.cancel(order.key, (first,), "withdrawn by the clinic")
            await adapter.cancel(order.key, (second,), "withdrawn by the clinic")
        assert set(await bench.cancelled_lines()) == {first, second}
        assert list(await bench.orders()) == [order.key]

    @with_bench
    async def test_a_report_arrives_digit_for_digit_and_is_acknowledged(self, bench: Bench) -> None:
        """A published report is in the inbox, and the LIS will not deliver it again."""
        report, inbox = make_report(6, make_order(6)), MemoryInbox()
        await bench.publish(report)
        async with running_adapter(bench, inbox) as adapter:
            await collect_exactly(adapter, inbox, 1)
            await wait_for_unacknowledged(bench, 0)
        assert inbox.contents == [self.expected(report)]
        assert quantity_texts(inbox.contents[0]) == quantity_texts(self.expected(report))

    @with_bench
    async def test_a_rejection_arrives(self, bench: Bench) -> None:
        """A laboratory may reject a line after taking the order."""
        rejection, inbox = make_rejection(7, make_order(7)), MemoryInbox()
        await bench.publish(rejection)
        async with running_adapter(bench, inbox) as adapter:
            await collect_exactly(adapter, inbox, 1)
        assert inbox.contents == [self.expected(rejection)]

    @with_bench
    async def test_nothing_is_acknowledged_before_it_is_stored(self, bench: Bench) -> None:
        """While the store is unavailable the LIS keeps the report, and delivers it again afterwards (law 1)."""
        report, inbox = make_report(8, make_order(8)), MemoryInbox(fail_before=1)
        await bench.publish(report)
        async with running_adapter(bench, inbox) as adapter:
            await collect_until_attempted(adapter, inbox)
        if not inbox.messages:
            assert await bench.unacknowledged_count() == 1
        async with running_adapter(bench, inbox) as adapter:
            await collect_exactly(adapter, inbox, 1)
            await wait_for_unacknowledged(bench, 0)
        assert inbox.contents == [self.expected(report)]

    @with_bench
    async def test_a_crash_before_the_acknowledgement_makes_no_second_message(self, bench: Bench) -> None:
        """Stored, not acknowledged, delivered again: the same id, so the same message (law 5)."""
        report, inbox = make_report(9, make_order(9)), MemoryInbox(fail_after=1)
        await bench.publish(report)
        async with running_adapter(bench, inbox) as adapter:
            await collect_until_attempted(adapter, inbox)
        async with running_adapter(bench, inbox) as adapter:
            await collect_exactly(adapter, inbox, 1)
            await wait_for_unacknowledged(bench, 0)
        assert inbox.contents == [self.expected(report)]

    @with_bench
    async def test_a_value_that_was_corrected_there_and_back_is_three_messages(self, bench: Bench) -> None:
        """A → B → A: the third message is not a repeat of the first, although it equals it."""
        first, inbox = make_correction(make_report(10, make_order(10)), "1.20"), MemoryInbox()
        versions = [first, make_correction(first, "1.30"), first]
        async with running_adapter(bench, inbox) as adapter:
            for count, version in enumerate(versions, start=1):
                await bench.publish(version)
                await collect_exactly(adapter, inbox, count)
                await wait_for_unacknowledged(bench, 0)
        assert inbox.contents == [self.expected(version) for version in versions]

    @with_bench
    async def test_versions_out_of_order_all_arrive(self, bench: Bench) -> None:
        """The second version arrives before the first: both are delivered; which is newer is not the adapter's concern."""
        second, inbox = make_correction(make_report(11, make_order(11)), "2.50"), MemoryInbox()
        versions = [replace(second, version=2), replace(make_correction(second, "2.40"), version=1)]
        async with running_adapter(bench, inbox) as adapter:
            for version in versions:
                await bench.publish(version)
            await collect_exactly(adapter, inbox, 2)
            await wait_for_unacknowledged(bench, 0)
        assert sorted(map(repr, inbox.contents)) == sorted(repr(self.expected(version)) for version in versions)

    @with_bench
    async def test_a_restart_in_the_middle_loses_and_duplicates_nothing(self, bench: Bench) -> None:
        """The store fails in the middle of several reports, and the agent restarts."""
        reports = [make_report(seed, make_order(seed)) for seed in range(20, 25)]
        inbox = MemoryInbox()
        await bench.publish(reports[0])
        async with running_adapter(bench, inbox) as adapter:
            await collect_exactly(adapter, inbox, 1)
            inbox.fail_after = 1
            for report in reports[1:3]:
                await bench.publish(report)
            await collect_until_attempted(adapter, inbox)
        for report in reports[3:]:
            await bench.publish(report)
        async with running_adapter(bench, inbox) as adapter:
            await collect_exactly(adapter, inbox, len(reports))
            await wait_for_unacknowledged(bench, 0)
        assert all(self.expected(report) in inbox.contents for report in reports)


@asynccontextmanager
async def running_adapter(bench: Bench, inbox: Inbox) -> AsyncIterator[Lis]:
    """Start a new adapter; stop it at the end."""
    adapter = bench.adapter()
    await adapter.start(inbox)
    try:
        yield adapter
    finally:
        await adapter.stop()


async def collect_exactly(adapter: Lis, inbox: MemoryInbox, count: int) -> None:
    """Collect until the inbox holds `count` messages, then once more: a surplus message would arrive now."""
    await _collect_until(adapter, lambda: len(inbox.messages) >= count, f"{count} messages in the inbox")
    with suppress(LabAgentError):
        await adapter.collect()
    assert len(inbox.messages) == count, f"{len(inbox.messages)} messages in the inbox instead of {count}"


async def collect_until_attempted(adapter: Lis, inbox: MemoryInbox) -> None:
    """Collect until the adapter has attempted a delivery that was set up to fail."""
    with suppress(TimeoutError):
        await _collect_until(adapter, lambda: not (inbox.fail_before or inbox.fail_after), "an attempt", timeout=2.0)


async def wait_for_unacknowledged(bench: Bench, unacknowledged: int) -> None:
    """Wait until exactly `unacknowledged` messages are left."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while (left := await bench.unacknowledged_count()) != unacknowledged:
        if time.monotonic() > end:
            raise TimeoutError(f"{left} unacknowledged messages instead of {unacknowledged}")
        await asyncio.sleep(0.01)


async def _collect_until(adapter: Lis, is_reached: Callable[[], bool], what: str, *, timeout: float = TIMEOUT_SECONDS) -> None:
    end = time.monotonic() + timeout
    while not is_reached():
        if time.monotonic() > end:
            raise TimeoutError(f"timed out waiting for {what}")
        with suppress(LabAgentError):
            await adapter.collect()
        if not is_reached():
            await asyncio.sleep(0.01)


def quantity_texts(message: LabMessage) -> list[str]:
    """The quantities of a message as written: 1.20 is not 1.2."""
    observations = message.observations if isinstance(message, LabReport) else ()
    return [str(one.value_quantity.value) for one in observations if one.value_quantity]

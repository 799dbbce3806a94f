"""What an adapter must guarantee when the laboratory system does not do what it should: is away, refuses, sends what is wrong.

Each wrong word of an adapter has its price: an order sent twice, an order never sent, a result that nobody ever sees.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import Lis, OrderRenderer, RawMessageParser, RenderedOrder
from lab_agent.lis.testing.bench_runs import (
    BenchSuite,
    change_state,
    collect_exactly,
    collect_until,
    demand,
    expect,
    expect_orders,
    running_adapter,
    wait_until,
    with_bench,
)
from lab_agent.lis.testing.harness import Bench, LisState, MemoryInbox, resume_submit, submit_order
from lab_agent.lis.testing.samples import make_order, make_report
from lab_agent.shared.errors import Failure, LisOutcomeUnknown, LisRejected, LisUnavailable

_NOTICE_SECONDS = 1.0
"""Seconds in which an adapter notices that a connection is closed."""


class FaultContract(BenchSuite):
    """The half of the suite that is about faults."""

    @with_bench
    async def test_check_says_that_the_lis_is_unreachable(self, bench: Bench) -> None:
        """The agent learns of an outage, and of its end, by `check`."""
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await change_state(bench, LisState.UNREACHABLE)
            demand(await _notices_outage(adapter), "check to raise a Failure while the LIS is unreachable", "no Failure")
            await change_state(bench, LisState.WORKING)
            await _wait_until_healthy(adapter)

    @with_bench
    async def test_an_unreachable_lis_is_tried_again_later(self, bench: Bench) -> None:
        """What was certainly not sent is `LisUnavailable`: as an unknown outcome, it would wait for an operator."""
        order = make_order(30)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await change_state(bench, LisState.UNREACHABLE)
            await _notices_outage(adapter)
            await _expect_failure(adapter, order, LisUnavailable)
            await change_state(bench, LisState.WORKING)
            await expect_orders(bench)
            await _wait_until_healthy(adapter)
            await submit_order(adapter, order)
        await expect_orders(bench, order.key)

    @with_bench
    async def test_an_unreachable_lis_is_not_said_to_lack_the_order(self, bench: Bench) -> None:
        """`was_received` is False only where it is known: the order would be sent again."""
        order = make_order(31)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await submit_order(adapter, order)
            await change_state(bench, LisState.UNREACHABLE)
            with suppress(Failure):
                known = await adapter.was_received(order.key)
                demand(known is not False, "was_received not to be False while the LIS is unreachable", known)
            await change_state(bench, LisState.WORKING)
        await expect_orders(bench, order.key)

    @with_bench
    async def test_a_withdrawal_is_not_lost_while_the_lis_is_unreachable(self, bench: Bench) -> None:
        """`cancel` raises what is tried again, or sees to it itself."""
        order = make_order(32)
        lines = tuple(line.key for line in order.lines)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await submit_order(adapter, order)
            await change_state(bench, LisState.UNREACHABLE)
            is_told = await _cancels(adapter, order)
            await change_state(bench, LisState.WORKING)
            await _wait_until_healthy(adapter)
            if not is_told:
                await adapter.cancel(order.key, lines, "withdrawn by the clinic")
            await _wait_for_cancelled(bench, set(lines))

    @with_bench
    async def test_an_adapter_starts_again_after_it_could_not(self, bench: Bench) -> None:
        """While the LIS is unreachable `start` raises `LisUnavailable`, or waits in the background; it is called again."""
        order, adapter = make_order(33), bench.adapter()
        await change_state(bench, LisState.UNREACHABLE)
        try:
            started = await _starts(adapter)
            await change_state(bench, LisState.WORKING)
            if not started:
                await adapter.start(MemoryInbox())
            await _wait_until_healthy(adapter)
            await submit_order(adapter, order)
        finally:
            await adapter.stop()
        await expect_orders(bench, order.key)

    @with_bench
    async def test_a_lost_answer_is_an_unknown_outcome(self, bench: Bench) -> None:
        """Sent, and no answer: told as unavailable it would be sent again, told as done it might be missing (law 3)."""
        order = make_order(34)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await change_state(bench, LisState.SILENT)
            await _expect_failure(adapter, order, LisOutcomeUnknown)
            await change_state(bench, LisState.WORKING)
            await _wait_until_healthy(adapter)
            await resume_submit(adapter, order, prepared_committed=True)
        await expect_orders(bench, order.key)

    @with_bench
    async def test_a_refusal_is_final(self, bench: Bench) -> None:
        """What the LIS rejects for good is `LisRejected`: an operator decides, and nothing is tried for ever."""
        order = make_order(35)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await change_state(bench, LisState.REFUSING)
            await _expect_failure(adapter, order, LisRejected)
            await change_state(bench, LisState.WORKING)
        await expect_orders(bench)

    @with_bench
    async def test_a_busy_lis_is_tried_again_when_it_asks_to(self, bench: Bench) -> None:
        """A LIS that asks to wait rejects nothing; `retry_after` hands on how long."""
        order = make_order(36)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await change_state(bench, LisState.BUSY)
            failure = await _expect_failure(adapter, order, LisUnavailable)
            wait = getattr(failure, "retry_after", None)
            demand(wait is not None, "the wait that the LIS asked for as retry_after", wait)
            await change_state(bench, LisState.WORKING)
            await submit_order(adapter, order)
        await expect_orders(bench, order.key)

    @with_bench
    async def test_a_slow_lis_blocks_nobody_else(self, bench: Bench) -> None:
        """While one call waits, the agent goes on: its other adapters, its leases, its status page."""
        order = make_order(37)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await change_state(bench, LisState.SLOW)
            await submit_order(adapter, order)
            await change_state(bench, LisState.WORKING)
        await expect_orders(bench, order.key)

    @with_bench
    async def test_a_withdrawal_names_every_line(self, bench: Bench) -> None:
        """One call may withdraw several lines."""
        order = next(order for order in map(make_order, range(100)) if len(order.lines) > 2)
        lines = tuple(line.key for line in order.lines)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await submit_order(adapter, order)
            await adapter.cancel(order.key, lines, "withdrawn by the clinic")
            await _wait_for_cancelled(bench, set(lines))

    @with_bench
    async def test_a_bad_result_is_told_and_kept(self, bench: Bench) -> None:
        """What the adapter cannot read is rejected once, with a reason, and stays where somebody can find it."""
        inbox = MemoryInbox()
        await bench.publish_bad()
        async with running_adapter(bench, inbox) as adapter:
            await collect_until(adapter, lambda: len(inbox.rejections), 1, "rejections in the inbox")
            await _wait_for_bad_results(bench, 1)
            await collect_exactly(adapter, inbox, 0)
            await collect_exactly(adapter, inbox, 0)
            expect("rejections of one bad result, whose id stays the same", len(inbox.rejections), 1)
            reasons = list(inbox.rejections.values())
            demand(all(reason.strip() for reason in reasons), "a reason with each rejection", reasons)
            if isinstance(adapter, RawMessageParser):
                await _check_replay(adapter, inbox)
        await _wait_for_bad_results(bench, 1)

    @with_bench
    async def test_a_rendered_order_is_seen_by_nobody(self, bench: Bench) -> None:
        """What the adapter shows of an order is written without a start, and nothing of it reaches the LIS."""
        adapter = bench.adapter()
        if not isinstance(adapter, OrderRenderer):
            return
        order = make_order(50)
        rendered = [await adapter.render_order(order) for _ in range(2)]
        await expect_orders(bench)
        for messages in rendered:
            demand(bool(messages), "a message from render_order", "none")
            are_rendered = all(isinstance(each, RenderedOrder) and each.content for each in messages)
            demand(are_rendered, "RenderedOrder with content from render_order", repr(messages))
            names = [each.name for each in messages]
            demand(len(set(names)) == len(names), "another name of each message of render_order", names)
            demand(all(name and "/" not in name for name in names), "names of render_order that are file names", names)

    @with_bench
    async def test_a_bad_result_stops_no_good_one(self, bench: Bench) -> None:
        """Good ones before, between and behind bad ones arrive (law 9)."""
        reports = [make_report(seed, make_order(seed)) for seed in (40, 41, 42)]
        inbox = MemoryInbox()
        for report in reports:
            await bench.publish_bad()
            await bench.publish(report)
        async with running_adapter(bench, inbox) as adapter:
            await collect_exactly(adapter, inbox, len(reports))
            await collect_until(adapter, lambda: len(inbox.rejections), len(reports), "rejections in the inbox")
            await _wait_for_bad_results(bench, len(reports))


async def _submit_failure(adapter: Lis, order: LabOrder) -> Failure | None:
    try:
        await submit_order(adapter, order)
    except Failure as failure:
        return failure
    return None


async def _expect_failure(adapter: Lis, order: LabOrder, expected: type[Failure]) -> Failure | None:
    """Submit an order; gives the failure, which is of that type."""
    failure = await _submit_failure(adapter, order)
    came = "no failure" if failure is None else f"{type(failure).__name__}: {failure}"
    demand(type(failure) is expected, f"{expected.__name__} from submit", came)
    return failure


async def _failure_of_check(adapter: Lis) -> Failure | None:
    try:
        await adapter.check()
    except Failure as failure:
        return failure
    return None


async def _notices_outage(adapter: Lis) -> bool:
    """Whether `check` fails before long: a connection that broke is noticed a moment later."""
    end = time.monotonic() + _NOTICE_SECONDS
    while await _failure_of_check(adapter) is None:
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.01)
    return True


async def _starts(adapter: Lis) -> bool:
    try:
        await adapter.start(MemoryInbox())
    except LisUnavailable:
        return False
    return True


async def _cancels(adapter: Lis, order: LabOrder) -> bool:
    """Withdraw all lines; False where it is to be tried again. A refusal would end it unheard."""
    try:
        await adapter.cancel(order.key, tuple(line.key for line in order.lines), "withdrawn by the clinic")
    except (LisUnavailable, LisOutcomeUnknown):
        return False
    return True


async def _wait_until_healthy(adapter: Lis) -> None:
    """Check, as the agent does again and again, until nothing is wrong."""

    async def problem() -> str:
        failure = await _failure_of_check(adapter)
        return "" if failure is None else f"expected check to raise nothing once the LIS works again, came {failure}"

    await wait_until(problem)


async def _wait_for_cancelled(bench: Bench, lines: set[str]) -> None:
    async def problem() -> str:
        told = set(await bench.cancelled_lines())
        return "" if told == lines else f"lines cancelled in the LIS: expected {sorted(lines)}, came {sorted(told)}"

    await wait_until(problem)


async def _wait_for_bad_results(bench: Bench, count: int) -> None:
    async def problem() -> str:
        kept = await bench.bad_results_kept()
        return "" if kept == count else f"bad results that are kept: expected {count}, came {kept}"

    await wait_until(problem)


async def _check_replay(parser: RawMessageParser, inbox: MemoryInbox) -> None:
    """Whoever can read raw messages gives them to the inbox, so that one can be read again after a mend."""
    expect("rejections with their raw message, which the adapter can read", sorted(inbox.raw), sorted(inbox.rejections))
    for message_id, raw in inbox.raw.items():
        parsed = await parser.parse_message(raw, message_id)
        problems = [part.problem for part in parsed.parts]
        demand(any(problems), "a problem from parse_message for what was rejected", problems)

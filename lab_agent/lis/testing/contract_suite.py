"""The contract suite: what every adapter must guarantee, whatever the laboratory system behind it is.

It checks both sides: what the adapter returns and what the LIS received. A restart is a new adapter on the same LIS; the old
one is simply dropped, as a killed process would drop it.
"""

from __future__ import annotations

from dataclasses import replace

from lab_agent.lis.lab_messages import LabMessage
from lab_agent.lis.laboratory_system import Lis, SubmitResult
from lab_agent.lis.registry import interface_problems
from lab_agent.lis.testing.bench_runs import (
    collect_exactly,
    collect_until_attempted,
    demand,
    expect,
    expect_orders,
    running_adapter,
    wait_for_unacknowledged,
    with_bench,
)
from lab_agent.lis.testing.fault_suite import FaultContract
from lab_agent.lis.testing.harness import Bench, MemoryInbox, resume_submit, submit_order
from lab_agent.lis.testing.samples import make_correction, make_order, make_rejection, make_report
from lab_agent.shared.ids import OrderKey


class AdapterContract(FaultContract):
    """Subclass it as `Test…` and implement `bench`."""

    def expected(self, message: LabMessage) -> LabMessage:
        """Return what arrives of a published message; override it where the LIS cannot express all of it."""
        return message

    @with_bench
    async def test_the_class_is_an_adapter(self, bench: Bench) -> None:
        """The class has everything that the agent calls."""
        expect("what the class lacks", interface_problems(type(bench.adapter()), "adapter"), ())

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
                given = await adapter.submit(order)
                demand(isinstance(given, SubmitResult), "a SubmitResult from submit", repr(given))
                await _expect_received(adapter, order.key)
        expect("orders in the LIS", sorted(await bench.orders()), sorted(order.key for order in orders))

    @with_bench
    async def test_a_prepared_order_is_not_seen_by_the_lis(self, bench: Bench) -> None:
        """`prepare` may be repeated and has no effect in the LIS."""
        order = make_order(1)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await adapter.prepare(order)
            await adapter.prepare(order)
            await expect_orders(bench)
            known = await adapter.was_received(order.key)
            demand(known is not True, "was_received not to be True of an order that was only prepared", known)
            await adapter.submit(order)
        await expect_orders(bench, order.key)

    @with_bench
    async def test_a_crash_after_prepare_gives_one_order(self, bench: Bench) -> None:
        """The agent died before it committed *prepared*, and starts over."""
        order = make_order(2)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await adapter.prepare(order)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await resume_submit(adapter, order, prepared_committed=False)
        await expect_orders(bench, order.key)

    @with_bench
    async def test_a_crash_before_submit_gives_at_most_one_order(self, bench: Bench) -> None:
        """The agent died between the commit of *prepared* and `submit`, and asks `was_received` first."""
        order = make_order(3)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await adapter.prepare(order)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            settled = await resume_submit(adapter, order, prepared_committed=True)
        await expect_orders(bench, *([order.key] if settled else []))

    @with_bench
    async def test_a_crash_after_submit_gives_one_order(self, bench: Bench) -> None:
        """The agent died after `submit`, several times; the LIS may have picked up the order in between."""
        order = make_order(4)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await submit_order(adapter, order)
        for _ in range(3):
            await expect_orders(bench, order.key)
            async with running_adapter(bench, MemoryInbox()) as adapter:
                await _expect_received(adapter, order.key)
                await resume_submit(adapter, order, prepared_committed=True)
        await expect_orders(bench, order.key)

    @with_bench
    async def test_submit_may_be_repeated_where_the_adapter_says_so(self, bench: Bench) -> None:
        """`idempotent` is a promise."""
        order = make_order(5)
        async with running_adapter(bench, MemoryInbox()) as adapter:
            await submit_order(adapter, order)
            if adapter.idempotent:
                await adapter.submit(order)
                await submit_order(adapter, order)
        await expect_orders(bench, order.key)

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
        expect("lines cancelled in the LIS", sorted(set(await bench.cancelled_lines())), sorted({first, second}))
        await expect_orders(bench, order.key)

    @with_bench
    async def test_a_report_arrives_digit_for_digit_and_is_acknowledged(self, bench: Bench) -> None:
        """A published report is in the inbox, and the LIS will not deliver it again."""
        report, inbox = make_correction(make_report(6, make_order(6)), "1.20"), MemoryInbox()
        await bench.publish(report)
        async with running_adapter(bench, inbox) as adapter:
            await collect_exactly(adapter, inbox, 1)
            await wait_for_unacknowledged(bench, 0)
        expect("messages in the inbox", inbox.contents, [self.expected(report)])

    @with_bench
    async def test_a_rejection_arrives(self, bench: Bench) -> None:
        """A laboratory may reject a line after taking the order."""
        rejection, inbox = make_rejection(7, make_order(7)), MemoryInbox()
        await bench.publish(rejection)
        async with running_adapter(bench, inbox) as adapter:
            await collect_exactly(adapter, inbox, 1)
        expect("messages in the inbox", inbox.contents, [self.expected(rejection)])

    @with_bench
    async def test_nothing_is_acknowledged_before_it_is_stored(self, bench: Bench) -> None:
        """While the store is unavailable the LIS keeps the report, and delivers it again afterwards (law 1)."""
        report, inbox = make_report(8, make_order(8)), MemoryInbox(fail_before=1)
        await bench.publish(report)
        async with running_adapter(bench, inbox) as adapter:
            await collect_until_attempted(adapter, inbox)
        if not inbox.messages:
            expect("unacknowledged messages while nothing is stored", await bench.unacknowledged_count(), 1)
        async with running_adapter(bench, inbox) as adapter:
            await collect_exactly(adapter, inbox, 1)
            await wait_for_unacknowledged(bench, 0)
        expect("messages in the inbox", inbox.contents, [self.expected(report)])

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
        expect("messages in the inbox", inbox.contents, [self.expected(report)])

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
        expect("messages in the inbox", inbox.contents, [self.expected(version) for version in versions])

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
        expect("messages in the inbox", sorted(inbox.contents, key=repr), sorted(map(self.expected, versions), key=repr))

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
        expect("messages in the inbox", sorted(inbox.contents, key=repr), sorted(map(self.expected, reports), key=repr))


async def _expect_received(adapter: Lis, key: OrderKey) -> None:
    known = await adapter.was_received(key)
    demand(known is not False, "was_received not to be False of an order that the LIS has", known)

"""Units of work of two workers on PostgreSQL, interleaved step by step: none undoes what another one has committed."""

from __future__ import annotations

import asyncio
import threading

import psycopg
import pytest

from lab_agent.orders.line_lifecycle import cancel_lines, complete_lines, reopen_lines, withdraw_line
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.state_machines import LineState, OrderState
from lab_agent.store.unit_of_work import Store
from tests.harness.clock import DEADLINE, wait_until
from tests.integration.store.conftest import LEASE, NOW, UnitOfWorkRunner, begun


@pytest.fixture
async def workers(postgres_empty_url, cipher):
    """The stores of two workers on one database."""
    stores = [Store(postgres_empty_url, cipher) for _ in range(2)]
    yield stores
    for store in stores:
        await store.close()


@pytest.fixture
def wait_for_blocked(postgres_empty_url):
    """Wait until so many sessions wait for a lock."""

    def count():
        with psycopg.connect(postgres_empty_url, autocommit=True) as connection:
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            return connection.execute(waiting).fetchone()[0]

    async def wait(number):
        async def is_blocked():
            return await asyncio.to_thread(count) == number

        await wait_until(is_blocked, f"{number} sessions wait for a lock")

    return wait


def complete(uow):
    complete_lines(uow, "R1", ["L1"], NOW)


def cancel(uow):
    cancel_lines(uow, "R1", {"L1": "no material"}, NOW)


@pytest.mark.parametrize(("decide", "state"), [(complete, LineState.COMPLETED), (cancel, LineState.CANCELLED)])
async def test_line_that_ends_twice_stays_as_it_ended_first(workers, factory, wait_for_blocked, decide, state):
    """A delivery ends a line; a reconciliation, which finds the Task withdrawn, waits for it and leaves the line alone."""
    one, two = workers

    def reconcile(uow):
        uow.orders.get_for_update("R1")
        withdraw_line(uow, "L1", NOW, "its Task was set to cancelled", "cancelled")

    await UnitOfWorkRunner(one)(lambda uow: add_order_at_laboratory(uow, factory))
    async with begun(one, decide) as delivering:
        reconciling = asyncio.create_task(UnitOfWorkRunner(two)(reconcile))
        await wait_for_blocked(1)
    await asyncio.gather(delivering, reconciling)
    line = await one.run_read_only(lambda uow: uow.orders.line("L1"))
    assert (line.state, line.ended_as) == (state, "cancelled")


@pytest.mark.parametrize("decide", [complete, cancel, lambda uow: reopen_lines(uow, "R1", NOW)])
async def test_line_read_before_the_lock_is_read_again_behind_it(workers, factory, wait_for_blocked, decide):
    """The other way round: what the delivery had read is out of date once it has the lock."""
    one, two = workers

    def reconcile(uow):
        withdraw_line(uow, "L1", NOW, "its Task was set to cancelled", "cancelled")
        uow.orders.lines("R1")

    def deliver(uow):
        assert uow.orders.line("L1").state is LineState.ACCEPTED
        decide(uow)

    await UnitOfWorkRunner(one)(lambda uow: add_order_at_laboratory(uow, factory))
    async with begun(one, reconcile) as reconciling:
        delivering = asyncio.create_task(UnitOfWorkRunner(two)(deliver))
        await wait_for_blocked(1)
    await asyncio.gather(delivering, reconciling)
    line = await one.run_read_only(lambda uow: uow.orders.line("L1"))
    assert (line.state, line.ended_as) == (LineState.WITHDRAWN, "cancelled")


def add_order_at_laboratory(uow, factory):
    uow.orders.add(factory.order("R1", state=OrderState.HANDED_OVER))
    uow.orders.add_line(factory.line("R1", "L1", state=LineState.ACCEPTED))


async def test_heartbeat_holds_no_lease_while_it_waits_for_another(workers, factory, wait_for_blocked):
    """The end of a job has the order and wants its job; work on another has that job and wants the order; both go on."""
    one, two = workers
    runner = UnitOfWorkRunner(one)
    order = factory.order("R1")
    await runner(lambda uow: (uow.orders.add(order), uow.jobs.add_all([factory.job("j1"), factory.job("j2")])))
    ending, starting = sorted(await runner.claim(), key=lambda job: job.id)
    is_started, has_order, go_on = threading.Event(), threading.Event(), threading.Event()

    def mark_started(uow):
        uow.jobs.save(starting.mark_started(NOW))
        is_started.set()
        assert has_order.wait(DEADLINE)
        uow.orders.get_for_update("R1")

    def end(uow):
        uow.orders.get_for_update("R1")
        has_order.set()
        assert go_on.wait(DEADLINE)
        uow.jobs.release(ending.complete(NOW))

    async def beat():
        return await UnitOfWorkRunner(two)(lambda uow: uow.jobs.renew_leases([ending, starting], now=NOW, lease=LEASE))

    started = asyncio.create_task(runner(mark_started))
    assert await asyncio.to_thread(is_started.wait, 30)
    ended = asyncio.create_task(runner(end))
    await wait_for_blocked(1)
    beating = asyncio.create_task(beat())
    await wait_for_blocked(2)
    go_on.set()
    assert len(await beating) == 2
    await asyncio.gather(started, ended)
    assert await UnitOfWorkRunner(two).claim(kinds=[JobKind.UPDATE_LINE_TASK]) == ()

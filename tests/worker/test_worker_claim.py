"""A claim: kept alive while its owner works, lost when it is taken away."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from lab_agent.domain.journal import JobKind
from lab_agent.errors import LeaseLostError
from lab_agent.worker.claim import JobLease
from tests.worker.conftest import LEASE, WorkerBench

SHORT = timedelta(seconds=0.03)


async def claimed(bench: WorkerBench, lease: timedelta = LEASE) -> JobLease:
    await bench.add_job()
    (job,) = await bench.runner.claim([JobKind.UPDATE_LINE_TASK], 1)
    return JobLease(job, bench.store, bench.clock, lease)


async def test_beginning_commits_a_full_lease_ahead(bench: WorkerBench) -> None:
    lease = await claimed(bench)
    bench.clock.advance(50)
    await lease.mark_started()
    kept = await bench.get_job()
    assert kept.started
    assert kept.lease_until == bench.clock.now() + LEASE


async def test_what_must_be_known_by_then_is_in_the_same_commit(bench: WorkerBench) -> None:
    lease = await claimed(bench)
    await lease.mark_started(lambda uow: uow.key_values.set("sent", "it"))
    assert await bench.store.run(lambda uow: uow.key_values.get("sent")) == "it"


async def test_a_lost_claim_neither_begins_nor_writes(bench: WorkerBench) -> None:
    lease = await claimed(bench)
    bench.clock.advance(LEASE.total_seconds() + 1)
    await bench.make_runner("two").claim([JobKind.UPDATE_LINE_TASK], 1)
    for attempt in (
        lease.mark_started(lambda uow: uow.key_values.set("x", "x")),
        lease.write(lambda uow: uow.key_values.set("x", "x")),
    ):
        with pytest.raises(LeaseLostError):
            await attempt
    assert await bench.store.run(lambda uow: uow.key_values.get("x")) is None


async def test_the_heartbeat_prolongs_while_the_work_goes_on(bench: WorkerBench) -> None:
    lease = await claimed(bench, SHORT)
    bench.clock.advance(LEASE.total_seconds() - 1)

    async def prolonged() -> None:
        while (await bench.get_job()).lease_until == lease.job.lease_until:  # noqa: ASYNC110 - the store announces nothing
            await asyncio.sleep(0.002)

    async with lease.keep_alive():
        await asyncio.wait_for(prolonged(), 5)


async def test_work_whose_claim_was_taken_away_is_cancelled(bench: WorkerBench) -> None:
    lease = await claimed(bench, SHORT)
    bench.clock.advance(LEASE.total_seconds() + 1)
    await bench.make_runner("two").claim([JobKind.UPDATE_LINE_TASK], 1)

    async def work() -> None:
        async with lease.keep_alive():
            await asyncio.sleep(5)

    task = asyncio.create_task(work())
    await asyncio.wait({task}, timeout=4)
    assert task.cancelled()


async def test_the_heartbeat_ends_with_the_work(bench: WorkerBench) -> None:
    lease = await claimed(bench)
    async with lease.keep_alive():
        pass
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("heartbeat")]

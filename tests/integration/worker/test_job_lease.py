"""A lease: renewed while its owner works, lost when another worker takes it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from lab_agent.domain.records import JobKind
from lab_agent.errors import LeaseLostError
from lab_agent.worker.job_lease import JobLease
from tests.integration.worker.conftest import LEASE, WorkerBench

SHORT = timedelta(seconds=0.03)


async def claimed(bench: WorkerBench, lease: timedelta = LEASE) -> JobLease:
    await bench.add_job()
    (job,) = await bench.runner.claim([JobKind.UPDATE_LINE_TASK], 1)
    return JobLease(job, bench.store, bench.clock, lease)


async def test_start_commits_a_full_lease(bench: WorkerBench) -> None:
    lease = await claimed(bench)
    bench.clock.advance(50)
    await lease.mark_started()
    kept = await bench.get_job()
    assert kept.started
    assert kept.lease_until == bench.clock.now() + LEASE


async def test_start_commits_given_state_in_same_transaction(bench: WorkerBench) -> None:
    lease = await claimed(bench)
    await lease.mark_started(lambda uow: uow.key_values.set("sent", "it"))
    assert await bench.store.run(lambda uow: uow.key_values.get("sent")) == "it"


async def test_lost_lease_neither_starts_nor_writes(bench: WorkerBench) -> None:
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


async def test_heartbeat_renews_during_work(bench: WorkerBench) -> None:
    lease = await claimed(bench, SHORT)
    bench.clock.advance(LEASE.total_seconds() - 1)

    async def renewed() -> None:
        while (await bench.get_job()).lease_until == lease.job.lease_until:  # noqa: ASYNC110 - the store announces nothing
            await asyncio.sleep(0.002)

    async with lease.keep_alive():
        await asyncio.wait_for(renewed(), 5)


async def test_work_is_cancelled_when_lease_is_lost(bench: WorkerBench) -> None:
    lease = await claimed(bench, SHORT)
    bench.clock.advance(LEASE.total_seconds() + 1)
    await bench.make_runner("two").claim([JobKind.UPDATE_LINE_TASK], 1)

    async def work() -> None:
        async with lease.keep_alive():
            await asyncio.sleep(5)

    task = asyncio.create_task(work())
    await asyncio.wait({task}, timeout=4)
    assert task.cancelled()


async def test_heartbeat_stops_with_the_work(bench: WorkerBench) -> None:
    lease = await claimed(bench)
    async with lease.keep_alive():
        pass
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("heartbeat")]

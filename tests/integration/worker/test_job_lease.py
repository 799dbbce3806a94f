"""A lease: renewed while its owner works, lost when another worker takes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta

import pytest

from lab_agent.queue.heartbeat import Heartbeat
from lab_agent.queue.job_lease import JobLease
from lab_agent.shared.errors import LeaseLostError
from tests.harness.clock import DEADLINE, wait_until
from tests.integration.worker.conftest import LEASE, WorkerBench

SHORT = timedelta(seconds=0.03)


async def claimed(bench: WorkerBench, lease: timedelta = LEASE, name: str = "e") -> JobLease:
    await bench.add_job(name)
    return JobLease((await bench.claim()).job, bench.store, bench.clock, lease)


async def test_start_commits_a_full_lease(bench: WorkerBench) -> None:
    """And what is given to be written with it."""
    lease = await claimed(bench)
    bench.clock.advance(50)
    await lease.mark_started(lambda uow: uow.key_values.set("sent", "it"))
    kept = await bench.get_job()
    assert (kept.started, kept.lease_until) == (True, bench.clock.now() + LEASE)
    assert await bench.store.transact(lambda uow: uow.key_values.get("sent")) == "it"


async def test_lost_lease_neither_starts_nor_writes(bench: WorkerBench) -> None:
    """Nor is it confirmed."""
    lease, started = await claimed(bench), await claimed(bench, name="started")
    await started.mark_started()
    bench.clock.advance(LEASE.total_seconds() + 1)
    for _ in range(2):
        await bench.claim(bench.make_runner("two"))
    for attempt in (
        lease.mark_started(lambda uow: uow.key_values.set("x", "x")),
        lease.write(lambda uow: uow.key_values.set("x", "x")),
        started.confirm(),
    ):
        with pytest.raises(LeaseLostError):
            await attempt
    assert await bench.store.transact(lambda uow: uow.key_values.get("x")) is None


@pytest.mark.parametrize("seconds", [LEASE.total_seconds() + 1, -60.0], ids=["over", "clock set back"])
async def test_doubtful_lease_is_confirmed_by_renewal(
    bench: WorkerBench, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """While it lasts, the store is not asked."""
    lease = await claimed(bench)
    bench.clock.advance(LEASE.total_seconds() - 1)
    with monkeypatch.context() as away:
        away.setattr(bench.store, "transact", None)
        await lease.confirm()
    bench.clock.advance(1 - LEASE.total_seconds() + seconds)
    await lease.confirm()
    assert (await bench.get_job()).lease_until == bench.clock.now() + LEASE


# --- the heartbeat


@asynccontextmanager
async def beating(bench: WorkerBench) -> AsyncIterator[Heartbeat]:
    """A heartbeat of leases that are short."""
    heartbeat = Heartbeat(bench.store, bench.clock, SHORT)
    running = asyncio.create_task(heartbeat.run())
    yield heartbeat
    assert not running.done(), "it goes on whatever happens to a lease"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def until_renewed(bench: WorkerBench, lease: JobLease) -> None:
    async def is_renewed() -> bool:
        return (await bench.get_job(lease.job.id)).lease_until != lease.job.lease_until

    await wait_until(is_renewed, "a renewal", interval=0.002)


async def work(heartbeat: Heartbeat, lease: JobLease, ended: asyncio.Event) -> None:
    with heartbeat.keep(lease):
        await ended.wait()


async def expect_cancelled(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task}, timeout=DEADLINE)
    assert task.cancelled()


async def test_heartbeat_renews_all_leases_during_work(bench: WorkerBench) -> None:
    """Also after an outage of the store."""
    leases = [await claimed(bench, SHORT, name) for name in ("a", "b")]
    bench.clock.advance(LEASE.total_seconds() - 1)
    outage = ExitStack()
    refused = outage.enter_context(bench.refusing())
    async with beating(bench) as heartbeat:
        with outage, heartbeat.keep(leases[0]), heartbeat.keep(leases[1]):
            await asyncio.wait_for(refused.wait(), DEADLINE)
            outage.close()
            for lease in leases:
                await until_renewed(bench, lease)


async def test_lost_lease_cancels_its_work_alone(bench: WorkerBench) -> None:
    lost = await claimed(bench, SHORT, "a")
    await bench.lose_lease()
    kept, ended = await claimed(bench, SHORT, "b"), asyncio.Event()
    async with beating(bench) as heartbeat:
        works = [asyncio.create_task(work(heartbeat, lease, ended)) for lease in (lost, kept)]
        await expect_cancelled(works[0])
        bench.clock.advance(1)
        await until_renewed(bench, kept)
        ended.set()
        await works[1]


async def claimed_again(bench: WorkerBench) -> JobLease:
    """The lease of the first job after it expired unrenewed, and the same worker found and claimed it."""
    bench.clock.advance(LEASE.total_seconds() + 1)
    return JobLease((await bench.claim()).job, bench.store, bench.clock, LEASE)


@pytest.mark.parametrize("order", ["as claimed", "later first", "lost before the claim"])
async def test_job_claimed_again_is_worked_on_once(bench: WorkerBench, order: str) -> None:
    """The store was away longer than a lease, say: what goes on under the lost one must not be taken for ours.

    Whichever of the two pieces of work on the job began to beat first.
    """
    heartbeat, ended = Heartbeat(bench.store, bench.clock, LEASE), asyncio.Event()
    lost = await claimed(bench)
    if order == "lost before the claim":
        earlier = asyncio.create_task(work(heartbeat, lost, ended))
        await asyncio.sleep(0)  # it begins
        later = asyncio.create_task(work(heartbeat, await claimed_again(bench), ended))
    else:
        kept = await claimed_again(bench)
        begun = [
            asyncio.create_task(work(heartbeat, each, ended))
            for each in ((lost, kept) if order == "as claimed" else (kept, lost))
        ]
        earlier, later = begun if order == "as claimed" else begun[::-1]
        await asyncio.sleep(0)  # both begin
        await heartbeat._renew()
    await expect_cancelled(earlier)
    await heartbeat._renew()
    ended.set()
    await later


async def test_work_that_is_ending_is_not_cancelled(bench: WorkerBench) -> None:
    """Between the commit of its end and our knowing of it, a job has no lease any more."""
    lease = await claimed(bench, SHORT)
    await bench.write(lambda uow: uow.jobs.save(lease.job.complete(bench.clock.now())))
    lease.is_ending = True
    heartbeat = Heartbeat(bench.store, bench.clock, SHORT)
    with heartbeat.keep(lease):
        await heartbeat._renew()
        await asyncio.sleep(0)  # a cancellation would arrive here

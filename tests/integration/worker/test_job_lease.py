"""A lease: renewed while its owner works, lost when another worker takes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from lab_agent.domain.job_records import JobKind
from lab_agent.errors import LeaseLostError, StoreUnreachableError
from lab_agent.worker.heartbeat import Heartbeat
from lab_agent.worker.job_lease import JobLease
from tests.harness.clock import DEADLINE
from tests.harness.jobs import claim_jobs
from tests.integration.worker.conftest import LEASE, WorkerBench

SHORT = timedelta(seconds=0.03)


async def claimed(bench: WorkerBench, lease: timedelta = LEASE, name: str = "e") -> JobLease:
    await bench.add_job(name)
    (job,) = await claim_jobs(bench.runner, [JobKind.UPDATE_LINE_TASK], 1)
    return JobLease(job.job, bench.store, bench.clock, lease)


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
    await claim_jobs(bench.make_runner("two"), [JobKind.UPDATE_LINE_TASK], 1)
    for attempt in (
        lease.mark_started(lambda uow: uow.key_values.set("x", "x")),
        lease.write(lambda uow: uow.key_values.set("x", "x")),
    ):
        with pytest.raises(LeaseLostError):
            await attempt
    assert await bench.store.run(lambda uow: uow.key_values.get("x")) is None


async def test_lease_is_confirmed_without_store_while_it_lasts(bench: WorkerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = await claimed(bench)
    bench.clock.advance(LEASE.total_seconds() - 1)
    monkeypatch.setattr(bench.store, "run", None)
    await lease.confirm()


@pytest.mark.parametrize("seconds", [LEASE.total_seconds() + 1, -60.0], ids=["over", "clock set back"])
async def test_doubtful_lease_is_confirmed_by_renewal(bench: WorkerBench, seconds: float) -> None:
    lease = await claimed(bench)
    bench.clock.advance(seconds)
    await lease.confirm()
    assert (await bench.get_job()).lease_until == bench.clock.now() + LEASE


async def test_lease_that_another_worker_took_is_not_confirmed(bench: WorkerBench) -> None:
    lease = await claimed(bench)
    await lease.mark_started()
    bench.clock.advance(LEASE.total_seconds() + 1)
    await claim_jobs(bench.make_runner("two"), [JobKind.UPDATE_LINE_TASK], 1)
    with pytest.raises(LeaseLostError):
        await lease.confirm()


@asynccontextmanager
async def beating(bench: WorkerBench) -> AsyncIterator[Heartbeat]:
    """A heartbeat of leases that are short."""
    heartbeat = Heartbeat(bench.store, bench.clock, SHORT)
    running = asyncio.create_task(heartbeat.run())
    yield heartbeat
    assert not running.done(), "it goes on whatever happens to a lease"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def until_renewed(bench: WorkerBench, number: int, before: datetime | None) -> None:
    async with asyncio.timeout(DEADLINE):
        while (await bench.get_job(number)).lease_until == before:  # noqa: ASYNC110 - the store announces nothing
            await asyncio.sleep(0.002)


async def test_heartbeat_renews_all_leases_during_work(bench: WorkerBench) -> None:
    leases = [await claimed(bench, SHORT, name) for name in ("a", "b")]
    bench.clock.advance(LEASE.total_seconds() - 1)
    async with beating(bench) as heartbeat:
        with heartbeat.keep(leases[0]), heartbeat.keep(leases[1]):
            for lease in leases:
                await until_renewed(bench, lease.job.id, lease.job.lease_until)


async def test_lost_lease_cancels_its_work_alone(bench: WorkerBench) -> None:
    lost = await claimed(bench, SHORT, "a")
    bench.clock.advance(LEASE.total_seconds() + 1)
    await claim_jobs(bench.make_runner("two"), [JobKind.UPDATE_LINE_TASK], 1)
    kept = await claimed(bench, SHORT, "b")
    ended = asyncio.Event()

    async with beating(bench) as heartbeat:

        async def work(lease: JobLease) -> None:
            with heartbeat.keep(lease):
                await ended.wait()

        works = [asyncio.create_task(work(lease)) for lease in (lost, kept)]
        await asyncio.wait({works[0]}, timeout=DEADLINE)
        assert works[0].cancelled()
        bench.clock.advance(1)
        await until_renewed(bench, kept.job.id, kept.job.lease_until)
        ended.set()
        await works[1]


async def claimed_again(bench: WorkerBench) -> JobLease:
    """The lease of the first job after it expired unrenewed, and the same worker found and claimed it."""
    bench.clock.advance(LEASE.total_seconds() + 1)
    (job,) = await claim_jobs(bench.runner, [JobKind.UPDATE_LINE_TASK], 1)
    return JobLease(job.job, bench.store, bench.clock, LEASE)


async def test_lost_lease_is_not_renewed_by_the_next_of_the_same_worker(bench: WorkerBench) -> None:
    """Also where a heartbeat asks about both: they are two leases of one job."""
    lost = await claimed(bench)
    kept = await claimed_again(bench)
    renewed = await bench.write(
        lambda uow: uow.jobs.renew_leases([lost.job, kept.job], now=bench.clock.now(), lease=LEASE),
    )
    assert renewed == {(kept.job.id, kept.job.fencing_token)}


async def test_job_claimed_again_is_worked_on_once(bench: WorkerBench) -> None:
    """The store was away longer than a lease, say: what goes on under the lost one must not be taken for ours."""
    lost = await claimed(bench)
    heartbeat = Heartbeat(bench.store, bench.clock, LEASE)
    ended = asyncio.Event()

    async def work(lease: JobLease) -> None:
        with heartbeat.keep(lease):
            await ended.wait()

    earlier = asyncio.create_task(work(lost))
    await asyncio.sleep(0)  # it begins
    later = asyncio.create_task(work(await claimed_again(bench)))
    await asyncio.wait({earlier}, timeout=DEADLINE)
    assert earlier.cancelled()
    await heartbeat._renew()
    ended.set()
    await later


async def test_heartbeat_tells_leases_of_one_job_apart(bench: WorkerBench) -> None:
    """Whichever of two pieces of work on it began to beat first."""
    lost = await claimed(bench)
    kept = await claimed_again(bench)
    heartbeat = Heartbeat(bench.store, bench.clock, LEASE)
    ended = asyncio.Event()

    async def work(lease: JobLease) -> None:
        with heartbeat.keep(lease):
            await ended.wait()

    later, earlier = asyncio.create_task(work(kept)), asyncio.create_task(work(lost))
    await asyncio.sleep(0)  # both begin
    await heartbeat._renew()
    await asyncio.wait({earlier}, timeout=DEADLINE)
    assert earlier.cancelled()
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


async def test_heartbeat_outlives_an_outage_of_the_store(bench: WorkerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = await claimed(bench, SHORT)
    bench.clock.advance(LEASE.total_seconds() - 1)
    failed, run = asyncio.Event(), bench.store.run

    async def unreachable(_: object) -> None:
        failed.set()
        raise StoreUnreachableError

    monkeypatch.setattr(bench.store, "run", unreachable)
    async with beating(bench) as heartbeat:
        with heartbeat.keep(lease):
            await asyncio.wait_for(failed.wait(), DEADLINE)
            monkeypatch.setattr(bench.store, "run", run)
            await until_renewed(bench, lease.job.id, lease.job.lease_until)

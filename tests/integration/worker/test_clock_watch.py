"""Our clock is set while the worker runs: what waits by the former time goes on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import JobState
from lab_agent.worker.clock_watch import ClockWatch
from lab_agent.worker.dispatcher import JobDispatcher
from lab_agent.worker.schedule import Scheduler
from tests.harness.clock import wait_until
from tests.harness.jobs import claim_jobs
from tests.integration.worker.conftest import LEASE, WorkerBench

HOUR = 3600.0
LONGEST_WAIT = timedelta(minutes=5)


@dataclass
class SteadyTime:
    seconds: float = 0.0

    def pass_by(self, bench: WorkerBench, seconds: float) -> None:
        self.seconds += seconds
        bench.clock.advance(seconds)


def make_watch(bench: WorkerBench, steady: SteadyTime, scheduler: Scheduler | None = None) -> ClockWatch:
    scheduler = scheduler or Scheduler(bench.outages)
    return ClockWatch(bench.store, bench.clock, scheduler, LONGEST_WAIT, LEASE, steady=lambda: steady.seconds)


async def let_a_job_wait(bench: WorkerBench, *, gives_way: bool = False, **span: float) -> None:
    await bench.add_job()
    (claimed,) = await claim_jobs(bench.runner, [JobKind.UPDATE_LINE_TASK], 1)
    now, wait = bench.clock.now(), timedelta(**span)
    waiting = claimed.job.wait(now, wait.total_seconds(), "") if gives_way else claimed.job.reschedule(now, now + wait, "not yet")
    await bench.write(lambda uow: uow.jobs.release(waiting))


@pytest.mark.parametrize("back", [HOUR, 0.5 * HOUR, 600.0])
async def test_job_planned_before_the_clock_was_set_back_is_due(bench: WorkerBench, back: float) -> None:
    steady = SteadyTime()
    watch = make_watch(bench, steady)
    await let_a_job_wait(bench, minutes=1)
    bench.clock.advance(-back)
    with capture_logs() as lines:
        await watch.look()
        await watch.look()
    (line,) = (each for each in lines if each["action"] == "clock_set")
    assert line["seconds"] == -back
    assert (await bench.get_job()).due_at == bench.clock.now()


@pytest.mark.parametrize(("wait", "is_due"), [(timedelta(minutes=29), False), (timedelta(minutes=31), True)])
async def test_job_that_gives_way_keeps_its_hour(bench: WorkerBench, wait: timedelta, is_due: bool) -> None:
    watch = make_watch(bench, SteadyTime())
    await let_a_job_wait(bench, gives_way=True, seconds=wait.total_seconds())
    bench.clock.advance(-HOUR / 2)
    await watch.look()
    assert ((await bench.get_job()).due_at == bench.clock.now()) is is_due


async def test_lease_of_a_worker_that_is_gone_ends_in_time_after_the_clock_was_set_back(bench: WorkerBench) -> None:
    watch = make_watch(bench, SteadyTime())
    await bench.add_job()
    await claim_jobs(bench.runner, [JobKind.UPDATE_LINE_TASK], 1)
    bench.clock.advance(-HOUR)
    await watch.look()
    bench.clock.advance(LEASE.total_seconds() + 1)
    assert await bench.runner.claimer.expire_leases() == 1
    assert (await bench.get_job()).state is JobState.OUTCOME_UNKNOWN


async def test_lease_of_a_worker_that_lives_holds_when_the_clock_is_set_forward(bench: WorkerBench) -> None:
    steady = SteadyTime()
    watch = make_watch(bench, steady)
    dispatcher = JobDispatcher({}, bench.runner, bench.outages, concurrency=1, can_trust_leases=watch.can_trust_leases)
    await bench.add_job()
    await claim_jobs(bench.runner, [JobKind.UPDATE_LINE_TASK], 1)
    bench.clock.advance(HOUR)
    await dispatcher.look()
    assert (await bench.get_job()).state is JobState.IN_FLIGHT
    steady.pass_by(bench, LEASE.total_seconds() - 1)
    await dispatcher.look()
    assert (await bench.get_job()).state is JobState.IN_FLIGHT
    steady.pass_by(bench, 1)
    await dispatcher.look()
    assert (await bench.get_job()).state is JobState.OUTCOME_UNKNOWN, "nobody has renewed it"


@pytest.mark.parametrize("slewed", [0.0, 4.0, -4.0])
async def test_time_that_passes_mends_nothing(bench: WorkerBench, slewed: float) -> None:
    steady = SteadyTime()
    watch = make_watch(bench, steady)
    await let_a_job_wait(bench, hours=3)
    due_at = (await bench.get_job()).due_at
    steady.pass_by(bench, HOUR)
    bench.clock.advance(slewed)
    with capture_logs() as lines:
        await watch.look()
    assert lines == []
    assert (await bench.get_job()).due_at == due_at


async def test_clock_set_forward_is_told_and_leaves_jobs(bench: WorkerBench) -> None:
    watch = make_watch(bench, SteadyTime())
    await let_a_job_wait(bench, hours=3)
    due_at = (await bench.get_job()).due_at
    bench.clock.advance(HOUR)
    with capture_logs() as lines:
        await watch.look()
    assert [(each["action"], each["seconds"]) for each in lines] == [("clock_set", HOUR)]
    assert (await bench.get_job()).due_at == due_at


async def test_tasks_planned_before_the_clock_was_set_back_run_at_once(bench: WorkerBench) -> None:
    runs = 0

    async def count() -> None:
        nonlocal runs
        runs += 1

    scheduler = Scheduler(bench.outages)
    scheduler.every(HOUR, "count", count, jitter=0)
    scheduler.start()
    await wait_until(lambda: runs == 1, "the first run")
    running = asyncio.create_task(make_watch(bench, SteadyTime(), scheduler).run())
    bench.clock.advance(-HOUR)
    await wait_until(lambda: runs == 2, "a run after the clock was set back")
    running.cancel()
    scheduler.stop()

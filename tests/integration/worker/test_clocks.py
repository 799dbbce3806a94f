"""Our clock and the service's: the alert that they differ, and what waits while ours is set."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from lab_agent.exchange.service import ServiceClock
from lab_agent.operations.clock_watch import ClockWatch
from lab_agent.operations.exchange_probes import ClockProbe
from lab_agent.operations.monitor import Monitor
from lab_agent.operations.schedule import Scheduler
from lab_agent.queue.dispatcher import JobDispatcher
from lab_agent.queue.workers import WorkerRecord
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import ServiceUnavailable
from lab_agent.shared.state_machines import JobState
from lab_agent.store.event_records import Alert
from tests.harness.clock import wait_until
from tests.integration.worker.conftest import LEASE, WorkerBench

DIFFERS = AlertKey(ConditionId.CLOCK_DIFFERS)


@dataclass
class ServiceWithClock:
    known: ServiceClock | None = None

    def service_clock(self) -> ServiceClock | None:
        return self.known

    def measure(self, bench: WorkerBench, *, is_confirmed: bool = True, **offset: float) -> None:
        now = bench.clock.now()
        self.known = ServiceClock(offset=timedelta(**offset), is_confirmed=is_confirmed, since=now, measured_at=now)


def make_monitor(bench: WorkerBench, service: ServiceWithClock, host: str = "") -> Monitor:
    probe = ClockProbe(cast("Any", service), bench.store, bench.clock, timedelta(minutes=2), host)
    return Monitor(bench.store, bench.clock, (probe,))


async def test_alert_names_both_clocks_and_ends_when_they_agree(bench: WorkerBench) -> None:
    service = ServiceWithClock()
    monitor = make_monitor(bench, service)
    began = bench.clock.now()
    service.measure(bench, days=1)
    await monitor.run()
    alert = (await bench.open_alerts())[DIFFERS]
    assert alert.since == began
    assert alert.detail == "ours 2026-03-02 12:00:00 UTC, the service's 2026-03-03 12:00:00 UTC"
    service.measure(bench, seconds=100)
    await monitor.run()
    assert DIFFERS not in await bench.open_alerts()


async def test_what_is_not_confirmed_neither_opens_nor_ends(bench: WorkerBench) -> None:
    """Nor does a service that has not answered yet."""
    service = ServiceWithClock()
    monitor = make_monitor(bench, service)
    with pytest.raises(ServiceUnavailable):
        await monitor.probes[0].look()
    service.measure(bench, is_confirmed=False, days=1)
    await monitor.run()
    assert DIFFERS not in await bench.open_alerts()
    service.measure(bench, days=1)
    await monitor.run()
    service.measure(bench, is_confirmed=False)
    await monitor.run()
    assert DIFFERS in await bench.open_alerts()


async def test_held_orders_are_counted(bench: WorkerBench) -> None:
    now, rule = bench.clock.now(), "order.clocks-differ"
    held = Alert(condition=ConditionId.ORDERS_HELD, subject=rule, detail="", since=now, opened_at=now, count=7)
    await bench.write(lambda uow: uow.alerts.open(held))
    service = ServiceWithClock()
    service.measure(bench, hours=-1)
    await make_monitor(bench, service).run()
    assert (await bench.open_alerts())[DIFFERS].count == 7


async def test_worker_on_another_machine_ends_only_its_own_alert(bench: WorkerBench) -> None:
    wrong, right = ServiceWithClock(), ServiceWithClock()
    wrong.measure(bench, days=1)
    right.measure(bench, seconds=0)
    now = bench.clock.now()
    row = WorkerRecord(name="w1", host="one", pid=1, version="1", mode="normal", started_at=now, beat_at=now - timedelta(days=1))
    await bench.write(lambda uow: uow.workers.save(row))
    await make_monitor(bench, wrong, "one").run()
    await make_monitor(bench, right, "two").run()
    alert = (await bench.open_alerts())[AlertKey(ConditionId.CLOCK_DIFFERS, "one")]
    assert alert.detail.startswith("on one ours ")
    await bench.write(lambda uow: uow.workers.save(replace(row, stopped_at=now)))
    await make_monitor(bench, right, "two").run()
    assert await bench.open_alerts() == {}


# --- our clock is set while the worker runs


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
    now, wait, job = bench.clock.now(), timedelta(**span), (await bench.claim()).job
    waiting = job.wait(now, wait.total_seconds(), "") if gives_way else job.reschedule(now, now + wait, "not yet")
    await bench.write(lambda uow: uow.jobs.release(waiting))


@pytest.mark.parametrize(("minutes", "is_due"), [(29, False), (31, True)])
async def test_job_that_gives_way_keeps_its_hour(bench: WorkerBench, minutes: int, is_due: bool) -> None:
    watch = make_watch(bench, SteadyTime())
    await let_a_job_wait(bench, gives_way=True, minutes=minutes)
    bench.clock.advance(-HOUR / 2)
    await watch.look()
    assert ((await bench.get_job()).due_at == bench.clock.now()) is is_due


async def test_job_planned_before_the_clock_was_set_back_is_due(bench: WorkerBench) -> None:
    steady = SteadyTime()
    watch = make_watch(bench, steady)
    await let_a_job_wait(bench, minutes=1)
    bench.clock.advance(-HOUR)
    with capture_logs() as lines:
        await watch.look()
        await watch.look()
    (line,) = (each for each in lines if each["action"] == "clock_set")
    assert line["seconds"] == -HOUR
    assert (await bench.get_job()).due_at == bench.clock.now()


async def test_lease_of_a_worker_that_is_gone_ends_in_time_after_the_clock_was_set_back(bench: WorkerBench) -> None:
    watch = make_watch(bench, SteadyTime())
    await bench.add_job()
    await bench.claim()
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
    await bench.claim()
    bench.clock.advance(HOUR)
    await dispatcher.look()
    assert (await bench.get_job()).state is JobState.IN_FLIGHT
    steady.pass_by(bench, LEASE.total_seconds() - 1)
    await dispatcher.look()
    assert (await bench.get_job()).state is JobState.IN_FLIGHT
    steady.pass_by(bench, 1)
    await dispatcher.look()
    assert (await bench.get_job()).state is JobState.OUTCOME_UNKNOWN, "nobody has renewed it"


@pytest.mark.parametrize(("passed", "set_by"), [(HOUR, 0.0), (HOUR, 4.0), (HOUR, -4.0), (0.0, HOUR)])
async def test_time_that_passes_mends_nothing(bench: WorkerBench, passed: float, set_by: float) -> None:
    """A clock that is set forward is told, and leaves jobs alone."""
    steady = SteadyTime()
    watch = make_watch(bench, steady)
    await let_a_job_wait(bench, hours=3)
    due_at = (await bench.get_job()).due_at
    steady.pass_by(bench, passed)
    bench.clock.advance(set_by)
    with capture_logs() as lines:
        await watch.look()
    assert [(each["action"], each["seconds"]) for each in lines] == ([] if passed else [("clock_set", HOUR)])
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

"""The worker: its heartbeat, and how it stops: what is running is finished, whatever made it stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.lis.laboratory_system import Inbox, NoAdapters
from lab_agent.operations.agent import AgentLimits, AgentProbe
from lab_agent.operations.presence import Presence, WorkerIdentity
from lab_agent.operations.restore_watch import RestoreWatch
from lab_agent.operations.schedule import Scheduler
from lab_agent.operations.worker import BackgroundTaskFailed, Worker
from lab_agent.queue.dispatcher import JobDispatcher
from lab_agent.queue.job_queues import JOB_QUEUES
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.workers import WorkerRecord
from lab_agent.shared.errors import StoreError
from lab_agent.shared.state_machines import JobState
from tests.harness.clock import DEADLINE, wait_until
from tests.integration.worker.conftest import WorkerBench

IDENTITY = WorkerIdentity(name="host-1", host="host", version="1", mode="normal", schema="0001")


async def nothing_to_compare() -> None:
    """No order is open."""


def make_worker(bench: WorkerBench, *, drain_timeout: float) -> Worker:
    def inbox_for(name: str) -> Inbox:
        raise AssertionError(name)

    dispatcher = JobDispatcher(JOB_QUEUES, bench.runner, bench.outages, concurrency=2)
    bench.store.on_jobs_due = dispatcher.wake
    return Worker(
        dispatcher=dispatcher,
        scheduler=Scheduler(bench.outages),
        outages=bench.outages,
        presence=Presence(bench.store, bench.clock, IDENTITY, 10.0, lambda: 0.0),
        restore_watch=RestoreWatch(bench.store, bench.clock, None, dispatcher.hold, nothing_to_compare),
        adapters=NoAdapters(),
        inbox_for=inbox_for,
        scheduled_tasks={},
        background_tasks={"heartbeat": bench.runner.heartbeat.run},
        drain_timeout=drain_timeout,
    )


@asynccontextmanager
async def dispatcher_that_fails(
    bench: WorkerBench, monkeypatch: pytest.MonkeyPatch, *, drain_timeout: float
) -> AsyncIterator[tuple[asyncio.Task[None], asyncio.Event]]:
    """A worker whose dispatcher fails in the midst of a handover, and what lets that one end."""
    gate, begun = bench.hold_jobs()
    stopping = asyncio.Event()
    await bench.add_job(kind=JobKind.SUBMIT_ORDER)
    worker = make_worker(bench, drain_timeout=drain_timeout)
    stop = worker.dispatcher.stop
    monkeypatch.setattr(worker.dispatcher, "stop", lambda: (stop(), stopping.set()))
    running = asyncio.create_task(worker.run())
    await wait_until(lambda: bool(begun), "a handover has begun")
    with bench.refusing(StoreError("SQLSTATE 25006")):
        worker.dispatcher.wake({JobKind.FETCH_ORDER})
        await asyncio.wait_for(stopping.wait(), DEADLINE)
    yield running, gate
    with pytest.raises(BackgroundTaskFailed, match="dispatcher"):
        await asyncio.wait_for(running, DEADLINE)


async def test_running_jobs_are_finished_after_the_dispatcher_failed(bench: WorkerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    async with dispatcher_that_fails(bench, monkeypatch, drain_timeout=30) as (running, gate):
        await asyncio.wait({running}, timeout=0.05)
        assert not running.done(), "it waits for the handover"
        gate.set()
    assert bench.attempts == [("submit_order", "done")]
    assert (await bench.get_job()).state is JobState.DONE


async def test_running_jobs_are_cancelled_after_the_drain_timeout(bench: WorkerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    async with dispatcher_that_fails(bench, monkeypatch, drain_timeout=0.01) as (running, _):
        await asyncio.wait({running}, timeout=DEADLINE)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("job ")]
    assert bench.attempts == []
    assert (await bench.get_job()).state is JobState.IN_FLIGHT, "its lease expires, and the outcome is verified"


# --- its heartbeat, written while it lives, and at its end


INTERVAL = 0.01
LIMITS = AgentLimits(heartbeat_interval=INTERVAL, poll_longest=120.0)


def make_presence(bench: WorkerBench, lags: list[float] | None = None) -> Presence:
    identity = WorkerIdentity.of_this_process("host-1", "normal", "0001")
    return Presence(bench.store, bench.clock, identity, INTERVAL, lambda: lags.pop(0) if lags else 0.0)


async def heartbeats(bench: WorkerBench) -> tuple[WorkerRecord, ...]:
    return await bench.store.run_read_only(lambda uow: uow.workers.newest())


async def wait_for_heartbeat(bench: WorkerBench, holds: Any) -> WorkerRecord:
    async def found() -> bool:
        written = await heartbeats(bench)
        return bool(written) and bool(holds(written[0]))

    await wait_until(found, "a heartbeat")
    return (await heartbeats(bench))[0]


async def test_heartbeat_follows_the_clock(bench: WorkerBench) -> None:
    running = asyncio.create_task(make_presence(bench).run())
    first = await wait_for_heartbeat(bench, lambda _: True)
    bench.clock.advance(10)
    second = await wait_for_heartbeat(bench, lambda each: each.beat_at == bench.clock.now())
    running.cancel()
    assert (first.started_at, second.started_at) == (first.beat_at, first.beat_at)
    assert (second.stopped_at, second.stalled_at) == (None, None)


async def test_long_lag_is_kept_and_told(bench: WorkerBench) -> None:
    running = asyncio.create_task(make_presence(bench, [180.0]).run())
    stalled = await wait_for_heartbeat(bench, lambda each: each.stalled_at is not None and each.loop_lag_ms == 0)
    running.cancel()
    assert stalled.stalled_ms == 180_000
    (finding,) = await AgentProbe(bench.store, bench.clock, LIMITS).look()
    assert (finding.condition.value, finding.since) == ("agent.stood_still", bench.clock.now() - timedelta(minutes=3))
    bench.clock.advance(minutes=16)
    assert await AgentProbe(bench.store, bench.clock, LIMITS).look() == ()


async def test_database_that_fails_ends_no_heartbeat(bench: WorkerBench) -> None:
    with bench.refusing() as refused:
        running = asyncio.create_task(make_presence(bench).run())
        await asyncio.wait_for(refused.wait(), DEADLINE)
    assert (await wait_for_heartbeat(bench, lambda _: True)).name == "host-1"
    running.cancel()


async def test_end_is_written_with_its_cause(bench: WorkerBench) -> None:
    presence = make_presence(bench)
    await presence.tell_fault("catalogue", KeyError("x"))
    (failed,) = await heartbeats(bench)
    assert (failed.ended_part, failed.fault, failed.stopped_at) == ("catalogue", "KeyError", None)
    (finding,) = await AgentProbe(bench.store, bench.clock, LIMITS).look()
    assert (finding.condition.value, finding.subject) == ("agent.task_ended", "catalogue")
    await presence.tell_stopped("SIGTERM")
    (stopped,) = await heartbeats(bench)
    assert (stopped.stopped_at, stopped.stopped_by) == (bench.clock.now(), "SIGTERM")
    bench.clock.advance(hours=2)
    assert await AgentProbe(bench.store, bench.clock, LIMITS).look() == ()

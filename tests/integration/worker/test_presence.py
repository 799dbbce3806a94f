"""The worker's heartbeat: written while it lives, and at its end, however it ends."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.domain.workers import WorkerRecord
from lab_agent.errors import StoreUnreachableError
from lab_agent.monitoring.agent import AgentLimits, AgentProbe
from lab_agent.worker.presence import Presence, WorkerIdentity
from tests.harness.clock import DEADLINE, wait_until
from tests.integration.worker.conftest import WorkerBench

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


async def test_database_that_fails_ends_no_heartbeat(bench: WorkerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    run, refused = bench.store.run, asyncio.Event()

    async def refuse(_: Any) -> Any:
        refused.set()
        raise StoreUnreachableError

    monkeypatch.setattr(bench.store, "run", refuse)
    running = asyncio.create_task(make_presence(bench).run())
    await asyncio.wait_for(refused.wait(), DEADLINE)
    monkeypatch.setattr(bench.store, "run", run)
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

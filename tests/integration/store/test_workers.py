"""Heartbeats of workers, on the store in memory, on SQLite and on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from lab_agent.domain.workers import WorkerRecord
from tests.integration.store.conftest import NOW, UnitOfWorkRunner


def make_worker(name: str = "host-1", **fields: Any) -> WorkerRecord:
    start: dict[str, Any] = {"host": "host", "pid": 7, "version": "1.0", "mode": "normal", "started_at": NOW, "beat_at": NOW}
    return WorkerRecord(name=name, **{**start, **fields})


async def test_heartbeat_replaces_the_one_before(transact: UnitOfWorkRunner) -> None:
    worker = make_worker()
    await transact.workers.save(worker)
    beaten = replace(worker, beat_at=NOW + timedelta(seconds=10), loop_lag_ms=12, stalled_at=NOW, stalled_ms=180_000)
    await transact.workers.save(beaten)
    assert await transact.workers.newest() == (beaten,)


async def test_workers_are_listed_latest_heartbeat_first(transact: UnitOfWorkRunner) -> None:
    ended = make_worker("host-1", stopped_at=NOW, stopped_by="SIGTERM", ended_part="catalogue", fault="KeyError")
    living = make_worker("host-2", beat_at=NOW + timedelta(seconds=5))
    await transact(lambda uow: (uow.workers.save(ended), uow.workers.save(living)))
    assert await transact.workers.newest() == (living, ended)
    assert await transact.workers.newest(limit=1) == (living,)


async def test_old_heartbeats_are_purged(transact: UnitOfWorkRunner) -> None:
    old, kept = make_worker("host-1", beat_at=NOW - timedelta(days=2)), make_worker("host-2")
    await transact(lambda uow: (uow.workers.save(old), uow.workers.save(kept)))
    assert await transact.workers.purge(before=NOW - timedelta(days=1)) == 1
    assert await transact.workers.newest() == (kept,)

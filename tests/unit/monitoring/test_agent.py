"""What follows from the agent's heartbeats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.workers import WorkerRecord
from lab_agent.monitoring.agent import AgentLimits, AgentState, find_lost_machines, find_overdue_poll, living_workers

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
LIMITS = AgentLimits(heartbeat_interval=10.0, poll_longest=120.0)


def worker(name: str = "host-1", *, age: float = 5.0, **fields: Any) -> WorkerRecord:
    start: dict[str, Any] = {"host": "host", "pid": 7, "version": "1", "mode": "normal", "started_at": NOW - timedelta(days=1)}
    return WorkerRecord(name=name, beat_at=NOW - timedelta(seconds=age), **{**start, **fields})


@pytest.mark.parametrize(
    ("found", "lives"),
    [
        (worker(age=59), True),
        (worker(age=61), False),
        (worker(age=-3600), False),
        (worker(age=1, stopped_at=NOW), False),
    ],
)
def test_worker_lives_with_a_fresh_heartbeat(found: WorkerRecord, lives: bool) -> None:
    assert bool(living_workers([found], LIMITS, NOW)) is lives


@pytest.mark.parametrize(
    ("workers", "last_poll", "since"),
    [
        ((worker(),), NOW - timedelta(minutes=9), None),
        ((worker(),), NOW - timedelta(minutes=11), NOW - timedelta(minutes=11)),
        ((worker(),), None, NOW - timedelta(days=1)),
        ((worker(started_at=NOW - timedelta(minutes=1)),), NOW - timedelta(days=2), None),
        ((worker(age=120),), NOW - timedelta(minutes=11), None),
    ],
    ids=["in time", "late", "never", "just started", "nobody lives"],
)
def test_poll_is_overdue_while_somebody_could(workers: Any, last_poll: datetime | None, since: datetime | None) -> None:
    found = list(find_overdue_poll(AgentState(workers=workers, last_poll=last_poll), LIMITS, NOW))
    assert [(each.condition, each.since) for each in found] == ([(ConditionId.AGENT_POLL_OVERDUE, since)] if since else [])


@pytest.mark.parametrize(
    ("workers", "lost"),
    [
        ((worker(), worker("b", host="two", age=61)), ["two"]),
        ((worker(), worker("b", host="two", age=61), worker("c", host="two", age=7200)), ["two"]),
        ((worker(), worker("b", host="two", age=59)), []),
        ((worker(), worker("b", host="two", age=61, stopped_at=NOW)), []),
        ((worker(), worker("b", host="two", age=5), worker("c", host="two", age=61)), []),
        ((worker(), worker("b", host="two", age=90_000)), []),
        ((worker(), worker("b", age=61)), []),
        ((worker(age=90), worker("b", host="two", age=61)), []),
    ],
    ids=["lost", "once for each", "lives", "stopped", "started again", "long ago", "same machine", "nobody lives"],
)
def test_machine_that_is_lost_is_told_by_the_others(workers: Any, lost: list[str]) -> None:
    found = list(find_lost_machines(workers, LIMITS, NOW))
    assert [(each.condition, each.subject) for each in found] == [(ConditionId.AGENT_LOST_MACHINE, host) for host in lost]

"""Whether the agent itself works, as its heartbeats in the store and the time of the last poll say."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lab_agent.operations.monitor import Finding
from lab_agent.queue.workers import WorkerRecord
from lab_agent.settings.groups import MonitoringSettings, WorkerSettings
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.store.read_models import LAST_POLL_KEY
from lab_agent.store.unit_of_work import Store, UnitOfWork

STALL_INTERVALS = 3
"""So many heartbeats late, the process counts as having stood still."""
STALE_INTERVALS = 6
"""So many heartbeats without one, a worker counts as gone or frozen: a database that is busy delays one."""
_POLL_INTERVALS = 5
_LEAST_POLL_WAIT = 60.0
"""So many of the longest poll intervals without a poll that succeeded, and at least so many seconds, it is overdue."""
_STALL_TOLD_FOR = timedelta(minutes=15)
_ENDED_PART_TOLD_FOR = timedelta(hours=1)
_LOST_TOLD_FOR = timedelta(days=1)
_CONDITIONS = frozenset(
    {
        *(ConditionId.AGENT_STOOD_STILL, ConditionId.AGENT_TASK_ENDED),
        *(ConditionId.AGENT_POLL_OVERDUE, ConditionId.AGENT_LOST_MACHINE),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """What the store says about the agent: its workers, latest heartbeat first, and when a poll succeeded last."""

    workers: Sequence[WorkerRecord]
    last_poll: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """Seconds: between two heartbeats, and between two polls at the longest."""

    heartbeat_interval: float
    poll_longest: float

    @classmethod
    def of(cls, monitoring: MonitoringSettings, worker: WorkerSettings) -> AgentLimits:
        """The limits of these settings."""
        return cls(heartbeat_interval=monitoring.heartbeat_interval, poll_longest=worker.poll_longest)

    @property
    def stale_after(self) -> timedelta:
        """How old a heartbeat may be."""
        return timedelta(seconds=STALE_INTERVALS * self.heartbeat_interval)

    @property
    def poll_overdue_after(self) -> timedelta:
        """How old the last poll may be."""
        return timedelta(seconds=max(_POLL_INTERVALS * self.poll_longest, _LEAST_POLL_WAIT))


def read_agent_state(uow: UnitOfWork) -> AgentState:
    """Read it; nothing is locked or written."""
    noted = uow.key_values.get(LAST_POLL_KEY)
    return AgentState(workers=uow.workers.newest(), last_poll=None if noted is None else datetime.fromisoformat(noted))


def living_workers(workers: Collection[WorkerRecord], limits: AgentLimits, now: datetime) -> tuple[WorkerRecord, ...]:
    """Those whose heartbeat is fresh. One that is far ahead of us is not: it was written before a clock was set back."""
    return tuple(each for each in workers if each.stopped_at is None and abs(now - each.beat_at) <= limits.stale_after)


@dataclass(frozen=True, slots=True)
class AgentProbe:
    """Finds what the agent can say of itself: that it stood still, that a part of it ended, that no poll succeeds."""

    store: Store
    clock: Clock
    limits: AgentLimits
    shares_store: bool = False
    """Whether agents on several machines may work on the database."""

    @property
    def conditions(self) -> frozenset[ConditionId]:
        """The conditions that it decides about."""
        return _CONDITIONS

    async def look(self) -> Sequence[Finding]:
        """Read the store. Raises `StoreUnreachableError`."""
        state = await self.store.run_read_only(read_agent_state)
        now = self.clock.now()
        return (
            *find_stalls(state.workers, now),
            *find_ended_parts(state.workers, now),
            *find_overdue_poll(state, self.limits, now),
            *(find_lost_machines(state.workers, self.limits, now) if self.shares_store else ()),
        )


def find_stalls(workers: Collection[WorkerRecord], now: datetime) -> Iterator[Finding]:
    """Give the last time that a worker stood still and went on, for a quarter of an hour."""
    stalls = [(each.stalled_at, each) for each in workers if each.stalled_at and now - each.stalled_at < _STALL_TOLD_FOR]
    if stalls:
        until, worker = max(stalls, key=lambda stall: stall[0])
        lasted = timedelta(milliseconds=worker.stalled_ms)
        began = until - lasted
        detail = f"from {began:%Y-%m-%d %H:%M:%S} to {until:%Y-%m-%d %H:%M:%S} UTC, on {worker.host}"
        yield Finding(condition=ConditionId.AGENT_STOOD_STILL, detail=detail, since=began)


def find_ended_parts(workers: Collection[WorkerRecord], now: datetime) -> Iterator[Finding]:
    """Give the parts that ended by themselves within the last hour, each with the last time."""
    ended: dict[str, WorkerRecord] = {}
    for each in workers:  # latest first
        if each.ended_part is not None and now - each.beat_at < _ENDED_PART_TOLD_FOR:
            ended.setdefault(each.ended_part, each)
    for part, worker in ended.items():
        detail = f"{worker.fault or 'it returned'}, at {worker.beat_at:%Y-%m-%d %H:%M:%S} UTC on {worker.host}"
        yield Finding(condition=ConditionId.AGENT_TASK_ENDED, subject=part, detail=detail, since=worker.beat_at)


def find_lost_machines(workers: Collection[WorkerRecord], limits: AgentLimits, now: datetime) -> Iterator[Finding]:
    """Give the machines whose agent has ended without saying so within the last day, while one on another machine lives."""
    alive = {each.host for each in living_workers(workers, limits, now)}
    newest: dict[str, WorkerRecord] = {}
    for each in workers:  # latest first
        newest.setdefault(each.host, each)
    for host, last in newest.items():
        is_recent = limits.stale_after < now - last.beat_at < _LOST_TOLD_FOR
        if alive and host not in alive and last.stopped_at is None and is_recent:
            detail = f"its last heartbeat was at {last.beat_at:%Y-%m-%d %H:%M:%S} UTC (process {last.pid})"
            yield Finding(condition=ConditionId.AGENT_LOST_MACHINE, subject=host, detail=detail, since=last.beat_at)


def find_overdue_poll(state: AgentState, limits: AgentLimits, now: datetime) -> Iterator[Finding]:
    """Give that no poll has succeeded for too long, while a worker lives that had the time for one."""
    living = living_workers(state.workers, limits, now)
    if not living:
        return
    started = min(each.started_at for each in living)
    since = max(state.last_poll or started, started)
    if now - since > limits.poll_overdue_after:
        last = f"the last was at {state.last_poll:%Y-%m-%d %H:%M:%S} UTC" if state.last_poll else "none has ever succeeded"
        yield Finding(condition=ConditionId.AGENT_POLL_OVERDUE, detail=last, since=state.last_poll or started)

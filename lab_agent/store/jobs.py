"""The job queue: leases with an owner, a heartbeat and a fencing token (law 8).

Claimable is the first open job of an ordering key, while no other job of that key has an owner. On SQLite every unit of work
has the write lock, so one query is enough. On PostgreSQL the candidates are locked with SKIP LOCKED, and then their ordering
keys: a statement sees only what was committed before it began, so the query runs again under the locks, and no two workers
ever hold jobs of one ordering key.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, func, select, update
from typing_extensions import override

from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import JobId, OrderKey
from lab_agent.domain.records import PASSED_IN_REVIEW, FailingJobs, Job, JobKind, NewJob
from lab_agent.domain.state_machines import (
    BLOCKING_STATES,
    CLAIMABLE_STATES,
    IN_FLIGHT_STATES,
    JOBS_NEEDING_OPERATOR,
    OPEN_JOBS,
    JobState,
)
from lab_agent.errors import LeaseLostError
from lab_agent.ports.repositories import JobRepository
from lab_agent.store.column_types import UtcDateTime
from lab_agent.store.row_mapping import in_states, insert_new, to_record, to_values, unindexed
from lab_agent.store.tables import jobs

_ADVISORY_LOCK_NAMESPACE = 0x1AB
"""Our part of PostgreSQL's advisory locks."""


class SqlJobRepository(JobRepository):
    """The job queue, in the table `jobs`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def add(self, job: NewJob) -> bool:
        self._lock_ordering_key(job.ordering_key)
        born = min(job.due_at, datetime.now(UTC))
        start = {
            "state": JobState.DUE,
            "started": False,
            "attempts": 0,
            "fencing_token": 0,
            "created_at": born,
            "changed_at": born,
        }
        return insert_new(self._connection, jobs, {**to_values(job), **start})

    @override
    def claim(self, kinds: Collection[JobKind], *, owner: str, now: datetime, lease: timedelta, limit: int) -> tuple[Job, ...]:
        self._expire_leases(now)
        if limit < 1 or not kinds:
            return ()
        found = self._fetch(select_claimable(kinds, now).limit(limit).with_for_update(skip_locked=True, of=jobs))
        if self._connection.dialect.name == "postgresql":
            found = self._recheck_locked(found, kinds, now)
        claimed = tuple(job.claim(owner, now, lease) for job in found)
        for before, after in zip(found, claimed, strict=True):
            self._save_fenced(after, fencing_token=before.fencing_token)
        return claimed

    @override
    def renew_lease(self, job: Job, *, now: datetime, lease: timedelta) -> None:
        ours = (jobs.c.id == job.id) & (jobs.c.fencing_token == job.fencing_token) & jobs.c.lease_until.is_not(None)
        if not self._connection.execute(update(jobs).where(ours).values(lease_until=now + lease)).rowcount:
            raise LeaseLostError()

    @override
    def save(self, job: Job) -> None:
        self._save_fenced(job, fencing_token=job.fencing_token)

    @override
    def get(self, job: JobId) -> Job | None:
        found = self._fetch(select(jobs).where(jobs.c.id == job))
        return found[0] if found else None

    @override
    def list_for_order(self, order: OrderKey, *, open_only: bool = True) -> tuple[Job, ...]:
        found = select(jobs).where(jobs.c.order_key == order).order_by(jobs.c.id)
        return self._fetch(found.where(in_states(jobs.c.state, OPEN_JOBS)) if open_only else found)

    @override
    def needing_operator(self) -> tuple[Job, ...]:
        return self._fetch(select(jobs).where(in_states(jobs.c.state, JOBS_NEEDING_OPERATOR)).order_by(jobs.c.id))

    @override
    def failing(self, *, since: datetime, kind: JobKind | None = None) -> tuple[FailingJobs, ...]:
        counted = select(
            jobs.c.failure_cause.label("cause"),
            jobs.c.kind,
            func.count().label("count"),
            func.min(jobs.c.failing_since, type_=UtcDateTime).label("since"),
            func.min(jobs.c.id).label("first"),
        ).where(jobs.c.failing_since.is_not(None), jobs.c.failing_since <= since)
        chosen = counted if kind is None else counted.where(jobs.c.kind == kind)
        grouped = chosen.group_by(jobs.c.failure_cause, jobs.c.kind).order_by(jobs.c.failure_cause, jobs.c.kind)
        return tuple(to_record(FailingJobs, row) for row in self._connection.execute(grouped).mappings())

    @override
    def make_due(self, kind: JobKind, *, now: datetime, failing_only: bool = False) -> int:
        waiting = in_states(jobs.c.state, CLAIMABLE_STATES) & (jobs.c.due_at > now) & (jobs.c.kind == kind)
        if failing_only:
            asked = FailureCause.SERVICE_ASKS_TO_WAIT
            waiting &= jobs.c.failing_since.is_not(None) & (jobs.c.failure_cause.is_(None) | (jobs.c.failure_cause != asked))
        return self._connection.execute(update(jobs).where(waiting).values(due_at=now)).rowcount

    def _expire_leases(self, now: datetime) -> None:
        expired = select(jobs).where(in_states(jobs.c.state, IN_FLIGHT_STATES), jobs.c.lease_until <= now)
        for job in self._fetch(expired.with_for_update(skip_locked=True)):
            self._save_fenced(job.lease_expired(now), fencing_token=job.fencing_token)

    def _recheck_locked(self, found: tuple[Job, ...], kinds: Collection[JobKind], now: datetime) -> tuple[Job, ...]:
        ours = {key for key in sorted({job.ordering_key for job in found}) if self._try_lock(key)}
        ids = [job.id for job in found if job.ordering_key in ours]
        return self._fetch(select_claimable(kinds, now).where(jobs.c.id.in_(ids))) if ids else ()

    def _try_lock(self, ordering_key: str) -> bool:
        lock = func.pg_try_advisory_xact_lock(_ADVISORY_LOCK_NAMESPACE, func.hashtext(ordering_key))
        return bool(self._connection.scalar(select(lock)))

    def _lock_ordering_key(self, ordering_key: str) -> None:
        """Hold an ordering key until the transaction ends, so that its jobs are numbered in the order of their commits."""
        if self._connection.dialect.name == "postgresql":
            lock = func.pg_advisory_xact_lock(_ADVISORY_LOCK_NAMESPACE, func.hashtext(ordering_key))
            self._connection.execute(select(lock))

    def _save_fenced(self, job: Job, *, fencing_token: int) -> None:
        row = (jobs.c.id == job.id) & (jobs.c.fencing_token == fencing_token)
        if not self._connection.execute(update(jobs).where(row).values(**to_values(job))).rowcount:
            raise LeaseLostError()

    def _fetch(self, statement: Select[Any]) -> tuple[Job, ...]:
        return tuple(to_record(Job, row) for row in self._connection.execute(statement).mappings())


def select_claimable(kinds: Collection[JobKind], now: datetime) -> Select[Any]:
    """Select the jobs of these kinds that can be claimed, longest due first."""
    other = jobs.alias("other")
    kind = unindexed(jobs.c.kind)  # else SQLite would take the index of kinds and not that of due jobs
    blocked_by = (
        select(other.c.id)
        .where(other.c.ordering_key == jobs.c.ordering_key, other.c.id != jobs.c.id, in_states(other.c.state, BLOCKING_STATES))
        .where((other.c.id < jobs.c.id) | (other.c.lease_until > now))
        .where((other.c.state != JobState.NEEDS_REVIEW) | other.c.kind.not_in(sorted(PASSED_IN_REVIEW)))
    )
    return (
        select(jobs)
        .where(in_states(jobs.c.state, CLAIMABLE_STATES), jobs.c.due_at <= now, kind.in_(sorted(kinds)))
        .where(jobs.c.lease_until.is_(None) | (jobs.c.lease_until <= now), ~blocked_by.exists())
        .order_by(jobs.c.due_at, jobs.c.id)
    )

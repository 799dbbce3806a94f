"""The job queue: leases with an owner, a heartbeat and a fencing token (law 8).

Claimable is the first open job of an ordering key, while no other job of that key has an owner. On SQLite every unit of work
has the write lock, so one statement finds and marks them. On PostgreSQL the candidates are locked with SKIP LOCKED, and then
their ordering keys: a statement sees only what was committed before it began, so the one that marks them looks again under the
locks, and no two workers ever hold jobs of one ordering key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, select, update
from typing_extensions import override

from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import JobId, OrderKey
from lab_agent.domain.records import FailingJobs, Job, JobKind, NewJob
from lab_agent.domain.state_machines import CLAIMABLE_STATES, JOBS_NEEDING_OPERATOR, OPEN_JOBS, JobState
from lab_agent.errors import LeaseLostError
from lab_agent.ports.job_repository import JobLimits, JobRepository, PendingWork
from lab_agent.store import job_statements
from lab_agent.store.column_types import UtcDateTime, indexable_text
from lab_agent.store.row_mapping import in_states, to_record, to_values
from lab_agent.store.tables import jobs


class SqlJobRepository(JobRepository):
    """The job queue, in the table `jobs`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._made_due: set[JobKind] = set()

    @property
    @override
    def made_due(self) -> frozenset[JobKind]:
        return frozenset(self._made_due)

    @override
    def add(self, job: NewJob) -> bool:
        return self.add_all((job,))[0]

    @override
    def add_all(self, jobs: Sequence[NewJob]) -> tuple[bool, ...]:
        if not jobs:
            return ()
        self._lock_ordering_keys(jobs)
        found = self._connection.execute(job_statements.INSERT[self._connection.dialect.name], [_new_row(job) for job in jobs])
        written = set(found.scalars())
        added = tuple(_take_out(written, indexable_text(job.dedup_key)) for job in jobs)
        self._made_due.update(job.kind for job, is_new in zip(jobs, added, strict=True) if is_new)
        return added

    @override
    def claim(self, limits: JobLimits, *, owner: str, now: datetime, lease: timedelta) -> tuple[Job, ...]:
        wanted = {kinds: limit for kinds, limit in limits.items() if kinds and limit > 0}
        if not wanted:
            return ()
        queues = tuple(sorted(wanted, key=sorted))
        asked: dict[str, Any] = {
            "at": now,
            **{job_statements.limit_name(place): wanted[kinds] for place, kinds in enumerate(queues)},
        }
        mark: dict[str, Any] = {"at": now, "by": owner, "until": now + lease}
        if self._connection.dialect.name == "postgresql":
            locked = self._connection.execute(job_statements.lock_claimable(queues), asked)
            ids = [number for number, is_locked in locked if is_locked]
            claimed = self._fetch(job_statements.CLAIM_LOCKED, {**mark, "ids": ids}) if ids else ()
        else:
            claimed = self._fetch(job_statements.claim(queues), {**mark, **asked})
        for kinds, limit in wanted.items():
            if sum(job.kind in kinds for job in claimed) < limit:
                self._made_due -= kinds
        return tuple(sorted(claimed, key=lambda job: (job.due_at, job.id)))

    @override
    def pending(self, kinds: Collection[JobKind], *, now: datetime) -> PendingWork:
        found = set(self._connection.execute(job_statements.select_pending(frozenset(kinds)), {"at": now}).scalars())
        return PendingWork(frozenset(map(JobKind, found - {job_statements.EXPIRED})), job_statements.EXPIRED in found)

    @override
    def expire_leases(self, now: datetime) -> int:
        expired = self._fetch(job_statements.SELECT_EXPIRED, {"at": now})
        if expired:
            self._save([(job.lease_expired(now), job.fencing_token) for job in expired])
        return len(expired)

    @override
    def renew_lease(self, job: Job, *, now: datetime, lease: timedelta) -> None:
        if not self.renew_leases((job,), now=now, lease=lease):
            raise LeaseLostError()

    @override
    def renew_leases(self, jobs: Collection[Job], *, now: datetime, lease: timedelta) -> frozenset[JobId]:
        tokens = [(job.id, job.fencing_token) for job in jobs]
        if not tokens:
            return frozenset()
        return frozenset(self._connection.execute(job_statements.RENEW, {"tokens": tokens, "until": now + lease}).scalars())

    @override
    def save(self, job: Job) -> None:
        self.save_all((job,))

    @override
    def save_all(self, jobs: Sequence[Job]) -> None:
        if jobs:
            self._save([(job, job.fencing_token) for job in jobs])

    @override
    def release(self, job: Job) -> None:
        if job.state in CLAIMABLE_STATES:
            self.save(job)
            return
        found = self._connection.execute(job_statements.RELEASE, _changes(job, job.fencing_token)).one_or_none()
        if found is None:
            raise LeaseLostError()
        if found[0] is not None:
            self._made_due.add(found[0])

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
        changed = self._connection.execute(update(jobs).where(waiting).values(due_at=now)).rowcount
        if changed:
            self._made_due.add(kind)
        return changed

    def _lock_ordering_keys(self, added: Sequence[NewJob]) -> None:
        """Hold ordering keys until the transaction ends, so that the jobs of each are numbered in the order of their commits.

        They are locked in a fixed order, as two that add several jobs would wait for each other otherwise.
        """
        if self._connection.dialect.name == "postgresql":
            keys = sorted({indexable_text(job.ordering_key) for job in added})
            self._connection.execute(job_statements.LOCK_KEYS, {"keys": keys})

    def _save(self, changed: Sequence[tuple[Job, int]]) -> None:
        """Write jobs where their fencing token is still this one."""
        rows = [_changes(job, token) for job, token in changed]
        if self._connection.execute(job_statements.SAVE, rows).rowcount < len(rows):
            raise LeaseLostError()
        self._made_due.update(job.kind for job, _ in changed if _is_due(job))

    def _fetch(self, statement: Any, values: dict[str, Any] | None = None) -> tuple[Job, ...]:
        return tuple(to_record(Job, row) for row in self._connection.execute(statement, values or {}).mappings())


def _new_row(job: NewJob) -> dict[str, Any]:
    born = min(job.due_at, datetime.now(UTC))
    start = {"state": JobState.DUE, "started": False, "attempts": 0, "fencing_token": 0}
    return {**to_values(job), **start, "created_at": born, "changed_at": born}


def _changes(job: Job, fencing_token: int) -> dict[str, Any]:
    """Give the parameters of `SAVE` and `RELEASE`."""
    values = to_values(job)
    return {"of": values.pop("id"), "token": fencing_token, **values}


def _is_due(job: Job) -> bool:
    return job.state in CLAIMABLE_STATES and job.lease_until is None and job.due_at <= job.changed_at


def _take_out(keys: set[str], key: str) -> bool:
    """Whether it was in it; the second of two jobs of one key is not new."""
    is_new = key in keys
    keys.discard(key)
    return is_new

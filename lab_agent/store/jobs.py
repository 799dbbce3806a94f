"""Who may do which effect: leases with an owner, a heartbeat and a fencing number (law 8).

A lane is done one effect after the other. Claimable is the first open effect of a lane, while no other effect of that lane is
with an owner. On SQLite every unit of work has the write lock, so that a look is enough. On PostgreSQL candidates are locked
with SKIP LOCKED, and then their lanes: a statement sees what was committed before it began, so the lane is looked at once more
after its lock is ours, and no two claimers ever hold effects of one lane.

The outbox (`ports.store.Effects`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, func, select, update

from lab_agent.domain.ids import JobId, OrderKey
from lab_agent.domain.records import Job, JobKind, NewJob
from lab_agent.domain.state_machines import (
    BLOCKING_STATES,
    CLAIMABLE_STATES,
    IN_FLIGHT_STATES,
    JOBS_NEEDING_OPERATOR,
    OPEN_JOBS,
    JobState,
)
from lab_agent.errors import LeaseLostError
from lab_agent.store.row_mapping import in_states, insert_new, to_record, to_values
from lab_agent.store.tables import jobs

_ADVISORY_LOCK_NAMESPACE = 0x1AB
"""Our part of PostgreSQL's advisory locks."""


def claim_jobs(
    connection: Connection, kinds: Collection[JobKind], *, owner: str, now: datetime, lease: timedelta, limit: int
) -> tuple[Job, ...]:
    """Take up to `limit` due effects for `owner`, after taking away those whose lease has lapsed."""
    expire_leases(connection, now)
    if limit < 1 or not kinds:
        return ()
    found = _fetch_jobs(connection, _select_claimable(kinds, now).limit(limit).with_for_update(skip_locked=True, of=jobs))
    if connection.dialect.name == "postgresql":
        found = _recheck_locked(connection, found, kinds, now)
    claimed = tuple(job.claim(owner, now, lease) for job in found)
    for before, after in zip(found, claimed, strict=True):
        save_fenced(connection, after, fencing_token=before.fencing_token)
    return claimed


def expire_leases(connection: Connection, now: datetime) -> int:
    """Take effects away from owners that were silent for too long; their number."""
    silent = select(jobs).where(in_states(jobs.c.state, IN_FLIGHT_STATES), jobs.c.lease_until <= now).order_by(jobs.c.id)
    found = _fetch_jobs(connection, silent.with_for_update(skip_locked=True))
    for job in found:
        save_fenced(connection, job.lease_expired(now), fencing_token=job.fencing_token)
    return len(found)


def renew_lease(connection: Connection, job: Job, until: datetime) -> None:
    """Move the end of a lease. Raises `LeaseLostError` if the fence has moved on, or the claim was given back."""
    ours = (jobs.c.id == job.id) & (jobs.c.fencing_token == job.fencing_token) & jobs.c.lease_until.is_not(None)
    if not connection.execute(update(jobs).where(ours).values(lease_until=until)).rowcount:
        raise LeaseLostError()


def save_fenced(connection: Connection, job: Job, *, fencing_token: int) -> None:
    """Write an effect whose row has this fence. Raises `LeaseLostError` otherwise."""
    row = (jobs.c.id == job.id) & (jobs.c.fencing_token == fencing_token)
    if not connection.execute(update(jobs).where(row).values(**to_values(job))).rowcount:
        raise LeaseLostError()


def lock_ordering_key(connection: Connection, ordering_key: str) -> None:
    """Wait for a lane and hold it until the transaction ends, so that effects of a lane are numbered as they are committed."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK_NAMESPACE, func.hashtext(ordering_key))))


def _select_claimable(kinds: Collection[JobKind], now: datetime) -> Select[Any]:
    other = jobs.alias("other")
    kind = func.coalesce(jobs.c.kind, jobs.c.kind)  # SQLite would leave the index of what is due for one that has kinds
    in_the_way = (
        select(other.c.id)
        .where(other.c.ordering_key == jobs.c.ordering_key, other.c.id != jobs.c.id, in_states(other.c.state, BLOCKING_STATES))
        .where((other.c.id < jobs.c.id) | (other.c.lease_until > now))
    )
    return (
        select(jobs)
        .where(in_states(jobs.c.state, CLAIMABLE_STATES), jobs.c.due_at <= now, kind.in_(sorted(kinds)))
        .where(jobs.c.lease_until.is_(None) | (jobs.c.lease_until <= now), ~in_the_way.exists())
        .order_by(jobs.c.due_at, jobs.c.id)
    )


def _recheck_locked(connection: Connection, found: tuple[Job, ...], kinds: Collection[JobKind], now: datetime) -> tuple[Job, ...]:
    ours = {lane for lane in sorted({job.ordering_key for job in found}) if _try_lock(connection, lane)}
    numbers = [job.id for job in found if job.ordering_key in ours]
    return _fetch_jobs(connection, _select_claimable(kinds, now).where(jobs.c.id.in_(numbers))) if numbers else ()


def _try_lock(connection: Connection, ordering_key: str) -> bool:
    return bool(connection.scalar(select(func.pg_try_advisory_xact_lock(_ADVISORY_LOCK_NAMESPACE, func.hashtext(ordering_key)))))


def _fetch_jobs(connection: Connection, statement: Select[Any]) -> tuple[Job, ...]:
    rows: Iterable[Any] = connection.execute(statement).mappings()
    return tuple(to_record(Job, row) for row in rows)


class SqlJobRepository:
    """The outbox, in the table `effects`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, job: NewJob) -> bool:
        """Write an effect. False if one of the same `once` is there already (nothing is written)."""
        lock_ordering_key(self._connection, job.ordering_key)
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

    def claim(self, kinds: Collection[JobKind], *, owner: str, now: datetime, lease: timedelta, limit: int) -> tuple[Job, ...]:
        """Take up to `limit` effects that are due, the first open one of each lane, longest due first."""
        return claim_jobs(self._connection, kinds, owner=owner, now=now, lease=lease, limit=limit)

    def renew_lease(self, job: Job, *, now: datetime, lease: timedelta) -> None:
        """Heartbeat of the owner. Raises `LeaseLostError` if the fence has moved on."""
        renew_lease(self._connection, job, now + lease)

    def save(self, job: Job) -> None:
        """Write a changed effect where its fence is still ours. Raises `LeaseLostError` otherwise."""
        save_fenced(self._connection, job, fencing_token=job.fencing_token)

    def get(self, job: JobId) -> Job | None:
        """One effect."""
        found = self._fetch(select(jobs).where(jobs.c.id == job))
        return found[0] if found else None

    def list_for_order(self, order: OrderKey, *, open_only: bool = True) -> tuple[Job, ...]:
        """The effects of an order, oldest first."""
        found = select(jobs).where(jobs.c.order_key == order).order_by(jobs.c.id)
        return self._fetch(found.where(in_states(jobs.c.state, OPEN_JOBS)) if open_only else found)

    def needing_operator(self) -> tuple[Job, ...]:
        """Effects that wait for a person (parked, or to be reviewed), oldest first."""
        return self._fetch(select(jobs).where(in_states(jobs.c.state, JOBS_NEEDING_OPERATOR)).order_by(jobs.c.id))

    def make_due(self, kind: JobKind, *, now: datetime) -> int:
        """Make waiting effects of a kind (due, or to be looked at, in the future) due now; their number."""
        waiting = in_states(jobs.c.state, CLAIMABLE_STATES) & (jobs.c.due_at > now) & (jobs.c.kind == kind)
        return self._connection.execute(update(jobs).where(waiting).values(due_at=now)).rowcount

    def _fetch(self, statement: Select[Any]) -> tuple[Job, ...]:
        return tuple(to_record(Job, row) for row in self._connection.execute(statement).mappings())

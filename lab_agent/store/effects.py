"""The outbox (`ports.store.Effects`)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, select, update

from lab_agent.domain.ids import JobId, OrderKey
from lab_agent.domain.journal import Job, JobKind, NewJob
from lab_agent.domain.lifecycle import JOBS_NEEDING_OPERATOR, OPEN_JOBS, JobState
from lab_agent.store import claims
from lab_agent.store.rows import in_states, insert_new, to_record, to_values
from lab_agent.store.states import CLAIMABLE_STATES
from lab_agent.store.tables import jobs


class SqlJobRepository:
    """The outbox, in the table `effects`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, job: NewJob) -> bool:
        """Write an effect. False if one of the same `once` is there already (nothing is written)."""
        claims.lock_ordering_key(self._connection, job.ordering_key)
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
        return claims.claim_jobs(self._connection, kinds, owner=owner, now=now, lease=lease, limit=limit)

    def renew_lease(self, job: Job, *, now: datetime, lease: timedelta) -> None:
        """Heartbeat of the owner. Raises `LeaseLostError` if the fence has moved on."""
        claims.renew_lease(self._connection, job, now + lease)

    def save(self, job: Job) -> None:
        """Write a changed effect where its fence is still ours. Raises `LeaseLostError` otherwise."""
        claims.save_fenced(self._connection, job, fencing_token=job.fencing_token)

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

"""The job queue: leases with an owner, a heartbeat and a fencing token (law 8).

Claimable is the first open job of an ordering key, while no other job of that key has an owner. On SQLite every unit of work
has the write lock, so one statement finds and marks them. On PostgreSQL the candidates are locked with SKIP LOCKED, and then
their ordering keys: a statement sees only what was committed before it began, so the one that marks them looks again under the
locks, and no two workers ever hold jobs of one ordering key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from lab_agent.queue import job_statements
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import (
    GIVING_WAY,
    FailingJobs,
    FailureGroup,
    Job,
    JobKind,
    JobLimits,
    LeaseToken,
    NewJob,
    PendingWork,
)
from lab_agent.queue.job_statements import JOBS
from lab_agent.shared.errors import LeaseLostError
from lab_agent.shared.ids import JobId, OrderKey
from lab_agent.shared.state_machines import CLAIMABLE_STATES, JobState
from lab_agent.store.column_types import indexable_text
from lab_agent.store.row_mapping import to_record
from lab_agent.store.session import Query, Session, Write

_NO_VALUES: Mapping[str, Any] = {}


class JobRepository:
    """The job queue, in the table `jobs`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def made_due(self) -> frozenset[JobKind]:
        """Kinds of which this unit of work has added or released jobs, or made them due, without claiming all that are due.

        Whoever runs jobs is told them after the commit.
        """
        return frozenset(self._session.jobs_due)

    def add(self, job: NewJob) -> bool:
        """Write a job. False, and nothing is written, if there is one of the same `dedup_key` already."""
        return self.add_all((job,))[0]

    def add_all(self, jobs: Sequence[NewJob]) -> tuple[bool, ...]:
        """Write jobs at once, in this order; for each of them what `add` gives."""
        if not jobs:
            return ()
        self._lock_ordering_keys(jobs)
        found = self._session.send(job_statements.INSERT, [_new_row(job) for job in jobs])
        written = set(found.scalars())
        added = tuple(_take_out(written, indexable_text(job.dedup_key)) for job in jobs)
        self._session.jobs_due.update(job.kind for job, is_new in zip(jobs, added, strict=True) if is_new)
        return added

    def claim(self, limits: JobLimits, *, owner: str, now: datetime, lease: timedelta) -> tuple[Job, ...]:
        """Take due jobs of each queue, those of unknown outcome too: the first open one of each ordering key, longest due first.

        What gives way comes after the others of its queue. Concurrent claims never give the same job. Jobs in flight are taken
        only after `expire_leases`, and those for a paused laboratory system once it is resumed.
        """
        wanted = {kinds: limit for kinds, limit in limits.items() if kinds and limit > 0}
        if not wanted:
            return ()
        queues = tuple(sorted(wanted, key=sorted))
        asked: dict[str, Any] = {
            "at": now,
            **{job_statements.limit_name(place): wanted[kinds] for place, kinds in enumerate(queues)},
        }
        mark: dict[str, Any] = {"at": now, "by": owner, "until": now + lease}
        if self._session.kind == "postgresql":
            locked = self._session.execute(job_statements.lock_claimable(queues), asked)
            ids = [row.id for row in locked if row.is_locked]
            claimed = self._mark(job_statements.CLAIM_LOCKED, {**mark, "ids": ids}) if ids else ()
        else:
            claimed = self._mark(job_statements.claim(queues), {**mark, **asked})
        for kinds, limit in wanted.items():
            if sum(job.kind in kinds for job in claimed) < limit:
                self._session.jobs_due -= kinds
        return tuple(sorted(claimed, key=lambda job: (job.gives_way, job.due_at, job.id)))

    def pending(self, kinds: Collection[JobKind], *, now: datetime) -> PendingWork:
        """Look which of these kinds have a job that can be claimed, without taking anything."""
        found = set(self._session.execute(job_statements.select_pending(frozenset(kinds)), {"at": now}).scalars())
        return PendingWork(frozenset(map(JobKind, found - {job_statements.EXPIRED})), job_statements.EXPIRED in found)

    def expire_leases(self, now: datetime) -> int:
        """Take jobs in flight from owners whose lease has expired: their outcome is unknown, and they are due at once."""
        expired = self._fetch(job_statements.EXPIRED_LEASES, {"at": now})
        if expired:
            self._save([(job.lease_expired(now), job.fencing_token) for job in expired])
        return len(expired)

    def renew_lease(self, job: Job, *, now: datetime, lease: timedelta) -> None:
        """Extend a lease. Raises `LeaseLostError` if the fencing token has changed."""
        if not self._renew([(job.id, job.fencing_token)], now + lease):
            raise LeaseLostError()

    def renew_leases(self, jobs: Collection[Job], *, now: datetime, lease: timedelta) -> frozenset[LeaseToken]:
        """Extend the leases of an owner (its heartbeat); gives those that it still has.

        The unit of work does nothing else: it may be committed after each lease, so that no lease is held while it waits for one
        whose job is just ending (PostgreSQL would find a deadlock with it).
        """
        tokens = [(job.id, job.fencing_token) for job in jobs]
        if not tokens:
            return frozenset()
        if self._session.kind == "sqlite":
            return self._renew(tokens, now + lease)
        renewed: set[LeaseToken] = set()
        for token in tokens:
            renewed |= self._renew([token], now + lease)
            self._session.commit()
        return frozenset(renewed)

    def save(self, job: Job) -> None:
        """Write a changed job whose fencing token is still ours. Raises `LeaseLostError` otherwise."""
        self.save_all((job,))

    def save_all(self, jobs: Sequence[Job]) -> None:
        """Write changed jobs at once. Raises `LeaseLostError` if the fencing token of one of them is not ours any more."""
        if jobs:
            self._save([(job, job.fencing_token) for job in jobs])

    def release(self, job: Job) -> None:
        """Write a job as its owner leaves it, as `save` does: a due one that has waited for it counts as made due."""
        if job.state in CLAIMABLE_STATES:
            self.save(job)
            return
        found = self._session.send(job_statements.RELEASE, _changes(job, job.fencing_token)).one_or_none()
        if found is None:
            raise LeaseLostError()
        if found[0] is not None:
            self._session.jobs_due.add(found[0])

    def get(self, job: JobId) -> Job | None:
        """One job; None if it is unknown."""
        found = self._fetch(job_statements.ONE, {"of": job})
        return found[0] if found else None

    def list_for_order(self, order: OrderKey, *, open_only: bool = True) -> tuple[Job, ...]:
        """The jobs of an order, oldest first."""
        return self._fetch(job_statements.OPEN_OF_ORDER if open_only else job_statements.OF_ORDER, {"of": order})

    def needing_operator(
        self, *, kind: JobKind | None = None, state: JobState | None = None, after: Job | None = None, limit: int
    ) -> tuple[Job, ...]:
        """Jobs that need an operator (dead letters, and those in review), by when they were first due and from after one on, so
        that all can be gone through in portions.
        """
        asked = {"of_kind": kind, "of_state": state, "at_most": limit}
        if after is None:
            return self._fetch(job_statements.NEEDING_OPERATOR, asked)
        return self._fetch(job_statements.NEXT_NEEDING_OPERATOR, {**asked, "after_due": after.first_due_at, "after": after.id})

    def failing(self, *, since: datetime, kind: JobKind | None = None) -> tuple[FailingJobs, ...]:
        """Jobs that failed at their last attempt and are tried again, failing at `since` already: by cause and kind."""
        if kind is None:
            found = self._session.execute(job_statements.FAILING, {"since": since})
        else:
            found = self._session.execute(job_statements.FAILING_OF_KIND, {"since": since, "of": kind})
        return tuple(to_record(FailingJobs, row) for row in found.mappings())

    def failure_groups(self) -> tuple[FailureGroup, ...]:
        """All open jobs whose last attempt failed, tried again or set aside: by cause, system and kind."""
        found = self._session.execute(job_statements.FAILURE_GROUPS).mappings()
        return tuple(to_record(FailureGroup, row) for row in found)

    def of_cause(
        self, cause: FailureCause, *, system: str | None, kind: JobKind | None, after: JobId, limit: int
    ) -> tuple[Job, ...]:
        """Open jobs whose last attempt failed of this cause, by number and from after one on, so that all can be gone through.

        Of one laboratory system or kind alone, where that is given.
        """
        asked = {"of": cause, "at_system": system, "of_kind": kind, "after": after, "at_most": limit}
        return self._fetch(job_statements.OF_CAUSE, asked)

    def make_due(self, kind: JobKind, *, now: datetime, failing_only: bool = False) -> int:
        """Make jobs of a kind due now that were to be performed or verified later; their number.

        Of a kind of which some give way, those alone: what was read once is to be read again after its time, not before.
        With `failing_only`, only those whose last attempt failed, and that do not wait because they were asked to.
        """
        every = job_statements.MAKE_GIVING_WAY_DUE if kind in GIVING_WAY else job_statements.MAKE_DUE
        statement = job_statements.MAKE_FAILING_DUE if failing_only else every
        changed = self._session.send(statement, {"at": now, "of": kind}).rowcount
        if changed:
            self._session.jobs_due.add(kind)
        return changed

    def bring_forward(self, *, now: datetime, due_after: datetime, giving_way_after: datetime, leased_after: datetime) -> int:
        """Mend what was written before our clock was set back: make due now what is due later than `due_after`; their number.

        What gives way to others may be due as late as `giving_way_after`. A lease that ends after `leased_after` ends then.
        """
        self._session.send(job_statements.SHORTEN_LEASES, {"until": leased_after})
        late = {"at": now, "after": due_after, "giving_way_after": giving_way_after}
        return self._session.send(job_statements.BRING_FORWARD, late).rowcount

    def _lock_ordering_keys(self, added: Sequence[NewJob]) -> None:
        """Hold ordering keys until the transaction ends, so that the jobs of each are numbered in the order of their commits.

        They are locked in a fixed order, as two that add several jobs would wait for each other otherwise.
        """
        if self._session.kind == "postgresql":
            keys = sorted({indexable_text(job.ordering_key) for job in added})
            self._session.execute(job_statements.LOCK_KEYS, {"keys": keys})

    def _save(self, changed: Sequence[tuple[Job, int]]) -> None:
        """Write jobs where their fencing token is still this one."""
        rows = [_changes(job, token) for job, token in changed]
        if self._session.send(job_statements.SAVE, rows).rowcount < len(rows):
            raise LeaseLostError()
        self._session.jobs_due.update(job.kind for job, _ in changed if _is_due(job))

    def _renew(self, tokens: Sequence[LeaseToken], until: datetime) -> frozenset[LeaseToken]:
        renewed = self._session.send(job_statements.RENEW, {"tokens": tokens, "until": until})
        return frozenset((row.id, row.fencing_token) for row in renewed)

    def _fetch(self, query: Query, values: Mapping[str, Any] = _NO_VALUES) -> tuple[Job, ...]:
        return JOBS.to_records(self._session.execute(query, values))

    def _mark(self, claim: Write, values: Mapping[str, Any]) -> tuple[Job, ...]:
        return JOBS.to_records(self._session.send(claim, values))


def _new_row(job: NewJob) -> dict[str, Any]:
    born = min(job.due_at, datetime.now(UTC))
    start = {"state": JobState.DUE, "gives_way": False, "started": False, "attempts": 0, "failures": 0, "fencing_token": 0}
    times = {"first_due_at": job.due_at, "created_at": born, "changed_at": born}
    return {**job_statements.NEW_JOBS.to_values(job), **start, **times}


def _changes(job: Job, fencing_token: int) -> dict[str, Any]:
    """Give the parameters of `SAVE` and `RELEASE`."""
    values = JOBS.to_values(job)
    return {"of": values.pop("id"), "token": fencing_token, **values}


def _is_due(job: Job) -> bool:
    return job.is_waiting and job.due_at <= job.changed_at


def _take_out(keys: set[str], key: str) -> bool:
    """Whether it was in it; the second of two jobs of one key is not new."""
    is_new = key in keys
    keys.discard(key)
    return is_new

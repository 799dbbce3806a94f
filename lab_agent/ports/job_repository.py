"""The job queue (the outbox of law 2) as the workflow fills it and the worker empties it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import JobId, OrderKey
from lab_agent.domain.job_records import FailingJobs, FailureGroup, Job, JobKind, NewJob
from lab_agent.domain.state_machines import JobState

LeaseToken = tuple[JobId, int]
"""One lease: the number of its job, and the fencing token of that claim. A job that is claimed again has another one."""
JobLimits = Mapping[frozenset[JobKind], int]
"""How many jobs to claim at most, for each queue: the kinds of its jobs."""


@dataclass(frozen=True, slots=True)
class PendingWork:
    """What waits for a worker: kinds with a job that can be claimed, and whether a lease has expired."""

    kinds: frozenset[JobKind]
    has_expired_lease: bool


class JobRepository(Protocol):
    """The job queue."""

    @property
    def made_due(self) -> frozenset[JobKind]:
        """Kinds of which this unit of work has added or released jobs, or made them due, without claiming all that are due.

        Whoever runs jobs is told them after the commit.
        """
        ...

    def add(self, job: NewJob) -> bool:
        """Write a job. False, and nothing is written, if there is one of the same `dedup_key` already."""
        ...

    def add_all(self, jobs: Sequence[NewJob]) -> tuple[bool, ...]:
        """Write jobs at once, in this order; for each of them what `add` gives."""
        ...

    def claim(self, limits: JobLimits, *, owner: str, now: datetime, lease: timedelta) -> tuple[Job, ...]:
        """Take due jobs of each queue, those of unknown outcome too: the first open one of each ordering key, longest due first.

        What gives way comes after the others of its queue. Concurrent claims never give the same job. Jobs in flight are taken
        only after `expire_leases`, and those for a paused laboratory system once it is resumed.
        """
        ...

    def pending(self, kinds: Collection[JobKind], *, now: datetime) -> PendingWork:
        """Look which of these kinds have a job that can be claimed, without taking anything."""
        ...

    def expire_leases(self, now: datetime) -> int:
        """Take jobs in flight from owners whose lease has expired: their outcome is unknown, and they are due at once."""
        ...

    def renew_lease(self, job: Job, *, now: datetime, lease: timedelta) -> None:
        """Extend a lease. Raises `LeaseLostError` if the fencing token has changed."""
        ...

    def renew_leases(self, jobs: Collection[Job], *, now: datetime, lease: timedelta) -> frozenset[LeaseToken]:
        """Extend the leases of an owner (its heartbeat); gives those that it still has.

        The unit of work does nothing else: it may be committed after each lease, so that no lease is held while it waits for one
        whose job is just ending (PostgreSQL would find a deadlock with it).
        """
        ...

    def save(self, job: Job) -> None:
        """Write a changed job whose fencing token is still ours. Raises `LeaseLostError` otherwise."""
        ...

    def save_all(self, jobs: Sequence[Job]) -> None:
        """Write changed jobs at once. Raises `LeaseLostError` if the fencing token of one of them is not ours any more."""
        ...

    def release(self, job: Job) -> None:
        """Write a job as its owner leaves it, as `save` does: a due one that has waited for it counts as made due."""
        ...

    def get(self, job: JobId) -> Job | None:
        """One job; None if it is unknown."""
        ...

    def list_for_order(self, order: OrderKey, *, open_only: bool = True) -> tuple[Job, ...]:
        """The jobs of an order, oldest first."""
        ...

    def needing_operator(
        self, *, kind: JobKind | None = None, state: JobState | None = None, after: Job | None = None, limit: int
    ) -> tuple[Job, ...]:
        """Jobs that need an operator (dead letters, and those in review), by when they were first due and from after one on, so
        that all can be gone through in portions.
        """
        ...

    def failing(self, *, since: datetime, kind: JobKind | None = None) -> tuple[FailingJobs, ...]:
        """Jobs that failed at their last attempt and are tried again, failing at `since` already: by cause and kind."""
        ...

    def failure_groups(self) -> tuple[FailureGroup, ...]:
        """All open jobs whose last attempt failed, tried again or set aside: by cause, system and kind."""
        ...

    def of_cause(
        self, cause: FailureCause, *, system: str | None, kind: JobKind | None, after: JobId, limit: int
    ) -> tuple[Job, ...]:
        """Open jobs whose last attempt failed of this cause, by number and from after one on, so that all can be gone through.

        Of one laboratory system or kind alone, where that is given.
        """
        ...

    def make_due(self, kind: JobKind, *, now: datetime, failing_only: bool = False) -> int:
        """Make jobs of a kind due now that were to be performed or verified later; their number.

        Of a kind of which some give way, those alone: what was read once is to be read again after its time, not before.
        With `failing_only`, only those whose last attempt failed, and that do not wait because they were asked to.
        """
        ...

    def bring_forward(self, *, now: datetime, due_after: datetime, giving_way_after: datetime, leased_after: datetime) -> int:
        """Mend what was written before our clock was set back: make due now what is due later than `due_after`; their number.

        What gives way to others may be due as late as `giving_way_after`. A lease that ends after `leased_after` ends then.
        """
        ...

"""Claims jobs, and reads what they need in the same unit of work."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lab_agent.queue.job_handler import AnyJobHandler
from lab_agent.queue.job_records import Job, JobKind, JobLimits, PendingWork
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import Failure
from lab_agent.store.unit_of_work import Store, UnitOfWork


class LoadError(Exception):
    """What a job needs could not be read, for no reason that a handler gives: it may be a broken transaction."""


class ClaimError(Exception):
    """Jobs could not be claimed in a unit of work that others have written to; it must be rolled back."""


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that is ours, with what its handler has read, or how that failed; with neither, it is still to be read."""

    job: Job
    is_loaded: bool = False
    loaded: Any = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class JobClaimer:
    """Claims jobs for one worker (`owner`)."""

    store: Store
    clock: Clock
    handlers: Mapping[JobKind, AnyJobHandler]
    owner: str
    lease: timedelta

    async def claim(self, limits: JobLimits) -> tuple[ClaimedJob, ...]:
        """Claim up to so many due jobs of each queue."""

        def take(uow: UnitOfWork, *, load: bool = True) -> tuple[ClaimedJob, ...]:
            return self.claim_in(uow, limits, load=load)

        try:
            return await self.store.transact(take)
        except LoadError:
            return await self.store.transact(lambda uow: take(uow, load=False))

    def claim_in(self, uow: UnitOfWork, limits: JobLimits, *, load: bool) -> tuple[ClaimedJob, ...]:
        """Claim in a unit of work that others have written to. Raises `LoadError`: it must be rolled back then.

        Without `load`, each job is read in a unit of work of its own: what goes wrong there concerns it alone (law 9).
        """
        taken = uow.jobs.claim(limits, owner=self.owner, now=self.clock.now(), lease=self.lease)
        if not load:
            return tuple(map(ClaimedJob, taken))
        with uow.reading():
            uow.orders.prefetch([job.order for job in taken if job.order is not None])
            return tuple(self._load(uow, job) for job in taken)

    async def find_pending(self, kinds: Collection[JobKind]) -> PendingWork:
        """Look, without writing anything, which of these kinds have something due."""
        return await self.store.run_read_only(lambda uow: uow.jobs.pending(kinds, now=self.clock.now()))

    async def expire_leases(self) -> int:
        """Take jobs from workers that are gone; their number."""

        def expire(uow: UnitOfWork) -> int:
            return uow.jobs.expire_leases(self.clock.now())

        return await self.store.transact(expire)

    def _load(self, uow: UnitOfWork, job: Job) -> ClaimedJob:
        try:
            return ClaimedJob(job, is_loaded=True, loaded=self.handlers[job.kind].load(uow, job))
        except Failure as failure:
            return ClaimedJob(job, failure=failure)
        except Exception as error:  # of one job, perhaps: the runner finds out when it reads the job's data by itself
            raise LoadError from error

"""A worker's hold on one job: whatever it writes is checked against the job's fencing token (law 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from typing_extensions import override

from lab_agent.queue.job_handler import Lease
from lab_agent.queue.job_records import Job
from lab_agent.shared.clock import Clock
from lab_agent.store.unit_of_work import Store, UnitOfWork

T = TypeVar("T")


class JobLease(Lease):
    """The lease that handlers see."""

    def __init__(self, job: Job, store: Store, clock: Clock, duration: timedelta) -> None:
        self._job = job
        self._store = store
        self._clock = clock
        self._duration = duration
        self._confirmed_at = clock.now()
        self._confirmed_until = min(job.lease_until or self._confirmed_at, self._confirmed_at + duration)
        self.is_ending = False
        """Whether the end of the job is being written: it may be done, and its lease gone, before we know."""

    @property
    @override
    def job(self) -> Job:
        return self._job

    @override
    async def mark_started(self, also_write: Callable[[UnitOfWork], None] | None = None) -> None:
        now = self._clock.now()
        started = replace(self._job.mark_started(now), lease_until=now + self._duration)

        def write(uow: UnitOfWork) -> None:
            uow.jobs.save(started)
            if also_write is not None:
                also_write(uow)

        await self._store.transact(write)
        self._job = started
        self._hold_from(now)

    @override
    async def write(self, work: Callable[[UnitOfWork], None]) -> None:
        now = self._clock.now()

        def guarded(uow: UnitOfWork) -> None:
            uow.jobs.renew_lease(self._job, now=now, lease=self._duration)
            work(uow)

        await self._store.transact(guarded)
        self._hold_from(now)

    @override
    async def confirm(self) -> None:
        if not self._confirmed_at <= self._clock.now() < self._confirmed_until:
            await self.write(lambda _: None)

    def _hold_from(self, now: datetime) -> None:
        self._confirmed_at, self._confirmed_until = now, now + self._duration

    async def end(self, end: Callable[[UnitOfWork], Job], then: Callable[[UnitOfWork], T]) -> tuple[Job, T]:
        """Commit how the job ends, as `end` gives it, and what `then` does after that, in one unit of work.

        Raises `LeaseLostError`: nothing is written then, and `then` is not called.
        """

        def write(uow: UnitOfWork) -> tuple[Job, T]:
            ended = end(uow)
            uow.jobs.release(ended)
            return ended, then(uow)

        self.is_ending = True
        try:
            return await self._store.transact(write)
        finally:
            self.is_ending = False

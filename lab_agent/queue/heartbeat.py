"""The heartbeat of a worker: renews the leases of all its running jobs, so that nobody else does them (law 8)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import structlog

from lab_agent.queue.job_lease import JobLease
from lab_agent.queue.job_records import LeaseToken
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import StoreUnreachableError
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)


class Heartbeat:
    """Renews leases of `duration` together; the work on one that is lost all the same is cancelled."""

    def __init__(self, store: Store, clock: Clock, duration: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._duration = duration
        self._kept: dict[JobLease, asyncio.Task[object] | None] = {}

    @contextmanager
    def keep(self, lease: JobLease) -> Iterator[None]:
        """Renew a lease while the block runs, in the task that runs it."""
        self._give_up_earlier(lease)
        self._kept[lease] = asyncio.current_task()
        try:
            yield
        finally:
            del self._kept[lease]

    async def run(self) -> None:
        """Renew what is kept after every third of the duration, until it is cancelled."""
        while True:
            await asyncio.sleep(self._duration.total_seconds() / 3)
            await self._renew()

    async def _renew(self) -> None:
        beating = tuple(self._kept)
        if not beating:
            return
        try:
            ours = await self._store.transact(lambda uow: self._renew_in(uow, beating))
        except StoreUnreachableError:
            return  # the leases expire by themselves if the database stays unavailable
        for lease in beating:
            if (lease.job.id, lease.job.fencing_token) not in ours:
                self._cancel_work(lease)

    def _renew_in(self, uow: UnitOfWork, leases: tuple[JobLease, ...]) -> frozenset[LeaseToken]:
        return uow.jobs.renew_leases([lease.job for lease in leases], now=self._clock.now(), lease=self._duration)

    def _give_up_earlier(self, lease: JobLease) -> None:
        """Cancel the work on the same job under an earlier lease: it expired unrenewed, and this worker has claimed it again."""
        for each in tuple(self._kept):
            if each.job.id == lease.job.id and each.job.fencing_token < lease.job.fencing_token:
                self._cancel_work(each)

    def _cancel_work(self, lease: JobLease) -> None:
        """Cancel the work on a job that is not ours any more, unless it is just ending: that finds out by itself."""
        if lease not in self._kept or lease.is_ending:
            return
        log.warning("lease lost", action="lease_lost", job=lease.job.id, kind=lease.job.kind.value)
        if (work := self._kept[lease]) is not None:
            work.cancel("lease lost")

"""A worker's hold on one job, renewed while it works, so that nobody else does the job at the same time (law 8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import structlog
from typing_extensions import override

from lab_agent.domain.records import Job
from lab_agent.domain.state_machines import JobState
from lab_agent.errors import LeaseLostError, StoreUnreachableError
from lab_agent.ports.clock import Clock
from lab_agent.ports.job_handler import JobHandler, Lease, LoadedT, ResultT
from lab_agent.ports.repositories import Store, UnitOfWork

log = structlog.get_logger(__name__)


class JobLease(Lease):
    """The lease that handlers see: every write is checked against the job's fencing token."""

    def __init__(self, job: Job, store: Store, clock: Clock, duration: timedelta) -> None:
        self._job = job
        self._store = store
        self._clock = clock
        self._duration = duration

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
            uow.commit()

        await self._store.run(write)
        self._job = started

    @override
    async def write(self, work: Callable[[UnitOfWork], None]) -> None:
        def guarded(uow: UnitOfWork) -> None:
            uow.jobs.renew_lease(self._job, now=self._clock.now(), lease=self._duration)
            work(uow)
            uow.commit()

        await self._store.run(guarded)

    async def complete(self, handler: JobHandler[LoadedT, ResultT], result: ResultT, *, verified: bool = False) -> Job:
        """Commit what follows from a result and the job's own end, in one unit of work.

        `verified`: the result says what became of the attempt before. If the job has to be done again, that one failed, and it
        goes on failing. Raises `LeaseLostError`, and nothing is written then.
        """

        def write(uow: UnitOfWork) -> Job:
            ended = handler.complete(uow, self._job, result)
            return self._save(uow, ended if verified and ended.state is JobState.DUE else ended.recovered())

        return await self._store.run(write)

    async def end(self, ended: Job, *, service_message: str = "") -> Job:
        """Commit how a failed attempt ends, and what was said about it. Raises `LeaseLostError`."""

        def write(uow: UnitOfWork) -> Job:
            if service_message and ended.order is not None:
                uow.vault.save_service_message(ended.id, ended.order, service_message, at=self._clock.now())
            return self._save(uow, ended)

        return await self._store.run(write)

    def _save(self, uow: UnitOfWork, ended: Job) -> Job:
        uow.jobs.save(ended)
        uow.commit()
        return ended

    @asynccontextmanager
    async def keep_alive(self) -> AsyncIterator[None]:
        """Renew the lease after every third of its duration; if it is lost all the same, the work in the block is cancelled."""
        owner = asyncio.current_task()
        heartbeat = asyncio.create_task(self._send_heartbeats(owner), name=f"heartbeat of job {self._job.id}")
        try:
            yield
        finally:
            heartbeat.cancel()
            await asyncio.gather(heartbeat, return_exceptions=True)

    async def _send_heartbeats(self, owner: asyncio.Task[object] | None) -> None:
        while True:
            await asyncio.sleep(self._duration.total_seconds() / 3)
            try:
                await self.write(lambda _: None)
            except StoreUnreachableError:
                continue  # the lease expires by itself if the database stays unavailable
            except LeaseLostError:
                log.warning("lease lost", action="lease_lost", job=self._job.id, kind=self._job.kind.value)
                if owner is not None:
                    owner.cancel("lease lost")
                return

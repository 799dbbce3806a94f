"""Runners over a store on SQLite, with handlers that a test writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lab_agent.queue.claiming import ClaimedJob
from lab_agent.queue.job_handler import Lease
from lab_agent.queue.job_records import Job, JobKind, NewJob
from lab_agent.queue.job_runner import JobRunner
from lab_agent.queue.outages import OutageTracker
from lab_agent.queue.retry import Backoff
from lab_agent.shared.conditions.model import AlertKey
from lab_agent.shared.errors import StoreError, StoreUnreachableError
from lab_agent.shared.ids import JobId
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import Store, UnitOfWork
from tests.fakes.exchange_service import service_unreachable
from tests.harness.clock import VirtualClock
from tests.harness.databases import create_database
from tests.harness.jobs import claim_jobs

LEASE = timedelta(seconds=60)

Outcome = Callable[[UnitOfWork, Job], Job] | None
"""What a test lets a handler decide: something to write in completing the job; None ends it as done."""


@dataclass
class RecordingHandler:
    """A handler whose behaviour a test writes; it records its calls."""

    behaviour: Callable[[Lease], Awaitable[Outcome]] | None = None
    calls: list[str] = field(default_factory=list)

    kinds: ClassVar[frozenset[JobKind]] = frozenset(JobKind)

    def load(self, uow: UnitOfWork, job: Job) -> None:
        pass

    async def perform(self, lease: Lease, loaded: None) -> Outcome:
        return await self._record("perform", lease)

    async def verify(self, lease: Lease, loaded: None) -> Outcome:
        return await self._record("verify", lease)

    def complete(self, uow: UnitOfWork, job: Job, result: Outcome) -> Job:
        return job.complete(job.changed_at) if result is None else result(uow, job)

    async def _record(self, how: str, lease: Lease) -> Outcome:
        self.calls.append(f"{how} {lease.job.dedup_key}")
        return None if self.behaviour is None else await self.behaviour(lease)


@dataclass
class WorkerBench:
    """A store, a clock, one handler for everything, and a runner."""

    store: Store
    clock: VirtualClock = field(default_factory=VirtualClock)
    handler: RecordingHandler = field(default_factory=RecordingHandler)
    attempts: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.outages = OutageTracker(self.store, self.clock, service_unreachable)
        self.runner = self.make_runner("one")

    def make_runner(self, owner: str) -> JobRunner:
        return JobRunner(
            store=self.store,
            clock=self.clock,
            handlers=dict.fromkeys(JobKind, self.handler),
            outages=self.outages,
            owner=owner,
            lease=LEASE,
            backoff=Backoff(2, 300),
            random=lambda: 1.0,
            on_attempt=lambda kind, state: self.attempts.append((kind, state)),
        )

    async def add_job(self, name: str = "e", *, ordering_key: str = "", **fields: Any) -> None:
        given = {"kind": JobKind.UPDATE_LINE_TASK, "target": "x", "due_at": self.clock.now(), **fields}
        await self.write(lambda uow: uow.jobs.add(NewJob(dedup_key=name, ordering_key=ordering_key or name, **given)))

    async def write(self, work: Callable[[UnitOfWork], Any]) -> Any:
        def committed(uow: UnitOfWork) -> Any:
            return work(uow)

        return await self.store.transact(committed)

    def hold_jobs(self, name: str = "") -> tuple[asyncio.Event, list[str]]:
        """Let jobs of such a name wait for the event; gives it, and the names of those that run."""
        gate, running = asyncio.Event(), list[str]()

        async def behave(lease: Lease) -> Outcome:
            if name in lease.job.dedup_key:
                running.append(lease.job.dedup_key)
                await gate.wait()
                running.remove(lease.job.dedup_key)
            return None

        self.handler.behaviour = behave
        return gate, running

    @contextmanager
    def refusing(self, error: StoreError | None = None) -> Iterator[asyncio.Event]:
        """Inside the block, the store refuses every unit of work; the event is set at the first."""
        refused = asyncio.Event()

        async def refuse(_: object) -> Any:
            refused.set()
            raise error or StoreUnreachableError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.store, "transact", refuse)
            yield refused

    async def claim(self, runner: JobRunner | None = None) -> ClaimedJob:
        """Claim the one job that is due."""
        (claimed,) = await claim_jobs(runner or self.runner, list(JobKind), 1)
        return claimed

    async def lose_lease(self) -> ClaimedJob:
        """Another worker claims what is due, after every lease has expired."""
        self.clock.advance(LEASE.total_seconds() + 1)
        return await self.claim(self.make_runner("two"))

    async def open_alerts(self) -> dict[AlertKey, Alert]:
        return {each.key: each for each in await self.store.run_read_only(lambda uow: uow.alerts.all_open())}

    async def run_due_jobs(self, runner: JobRunner | None = None) -> int:
        """Claim what is due and run it concurrently."""
        runner = runner or self.runner
        jobs = await claim_jobs(runner, list(JobKind), 50)
        await asyncio.gather(*(runner.run(job) for job in jobs))
        return len(jobs)

    async def get_job(self, number: int = 1) -> Job:
        found = await self.store.transact(lambda uow: uow.jobs.get(JobId(number)))
        assert found is not None
        return found


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[WorkerBench]:
    store = Store(create_database(tmp_path / "lab.db"), Cipher(new_key()))
    yield WorkerBench(store)
    await store.close()

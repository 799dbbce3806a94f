"""Queues of job kinds, each with a worker loop of its own, so that one slow remote system delays only its own queue (law 9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from lab_agent.domain.records import JobKind
from lab_agent.errors import StoreUnreachableError
from lab_agent.worker.job_runner import JobRunner
from lab_agent.worker.outages import OutageTracker

JOB_QUEUES: dict[str, frozenset[JobKind]] = {
    "orders": frozenset({JobKind.FETCH_ORDER}),
    "submission": frozenset({JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS}),
    "matching": frozenset({JobKind.MATCH_REPORT}),
    "delivery": frozenset({JobKind.DELIVER_REPORT}),
    "tasks": frozenset({JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK}),
}

OUTBOUND_QUEUES = frozenset({"submission", "delivery", "tasks"})
"""Queues with consequences outside; in observe mode they do not run."""


class WorkerLoop:
    """One queue's loop: claims what is due, runs up to `concurrency` jobs at once, and sleeps until it is woken."""

    def __init__(self, kinds: frozenset[JobKind], runner: JobRunner, outages: OutageTracker, *, concurrency: int) -> None:
        self._kinds = kinds
        self._runner = runner
        self._outages = outages
        self._concurrency = concurrency
        self._woken = asyncio.Event()
        self._stopping = False
        self._running: set[asyncio.Task[None]] = set()
        self.on_progress: Callable[[], None] = lambda: None

    def wake(self) -> None:
        """Let it check for due jobs."""
        self._woken.set()

    async def run(self) -> None:
        """Work until `stop` is called, then finish what is running."""
        while not self._stopping:
            self._woken.clear()
            if not await self._claim_jobs():
                await self._woken.wait()
        if self._running:
            await asyncio.wait(self._running)

    def stop(self) -> None:
        """Claim nothing more."""
        self._stopping = True
        self._woken.set()

    def cancel_running(self) -> None:
        """Cancel what is running: its lease expires, and whoever claims it next verifies the outcome first."""
        for task in self._running:
            task.cancel()

    async def _claim_jobs(self) -> bool:
        """Claim as many jobs as there are free places; whether there were any."""
        free = self._concurrency - len(self._running)
        if free <= 0:
            return False
        try:
            jobs = await self._runner.claim(self._kinds, free)
        except StoreUnreachableError as exc:  # any other error of the store ends the loop, and with it the worker
            await self._outages.record_failure(exc)
            return False
        if jobs:  # a claim that finds nothing writes nothing, and so proves nothing about a full disk
            self._outages.store_recovered()
        for job in jobs:
            task = asyncio.create_task(self._runner.run(job), name=f"job {job.id}")
            self._running.add(task)
            task.add_done_callback(self._on_job_done)
        return bool(jobs)

    def _on_job_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._woken.set()
        if not task.cancelled():
            self.on_progress()


@dataclass(frozen=True, slots=True)
class WorkerLoops:
    """All loops of a worker by queue. Progress in one wakes the others, since it may have made something due for them."""

    loops: dict[str, WorkerLoop]

    def wake(self) -> None:
        """Wake every loop."""
        for loop in self.loops.values():
            loop.wake()

    def stop(self) -> None:
        """Stop claiming everywhere."""
        for loop in self.loops.values():
            loop.stop()

    def cancel_running(self) -> None:
        """Cancel what is running everywhere."""
        for loop in self.loops.values():
            loop.cancel_running()


def build_worker_loops(runner: JobRunner, outages: OutageTracker, *, concurrency: int, observe: bool) -> WorkerLoops:
    """Build the loops of a worker; without the outbound queues where it only observes."""
    names = [name for name in JOB_QUEUES if not (observe and name in OUTBOUND_QUEUES)]
    loops = WorkerLoops({name: WorkerLoop(JOB_QUEUES[name], runner, outages, concurrency=concurrency) for name in names})
    for loop in loops.loops.values():
        loop.on_progress = loops.wake
    return loops

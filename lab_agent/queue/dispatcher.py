"""The dispatcher: claims what is due for the free slots of all queues at once, and starts it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from typing_extensions import override

from lab_agent.queue.claiming import ClaimedJob
from lab_agent.queue.job_queues import JobSlots, Offer
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.job_runner import JobRunner, Slot
from lab_agent.queue.outages import OutageTracker
from lab_agent.shared.errors import StoreUnreachableError


class JobDispatcher:
    """Runs the jobs of some queues (name and kinds), up to `concurrency` of each at once.

    It claims when it is told what is due (`wake`), or finds it (`look`). A job that ends claims what comes next by itself.
    """

    def __init__(
        self,
        queues: Mapping[str, frozenset[JobKind]],
        runner: JobRunner,
        outages: OutageTracker,
        *,
        concurrency: int,
        can_trust_leases: Callable[[], bool] = lambda: True,
    ) -> None:
        """`can_trust_leases`: whether a lease that is over now is that of a worker that is gone; our clock may have been set."""
        self._queues = queues
        self._slots = JobSlots(queues, concurrency)
        self._runner = runner
        self._outages = outages
        self._can_trust_leases = can_trust_leases
        self._woken = asyncio.Event()
        self._stopping = False
        self._running: dict[asyncio.Task[None], JobKind] = {}

    @property
    def queue_names(self) -> list[str]:
        """The names of its queues."""
        return sorted(self._queues)

    @property
    def running_queues(self) -> list[str]:
        """The names of the queues of which a job is running."""
        kinds = set(self._running.values())
        return sorted(name for name, of_queue in self._queues.items() if not of_queue.isdisjoint(kinds))

    def hold(self, kinds: Collection[JobKind]) -> None:
        """Claim no jobs of the queues with these kinds, until it is called with others; what is running is finished."""
        self._slots.hold(kinds)
        self._woken.set()

    def wake(self, kinds: Collection[JobKind]) -> None:
        """Let it claim jobs of these kinds: something is due."""
        self._slots.note_due(kinds)
        self._woken.set()

    async def look(self) -> None:
        """Find what has become due with time, what others have added, and the jobs of workers that are gone."""
        if self._outages.is_store_down:
            return
        try:
            found = await self._runner.claimer.find_pending(self._slots.idle_kinds())
            if found.has_expired_lease and self._can_trust_leases():
                await self._runner.claimer.expire_leases()
        except StoreUnreachableError as exc:
            await self._outages.record_failure(exc)
        else:
            self.wake(found.kinds)

    async def run(self) -> None:
        """Work until `stop` is called, then finish what is running. An error of a claim is raised at once, before `drain`."""
        while not self._stopping:
            self._woken.clear()
            if not await self._claim_jobs():
                await self._woken.wait()
        await self.drain()

    async def drain(self) -> None:
        """Wait for the end of what is running."""
        while self._running:
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
        """Claim as many jobs as there are free slots where something may be due; whether there were any."""
        if self._outages.is_store_down:  # the first look after the outage finds what is due
            return False
        try:
            with self._slots.offer_backlog() as offer:
                if not offer.limits:
                    return False
                offer.claimed = await self._runner.claimer.claim(offer.limits)
        except StoreUnreachableError as exc:  # any other error is one of ours: it ends the dispatcher, and with it the worker
            await self._outages.record_failure(exc)
            return False
        self._start(offer.claimed)
        return bool(offer.claimed)

    def _start(self, claimed: Collection[ClaimedJob]) -> None:
        for each in claimed:
            task = asyncio.create_task(self._run_job(each), name=f"job {each.job.id}")
            self._running[task] = each.job.kind
            task.add_done_callback(self._running.pop)

    async def _run_job(self, claimed: ClaimedJob) -> None:
        slot = _JobSlot(self, claimed.job.kind)
        try:
            await self._runner.run(claimed, slot)
        finally:
            slot.free()

    def free_slot(self, kind: JobKind) -> None:
        """Give back the slot of a job of this kind, about which nothing more is done."""
        self._slots.free(kind)
        self._woken.set()

    @contextmanager
    def offer_after(self, kind: JobKind) -> Iterator[Offer]:
        """Offer the free slots to the unit of work that ends a job, and start what it has claimed."""
        if self._stopping:
            yield Offer()
            return
        try:
            with self._slots.offer_all(kind) as offer:
                yield offer
        finally:
            self._start(offer.claimed or ())
            self._woken.set()  # what was made due meanwhile finds the slots again that were not needed


@dataclass(slots=True)
class _JobSlot(Slot):
    """The slot of a running job. It is given up when the job has ended, or nothing more is done about it."""

    dispatcher: JobDispatcher
    kind: JobKind
    is_held: bool = True

    @override
    @contextmanager
    def offer(self) -> Iterator[Offer]:
        with self.dispatcher.offer_after(self.kind) as offer:
            yield offer
        self.is_held = not offer.limits  # if slots were offered, this one was among them, and the end was written

    def free(self) -> None:
        if self.is_held:
            self.dispatcher.free_slot(self.kind)
            self.is_held = False

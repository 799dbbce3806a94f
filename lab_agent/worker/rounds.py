"""The rounds of a worker: poll, collect, reconcile, housekeeping, each with what its success or failure says of a neighbour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lab_agent.domain.journal import JobKind
from lab_agent.errors import Failure, TemporaryFailure
from lab_agent.metrics import Metrics
from lab_agent.ports.clock import Clock
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.steps.poll import OrderPoller
from lab_agent.worker.outages import EXCHANGE_OUTAGE, LIS_OUTAGE_PREFIX, POLL_OUTAGE, SIGN_IN_OUTAGE, OutageTracker
from lab_agent.worker.polling import PollInterval

_SERVICE_JOB_KINDS = (JobKind.FETCH_ORDER, JobKind.DELIVER_REPORT, JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK)
_LIS_JOB_KINDS = (JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS)


@dataclass(slots=True)
class PollTask:
    """Polls, keeps its pace, and ends the outage of a service that answers again. `again_in` sets the next run."""

    poll: OrderPoller
    outages: OutageTracker
    store: Store
    clock: Clock
    metrics: Metrics
    interval: PollInterval
    reschedule: Callable[[float], None]
    wake: Callable[[], None]
    _wait: float = field(default=0.0, init=False)

    async def run(self) -> None:
        """Poll once, tell what went wrong, and set the next run."""
        try:
            found = await self.poll.run()
        except Failure as failure:
            self.metrics.record_poll(type(failure).__name__, new=0, at=self.clock.now().timestamp())
            self._wait = await self._wait_after_failure(failure)
        else:
            self.metrics.record_poll("ok", new=found, at=self.clock.now().timestamp())
            self.outages.store_recovered()
            if await self.outages.end(EXCHANGE_OUTAGE, SIGN_IN_OUTAGE, POLL_OUTAGE):
                await make_jobs_due(self.store, self.clock, _SERVICE_JOB_KINDS)
            self._wait = self.interval.next_wait(self._wait, found)
            self.wake()
        self.reschedule(self._wait)

    async def _wait_after_failure(self, failure: Failure) -> float:
        """Tell the failure; the wait in seconds: short while the service is away, growing while it refuses the poll itself."""
        if isinstance(failure, TemporaryFailure):
            await self.outages.record_failure(failure)
            return max(self.interval.shortest, failure.retry_after or 0.0)
        await self.outages.begin(POLL_OUTAGE, f"new orders cannot be fetched: {failure}")
        return self.interval.next_wait(self._wait, 0)


@dataclass(frozen=True, slots=True)
class LisHealth:
    """Begins and ends the outages of laboratory systems, as collection hears of them."""

    outages: OutageTracker
    store: Store
    clock: Clock
    wake: Callable[[], None]

    async def on_result(self, name: str, failure: Failure | None) -> None:
        """Hear that the laboratory system `name` failed, or worked (None)."""
        key = f"{LIS_OUTAGE_PREFIX}{name}.unavailable"
        if failure is not None:
            await self.outages.begin(key, f"laboratory system {name}: {failure}")
        elif await self.outages.end(key):
            await make_jobs_due(self.store, self.clock, _LIS_JOB_KINDS)
            self.wake()


async def make_jobs_due(store: Store, clock: Clock, kinds: tuple[JobKind, ...]) -> None:
    """Let effects that wait for a neighbour be due now, since it has shown a sign of life."""

    def write(uow: UnitOfWork) -> None:
        for kind in kinds:
            uow.jobs.make_due(kind, now=clock.now())
        uow.commit()

    await store.run(write)

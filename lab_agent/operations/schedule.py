"""What a worker does at intervals (APScheduler): the poll with its adaptive interval, the health of laboratory systems, tasks.

The exchange service is polled often while orders come, and seldom while they do not. A task of which one run at each of its
times is enough is run by the worker that takes its lease first. The lease lasts until shortly before the next time, so the task
of a lost worker is run by another one then; one whose run fails gives the lease back, as another machine may do better.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

from lab_agent.orders.polling import OrderPoller
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.outages import (
    CUT_OFF_OUTAGE,
    EXCHANGE_OUTAGES,
    LINKS_OUTAGE,
    POLL_OUTAGE,
    OutageTracker,
    exchange_part_outage,
    fault_of,
    lis_outage,
)
from lab_agent.queue.retry import Backoff, backoff_delay
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import (
    AnswerTooLarge,
    Failure,
    ForeignLink,
    LabAgentError,
    ServicePaused,
    StoreUnreachableError,
    TemporaryFailure,
)
from lab_agent.shared.metrics import CallOutcome, Metrics
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

UNREADABLE_TASKS_ALERT = AlertKey(ConditionId.EXCHANGE_UNREADABLE_TASKS)
_MAX_NAMES = 10
_POLL_GRACE = timedelta(minutes=10)
"""How long a poll may take before it counts as late: a first one may read very many pages."""
ScheduledTask = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class PollInterval:
    """Waits in seconds: `shortest` after a find or a failure, half as long again after each empty answer, up to `longest`."""

    shortest: float
    longest: float

    def next_wait(self, wait: float, found: int) -> float:
        """The wait after a poll that had waited `wait` seconds and found `found` new orders."""
        return self.shortest if found else min(max(wait, self.shortest) * 1.5, max(self.longest, self.shortest))


_SERVICE_JOB_KINDS = (
    *(JobKind.FETCH_ORDER, JobKind.SUBMIT_ORDER),  # which reads the Tasks once more
    *(JobKind.DELIVER_REPORT, JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK),
)
_LIS_JOB_KINDS = (JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS)


@dataclass(slots=True)
class PollTask:
    """Polls, adapts the interval, and ends the outage of a service that answers again. `reschedule` sets the next run."""

    poll: OrderPoller
    outages: OutageTracker
    store: Store
    clock: Clock
    metrics: Metrics
    interval: PollInterval
    reschedule: Callable[[float], None]
    _wait: float = field(default=0.0, init=False)
    _unreadable_tasks: tuple[str, ...] | None = field(default=None, init=False)
    """Told last; None before the first poll of this process, as an earlier one may have left an alert open."""
    _expected_by: datetime = field(init=False)

    def __post_init__(self) -> None:
        self._expected_by = self.clock.now() + _POLL_GRACE
        if self.outages.hold is not None:
            self.outages.hold.on_begin = lambda: self.reschedule(self._wait_while_held())

    def is_late(self) -> bool:
        """Whether a poll should have ended long ago: it hangs, or is run no more. One that fails is not late."""
        return self.clock.now() > self._expected_by

    async def run(self) -> None:
        """Poll once, report what went wrong, and set the next run. One that answers nothing is asked only whether it does."""
        try:
            await self._ask_held_service()
            found = await self.poll.run()
        except Failure as failure:
            self.metrics.record_poll(CallOutcome.of(failure), new=0, at=self.clock.now().timestamp())
            self._wait = await self._wait_after_failure(failure)
        else:
            self.metrics.record_poll(CallOutcome.OK, new=found, at=self.clock.now().timestamp())
            if await self._end_outages(self.poll.exchange.order_tasks_cut_off()):
                await make_jobs_due(self.store, self.clock, _SERVICE_JOB_KINDS)
            await self._tell_unreadable_tasks(self.poll.exchange.unreadable_order_tasks())
            self._wait = self.interval.next_wait(self._wait, found)
        self._expected_by = self.clock.now() + timedelta(seconds=self._wait) + _POLL_GRACE
        self.reschedule(self._wait)

    async def _ask_held_service(self) -> None:
        """Let what waits for the service go on once it answers. Raises `ServicePaused` as long as it does not."""
        hold = self.outages.hold
        if hold is None or not hold.is_active:
            return
        if not await hold.ask():
            raise ServicePaused("the exchange service does not answer")
        await make_jobs_due(self.store, self.clock, _SERVICE_JOB_KINDS)

    async def _end_outages(self, cut_off: TemporaryFailure | None) -> bool:
        """End the outages of a service that answers; what it gives of a search that is cut off is taken, and the rest told."""
        if cut_off is None:
            return await self.outages.end(*EXCHANGE_OUTAGES)
        outage = LINKS_OUTAGE if isinstance(cut_off, ForeignLink) else CUT_OFF_OUTAGE
        ended = await self.outages.end(*(EXCHANGE_OUTAGES - {outage}))
        await self.outages.begin(outage, str(cut_off))
        return ended

    async def _tell_unreadable_tasks(self, tasks: tuple[str, ...]) -> None:
        """Open an alert that names the Tasks whose orders cannot be seen, or close it. Written where something has changed."""
        if tasks == self._unreadable_tasks:
            return

        def write(uow: UnitOfWork) -> None:
            now = self.clock.now()
            if not tasks:
                uow.alerts.close(UNREADABLE_TASKS_ALERT, now=now)
            else:
                condition = UNREADABLE_TASKS_ALERT.condition
                uow.alerts.open(Alert(condition=condition, detail=_list_tasks(tasks), since=now, opened_at=now, count=len(tasks)))

        await self.store.transact(write)
        if tasks:
            alert = str(UNREADABLE_TASKS_ALERT)
            log.warning("Tasks cannot be read", action="tasks_unreadable", alert=alert, items=list(tasks[:_MAX_NAMES]))
        elif self._unreadable_tasks:
            log.info("all Tasks can be read again", action="tasks_readable", alert=str(UNREADABLE_TASKS_ALERT))
        self._unreadable_tasks = tasks

    async def _wait_after_failure(self, failure: Failure) -> float:
        """Report the failure; the wait in seconds: short while the service is unavailable, growing while it rejects the poll."""
        if isinstance(failure, TemporaryFailure) and not isinstance(failure, AnswerTooLarge):
            await self.outages.record_failure(failure)
            if self.outages.hold is not None and self.outages.hold.is_active:
                return self._wait_while_held()
            return max(self.interval.shortest, failure.retry_after or 0.0)
        await self.outages.begin(POLL_OUTAGE, str(failure))
        return self.interval.next_wait(self._wait, 0)

    def _wait_while_held(self) -> float:
        hold = self.outages.hold
        return self.interval.shortest if hold is None else hold.next_wait(self.interval.shortest)


def _list_tasks(tasks: tuple[str, ...]) -> str:
    return ", ".join(f"Task {task}" for task in tasks[:_MAX_NAMES]) + (" and others" if len(tasks) > _MAX_NAMES else "")


@dataclass(frozen=True, slots=True)
class LisHealth:
    """Begins and ends the outages of laboratory systems, as the collection of results notices them."""

    outages: OutageTracker
    store: Store
    clock: Clock

    async def on_result(self, name: str, failure: Failure | None) -> None:
        """Record that the laboratory system `name` failed, or worked (None)."""
        key = lis_outage(name)
        if failure is not None:
            await self.outages.begin(key, str(failure))
        elif await self.outages.end(key):
            await make_jobs_due(self.store, self.clock, _LIS_JOB_KINDS)


async def make_jobs_due(store: Store, clock: Clock, kinds: tuple[JobKind, ...]) -> None:
    """Let jobs that failed for want of a remote system be due now, since it answers again.

    What waits because it was asked to (Retry-After) keeps its time: it may be what the service cannot answer.
    """

    def write(uow: UnitOfWork) -> None:
        for kind in kinds:
            uow.jobs.make_due(kind, now=clock.now(), failing_only=True)

    await store.transact(write)


_FAULT_BACKOFF = Backoff(first=1.0, longest=60.0)
"""Of a task that fails with an error that nobody expects, where its interval is shorter."""


class Scheduler:
    """Tasks at intervals. A late run is never dropped, several late ones become one, and no task overlaps with itself."""

    def __init__(self, outages: OutageTracker) -> None:
        self._outages = outages
        self._stopping = False
        self._intervals: dict[str, float] = {}
        self._faults: dict[str, int] = {}
        """How often in a row a task has failed with an error that nobody expects."""
        self._scheduler = AsyncIOScheduler(
            executors={"default": AsyncIOExecutor()},
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
            timezone=UTC,
        )

    def every(self, seconds: float, name: str, task: ScheduledTask, *, jitter: float = 0.1, needs_store: bool = True) -> None:
        """Run `task` now and then every `seconds`, plus or minus the share `jitter` of that.

        What `needs_store` is left out while the database is out: what it found could not be kept.
        """
        self._intervals[name] = seconds
        self._scheduler.add_job(
            self._run_guarded,
            IntervalTrigger(seconds=seconds, jitter=seconds * jitter, timezone=UTC),
            args=(name, task, needs_store),
            id=name,
            name=name,
            next_run_time=datetime.now(UTC),
        )

    def postpone(self, name: str, seconds: float) -> None:
        """Let the next run of a task be `seconds` from now, whatever its interval."""
        self._scheduler.modify_job(name, next_run_time=datetime.now(UTC) + timedelta(seconds=seconds))

    def run_all_now(self) -> None:
        """Let the next run of every task be now: the machine's clock was set back, and they are planned by the former time."""
        for job in self._scheduler.get_jobs():
            job.modify(next_run_time=datetime.now(UTC))

    def start(self) -> None:
        """Start running tasks."""
        self._scheduler.start()

    def stop(self) -> None:
        """Run no more tasks."""
        self._stopping = True
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    async def _run_guarded(self, name: str, task: ScheduledTask, needs_store: bool) -> None:
        """Run a task once; what goes wrong is told, and the next run comes all the same."""
        if needs_store and self._outages.is_store_down:
            return
        try:
            await task()
            self._faults.pop(name, None)
            await self._outages.end(exchange_part_outage(name), fault_of(name))
        except asyncio.CancelledError:
            if not self._stopping:  # a task that is cut off by the stop needs no line
                raise
        except LabAgentError as failure:
            await self._record_failure(name, failure)
        except Exception as error:  # boundary: a bug in one task does not end the daemon; it is logged whole, once
            if name not in self._faults:
                log.exception("scheduled task failed", action="scheduled_task_failed", task=name)
            await self._record_fault(name, error)

    async def _record_failure(self, name: str, failure: LabAgentError) -> None:
        """Tell of an outage. A failure that is none, such as of stored data, is one that nobody expects here."""
        try:
            await self._outages.record_failure(failure, name)
        except LabAgentError as second:  # the database is unavailable, too
            await self._outages.record_failure(second)
        if isinstance(failure, StoreUnreachableError) or self._outages.is_known(failure, name):
            return
        if name not in self._faults:
            log.warning("scheduled task failed", action="scheduled_task_failed", task=name, reason=str(failure))
        await self._record_fault(name, failure)

    async def _record_fault(self, name: str, error: Exception) -> None:
        """Tell of an error that nobody expects, and wait: what fails at once would fail again at once, for ever."""
        failures = self._faults[name] = self._faults.get(name, 0) + 1
        wait = backoff_delay(failures, _FAULT_BACKOFF, 1.0)
        if wait > self._intervals[name]:
            self.postpone(name, wait)
        await self._outages.record_fault(name, error, rest=f", {failures} times in a row" if failures > 1 else "")


_SHARE = 0.8
"""Of the interval: the times of a task vary by a tenth of it."""


@dataclass(frozen=True, slots=True)
class LeasedTask:
    """Runs `task`, which is due every `interval` seconds, if no other worker has run it within the interval or does now."""

    name: str
    task: ScheduledTask
    interval: float
    store: Store
    clock: Clock
    owner: str

    async def run(self) -> None:
        """Run it if it is ours. Raises what the task raises, and `StoreError`."""
        if not await self.store.transact(self._acquire):
            return
        try:
            await self.task()
        except Exception:  # whatever it is: another machine may have the luck that this one has not
            await self.store.transact(self._release)
            raise

    @property
    def _lease_name(self) -> str:
        return f"task.{self.name}"

    def _acquire(self, uow: UnitOfWork) -> bool:
        lease = timedelta(seconds=self.interval * _SHARE)
        return uow.leases.acquire(self._lease_name, self.owner, now=self.clock.now(), lease=lease)

    def _release(self, uow: UnitOfWork) -> None:
        uow.leases.release(self._lease_name, self.owner)

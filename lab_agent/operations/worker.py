"""The worker: starts everything, watches it, and stops it in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field

import structlog

from lab_agent.lis.laboratory_system import AdapterSource, Inbox
from lab_agent.operations.presence import Presence
from lab_agent.operations.restore_watch import RestoreWatch
from lab_agent.operations.schedule import ScheduledTask, Scheduler
from lab_agent.queue.dispatcher import JobDispatcher
from lab_agent.queue.outages import OutageTracker
from lab_agent.shared import sd_notify
from lab_agent.shared.asyncio_errors import retrieve_error
from lab_agent.shared.errors import Failure, LabAgentError

log = structlog.get_logger(__name__)

WAKE_INTERVAL = 1.0
"""Seconds between two looks for work: how late a job may be taken, at most, that others have added or that time has made due."""
RESTORE_INTERVAL = 5.0
"""Seconds between two looks whether the database was restored, and whether that was released."""
PRESENCE_TASK = "presence"
"""Name of the asyncio task that writes the worker's heartbeat."""
DISPATCHER_TASK = "dispatcher"
"""Name of the asyncio task that runs the jobs."""

BackgroundTask = Callable[[], Coroutine[object, object, None]]


class BackgroundTaskFailed(LabAgentError):
    """A part of the worker ended by itself; the worker stops, so that its supervisor starts a fresh one."""


@dataclass(slots=True)
class Worker:
    """The running parts. `scheduled_tasks` have their interval in seconds, by name."""

    dispatcher: JobDispatcher
    scheduler: Scheduler
    outages: OutageTracker
    presence: Presence
    restore_watch: RestoreWatch
    adapters: AdapterSource
    inbox_for: Callable[[str], Inbox]
    scheduled_tasks: Mapping[str, tuple[float, ScheduledTask]]
    background_tasks: Mapping[str, BackgroundTask]
    drain_timeout: float
    _stop_requested: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _stopped_by: str | None = field(default=None, init=False)

    @property
    def task_names(self) -> tuple[str, ...]:
        """The names of the asyncio tasks that run as long as the worker does."""
        return (DISPATCHER_TASK, PRESENCE_TASK, *self.background_tasks)

    def stop(self, by: str | None = None) -> None:
        """Request the stop: nothing new is started, what is running is finished. `by` names the signal that asks for it."""
        self._stopped_by = self._stopped_by or by
        self._stop_requested.set()

    async def run(self) -> None:
        """Run until `stop`. Raises `BackgroundTaskFailed` if a part ended by itself."""
        await self.restore_watch.begin()
        await self._start_adapters()
        dispatcher = asyncio.create_task(self.dispatcher.run(), name=DISPATCHER_TASK)
        background = {asyncio.create_task(task(), name=name) for name, task in self.background_tasks.items()}
        background.add(asyncio.create_task(self.presence.run(), name=PRESENCE_TASK))
        self._start_scheduler()
        sd_notify.notify_ready("working")
        log.info("worker started", action="worker_started", queues=self.dispatcher.queue_names)
        stopping = asyncio.create_task(self._stop_requested.wait(), name="stop")
        ended, _ = await asyncio.wait({stopping, dispatcher, *background}, return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in ended if task is not stopping]
        sd_notify.notify_stopping("finishing running jobs")
        if failed:  # before anything else: the process may not get to its end
            await self.presence.tell_fault(failed[0].get_name(), retrieve_error(failed[0]))
        await self._shut_down(dispatcher, background | {stopping})
        await self.presence.tell_stopped(self._stopped_by)
        log.info("worker stopped", action="worker_stopped")
        if failed:
            names = ", ".join(task.get_name() for task in failed)
            raise BackgroundTaskFailed(f"{names} ended by itself; the worker stops") from retrieve_error(failed[0])

    async def _start_adapters(self) -> None:
        """Start the LIS adapters concurrently; one that cannot start now is tried again when it is needed."""
        await asyncio.gather(*(self._start_adapter(name) for name, _ in self.adapters.running()))

    async def _start_adapter(self, name: str) -> None:
        try:
            await self.adapters.get(name).start(self.inbox_for(name))
        except Failure as failure:
            log.warning("adapter not started", action="adapter_not_started", adapter=name, reason=str(failure))

    def _start_scheduler(self) -> None:
        for name, (seconds, run) in self.scheduled_tasks.items():
            self.scheduler.every(seconds, name, run)
        self.scheduler.every(RESTORE_INTERVAL, "restore", self.restore_watch.look)
        self.scheduler.every(WAKE_INTERVAL, "look", self.dispatcher.look, jitter=0)
        if (interval := sd_notify.watchdog_interval()) is not None:
            self.scheduler.every(interval, "watchdog", self._notify_watchdog, jitter=0, needs_store=False)
        self.scheduler.start()

    async def _notify_watchdog(self) -> None:
        sd_notify.notify_watchdog()

    async def _shut_down(self, dispatcher: asyncio.Task[None], background: set[asyncio.Task[object]]) -> None:
        self.scheduler.stop()
        self.dispatcher.stop()
        _, unfinished = await asyncio.wait({asyncio.create_task(self._drain(dispatcher))}, timeout=self.drain_timeout)
        if unfinished:
            log.warning("jobs left unfinished", action="drain_timeout", queues=self.dispatcher.running_queues)
            self.dispatcher.cancel_running()
            await asyncio.wait(unfinished, timeout=5)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        for name, _ in self.adapters.running():
            try:
                await self.adapters.get(name).stop()
            except Failure as failure:
                log.warning("adapter not stopped", action="adapter_not_stopped", adapter=name, reason=str(failure))

    async def _drain(self, dispatcher: asyncio.Task[None]) -> None:
        """Wait for what is running, also where the dispatcher has failed and waits for nothing."""
        await asyncio.wait({dispatcher})
        await self.dispatcher.drain()

"""The schedule: what is asked again and again, and how often (APScheduler)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

from lab_agent.errors import LabAgentError
from lab_agent.worker.outages import OutageTracker, exchange_part_outage

log = structlog.get_logger(__name__)

ScheduledTask = Callable[[], Awaitable[Any]]


class Scheduler:
    """Jobs at intervals. A late tick is never dropped, several late ones become one, and no job overlaps with itself."""

    def __init__(self, outages: OutageTracker) -> None:
        self._outages = outages
        self._stopping = False
        self._scheduler = AsyncIOScheduler(
            executors={"default": AsyncIOExecutor()},
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
            timezone=UTC,
        )

    def every(self, seconds: float, name: str, task: ScheduledTask, *, jitter: float = 0.1) -> None:
        """Run `tick` now and then every `seconds`, give or take the share `jitter` of it."""
        self._scheduler.add_job(
            self._run_guarded,
            IntervalTrigger(seconds=seconds, jitter=seconds * jitter, timezone=UTC),
            args=(name, task),
            id=name,
            name=name,
            next_run_time=datetime.now(UTC),
        )

    def postpone(self, name: str, seconds: float) -> None:
        """Let the next run of a job be `seconds` from now, whatever its interval."""
        self._scheduler.modify_job(name, next_run_time=datetime.now(UTC) + timedelta(seconds=seconds))

    def run_soon(self, name: str) -> None:
        """Run a job as soon as it can be."""
        self.postpone(name, 0)

    def start(self) -> None:
        """Begin to tick."""
        self._scheduler.start()

    def stop(self) -> None:
        """Tick no more."""
        self._stopping = True
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    async def _run_guarded(self, name: str, task: ScheduledTask) -> None:
        """Run one tick; what goes wrong is told, and the next tick comes all the same."""
        try:
            await task()
            await self._outages.end(exchange_part_outage(name))
        except asyncio.CancelledError:
            if not self._stopping:  # a tick that is cut off by the end is no news
                raise
        except LabAgentError as failure:
            await self._log_failure(name, failure)
        except Exception:  # boundary: a bug in one tick does not end the daemon; it is logged whole
            log.exception("tick failed", action="scheduled_task_failed", tick=name)

    async def _log_failure(self, name: str, failure: LabAgentError) -> None:
        known = self._outages.is_known(failure, name)
        try:
            await self._outages.record_failure(failure, name)
        except LabAgentError as second:  # the store is away, too
            await self._outages.record_failure(second)
        if not known and not self._outages.is_known(failure, name):
            log.warning("tick failed", action="scheduled_task_failed", tick=name, reason=str(failure))

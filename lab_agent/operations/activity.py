"""Keeps the hours that the charts of the status page show: twice a minute the present one, and once more the one before."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import LabAgentError
from lab_agent.store.activity_records import HOUR, HourlyActivity, Measure, hour_of, summarize
from lab_agent.store.queries import Queries
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

INTERVAL = 30.0
KEPT = timedelta(days=35)
_MAX_TIMES = 5_000


@dataclass(slots=True)
class RecentCalls:
    """What this process counts by itself, since no row says it: the service's answers with their times, and failed attempts."""

    seconds: deque[tuple[datetime, float]] = field(default_factory=lambda: deque(maxlen=_MAX_TIMES))
    failures: int = 0

    def record_call(self, at: datetime, seconds: float) -> None:
        """Note an answer of the service."""
        self.seconds.append((at, seconds))

    def record_failure(self) -> None:
        """Note an attempt that failed."""
        self.failures += 1

    def take_failures(self) -> int:
        """Give the failures since the last time."""
        taken, self.failures = self.failures, 0
        return taken


@dataclass(slots=True)
class ActivityRecorder:
    """Writes the hours. Several processes may: what rows say they all write alike; of calls, each adds or replaces its own."""

    store: Store
    queries: Queries
    clock: Clock
    calls: RecentCalls
    _last_hour: datetime | None = field(default=None, init=False)

    async def run(self) -> None:
        """Record until cancelled; what cannot be read or written now is recorded the next time."""
        while True:
            try:
                await self.record()
            except LabAgentError as exc:
                log.debug("hour not recorded", action="activity_failed", reason=str(exc))
            await asyncio.sleep(INTERVAL)

    async def record(self) -> None:
        """Record the present hour, and the one before where it is not whole yet. Raises `StoreError`."""
        hour = hour_of(self.clock.now())
        wanted = [hour] if self._last_hour == hour else [hour - HOUR, hour]
        measured = [each for one in wanted for each in await self.queries.measure_hour(one)]
        failures = self.calls.take_failures()
        own = self._own_calls(hour)

        def write(uow: UnitOfWork) -> None:
            known = uow.activity.get(hour, Measure.FAILURES)
            failed = summarize(hour, Measure.FAILURES, failures + (known.count if known else 0))
            uow.activity.save([*measured, failed, *own])
            uow.activity.purge(before=hour - KEPT)

        try:
            await self.store.transact(write)
        except LabAgentError:
            self.calls.failures += failures
            raise
        self._last_hour = hour

    def _own_calls(self, hour: datetime) -> list[HourlyActivity]:
        seconds = [taken for at, taken in self.calls.seconds if at >= hour]
        return [summarize(hour, Measure.EXCHANGE_CALLS, len(seconds), seconds)] if seconds else []

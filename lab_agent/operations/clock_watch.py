"""Notices that the machine's clock was set while the worker runs, tells it, and lets go on what waits by the former time.

A clock that is set back by an hour would let every task and every job that was planned before wait for that hour. One that is set
forward lets what is planned come early, and leases seem over: none counts as such before its worker had the time to renew it
(law 8).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from lab_agent.operations.schedule import Scheduler
from lab_agent.queue.retry import LONGEST_WAIT
from lab_agent.shared.clock import Clock, Moment, drift_allowed, steady_seconds
from lab_agent.shared.errors import StoreUnreachableError
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

_TOLD = timedelta(seconds=5)
"""A smaller step keeps nobody waiting."""


@dataclass(slots=True)
class ClockWatch:
    """Watches `clock`. No job waits by itself for longer than `longest_wait`, or `LONGEST_WAIT` where it gives way to others;
    no lease is longer than `lease`.
    """

    store: Store
    clock: Clock
    scheduler: Scheduler
    longest_wait: timedelta
    lease: timedelta
    interval: float = 1.0
    """Seconds between two looks."""
    steady: Callable[[], float] = steady_seconds
    _last: Moment = field(init=False)
    _has_jobs_to_mend: bool = field(default=False, init=False)
    _leases_hold_until: float = field(default=-math.inf, init=False)
    """By steady time."""

    def __post_init__(self) -> None:
        self._last = self._read()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self.interval)
            await self.look()

    async def look(self) -> None:
        """Compare the clock with steady time once. Jobs that a database that is out keeps are mended at a later look."""
        self._compare()
        if self._has_jobs_to_mend:
            await self._mend_jobs()

    def can_trust_leases(self) -> bool:
        """Whether a lease that is over by our clock is that of a worker that is gone.

        Not for as long as a lease lasts after our clock was set forward: whoever lives renews meanwhile what seems over.
        """
        self._compare()
        return self._last.steady >= self._leases_hold_until

    def _compare(self) -> None:
        before, now = self._last, self._read()
        self._last = now
        step = now.zero - before.zero
        if abs(step) <= max(_TOLD, drift_allowed(now, before)):
            return
        log.warning("this machine's clock was set", action="clock_set", seconds=round(step.total_seconds()))
        if step < timedelta():
            self.scheduler.run_all_now()
            self._has_jobs_to_mend = True
        else:
            self._leases_hold_until = now.steady + self.lease.total_seconds()

    async def _mend_jobs(self) -> None:
        try:
            await self.store.transact(self._bring_forward)
        except StoreUnreachableError:
            return  # told by the watch of the database
        self._has_jobs_to_mend = False

    def _bring_forward(self, uow: UnitOfWork) -> None:
        now = self.clock.now()
        uow.jobs.bring_forward(
            now=now,
            due_after=now + self.longest_wait,
            giving_way_after=now + max(self.longest_wait, timedelta(seconds=LONGEST_WAIT)),
            leased_after=now + self.lease,
        )

    def _read(self) -> Moment:
        return Moment(self.clock.now(), self.steady())

"""Lets one of several workers run a task at each of its times: the one that takes the task's lease first.

The lease lasts until shortly before the next time. So the task of a worker that is lost is run by another one at its next time. A
worker whose run fails gives the lease back, as another machine may reach what it cannot, and so does one that ends in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from lab_agent.ports.clock import Clock
from lab_agent.store.unit_of_work import Store, UnitOfWork
from lab_agent.worker.schedule import ScheduledTask

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

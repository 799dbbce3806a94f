"""An exchange service that answers nothing gets one request at a time, at growing intervals; all else waits for an answer.

Whether it answers at all is asked by two requests in turn, the search for new orders and a Task that somebody waits for: each of
them may be broken by itself, for days, while everything else goes on (law 9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from lab_agent.exchange.service import Exchange
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.shared.ids import JobId, ResourceId
from lab_agent.store.unit_of_work import Store, UnitOfWork

_CAUSES = (FailureCause.SERVICE_UNAVAILABLE, FailureCause.OUTCOME_UNKNOWN)
_MAX_TASKS = 50


@dataclass(slots=True)
class ServiceHold:
    """Holds back all requests of this process while the service answers nothing; `longest`: seconds between two that ask it."""

    exchange: Exchange
    store: Store
    longest: float
    on_begin: Callable[[], None] = lambda: None
    """Called as it begins: somebody has to `ask`."""
    is_active: bool = field(default=False, init=False)
    _asked: int = field(default=0, init=False)
    _unanswered: int = field(default=0, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def consider(self) -> None:
        """Begin, if a Task is not answered either: the search for new orders, or a job and that search, have just failed."""
        async with self._lock:
            if self.is_active:
                return
            self._asked += 1
            task = await self._choose_task()
            if task is not None and await self.exchange.answers(task):
                return
            self.exchange.hold()
            self.is_active, self._unanswered = True, 0
            self.on_begin()

    async def ask(self) -> bool:
        """Send one request; whether it was answered, which is the end of it."""
        async with self._lock:
            self._asked += 1
            if not await self.exchange.answers(await self._choose_task() if self._asked % 2 else None):
                self._unanswered += 1
                return False
            self.release()
            return True

    def next_wait(self, shortest: float) -> float:
        """Seconds to wait before asking: `shortest` at first, and twice as long after each time without an answer."""
        return min(self.longest, shortest * 2.0 ** min(self._unanswered, 30))

    def release(self) -> None:
        """Let everything be sent again."""
        if self.is_active:
            self.is_active = False
            self.exchange.release()

    async def _choose_task(self) -> ResourceId | None:
        """Another Task each time, as one may be what the service cannot answer: of what fails, or else of an open order."""
        tasks = await self.store.run_read_only(_list_tasks)
        return ResourceId(tasks[self._asked // 2 % len(tasks)]) if tasks else None


def _list_tasks(uow: UnitOfWork) -> list[str]:
    found: dict[str, None] = {}
    for cause in _CAUSES:
        for job in uow.jobs.of_cause(cause, system=None, kind=None, after=JobId(0), limit=_MAX_TASKS):
            if job.order is not None:
                found[uow.orders.get(job.order).task_id] = None
    for order in uow.orders.open_orders(limit=_MAX_TASKS):
        found[order.task_id] = None
    return list(found)[:_MAX_TASKS]

"""The worker: starts everything, watches it, and ends it in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field

import structlog

from lab_agent import sd_notify
from lab_agent.errors import Failure, LabAgentError
from lab_agent.ports.lis import Inbox
from lab_agent.steps.adapters import AdapterSource
from lab_agent.worker.groups import Groups
from lab_agent.worker.outages import Outages
from lab_agent.worker.ticks import Ticks

log = structlog.get_logger(__name__)

HEARTBEAT = 1.0
"""Seconds between two nudges: how late a waiting effect may be, at most."""


class SideTaskDied(LabAgentError):
    """A part of the worker ended by itself; the worker stops, so that its supervisor starts a fresh one."""


@dataclass(slots=True)
class Worker:
    """The running parts. `rounds` are the jobs of the schedule by name, with their interval in seconds."""

    groups: Groups
    ticks: Ticks
    outages: Outages
    adapters: AdapterSource
    inbox_for: Callable[[str], Inbox]
    rounds: Mapping[str, tuple[float, Callable[[], Awaitable[object]]]]
    side_tasks: Mapping[str, Callable[[], Coroutine[object, object, None]]]
    drain_timeout: float
    _stop: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def stop(self) -> None:
        """Ask for the end: nothing new is begun, what is under way is finished."""
        self._stop.set()

    async def run(self) -> None:
        """Run until `stop`. Raises `SideTaskDied` if a part ended by itself."""
        await self._start_adapters()
        loops = {asyncio.create_task(group.run(), name=f"group {name}") for name, group in self.groups.members.items()}
        beside = {asyncio.create_task(task(), name=name) for name, task in self.side_tasks.items()}
        self._start_ticks()
        sd_notify.ready("working")
        log.info("worker started", action="worker_started", groups=sorted(self.groups.members))
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        ended, _ = await asyncio.wait({stopping, *loops, *beside}, return_when=asyncio.FIRST_COMPLETED)
        died = [task for task in ended if task is not stopping]
        sd_notify.stopping("finishing what is under way")
        await self._finish(loops, beside | {stopping})
        log.info("worker stopped", action="worker_stopped")
        if died:
            names = ", ".join(task.get_name() for task in died)
            raise SideTaskDied(f"{names} ended by itself; the worker stops") from died[0].exception()

    async def _start_adapters(self) -> None:
        """Start the laboratory systems' adapters side by side; one that cannot start now is tried again when it is needed."""
        await asyncio.gather(*(self._start_adapter(name) for name, _ in self.adapters.running()))

    async def _start_adapter(self, name: str) -> None:
        try:
            await self.adapters.get(name).start(self.inbox_for(name))
        except Failure as failure:
            log.warning("adapter not started", action="adapter_not_started", adapter=name, reason=str(failure))

    def _start_ticks(self) -> None:
        for name, (seconds, run) in self.rounds.items():
            self.ticks.every(seconds, name, run)
        self.ticks.every(HEARTBEAT, "nudge", self._nudge, jitter=0)
        if (interval := sd_notify.watchdog_interval()) is not None:
            self.ticks.every(interval, "watchdog", self._alive, jitter=0)
        self.ticks.start()

    async def _nudge(self) -> None:
        self.groups.nudge()

    async def _alive(self) -> None:
        sd_notify.watchdog()

    async def _finish(self, loops: set[asyncio.Task[None]], beside: set[asyncio.Task[object]]) -> None:
        self.ticks.stop()
        self.groups.stop()
        _, unfinished = await asyncio.wait(loops, timeout=self.drain_timeout)
        if unfinished:
            log.warning("work left unfinished", action="drain_timeout", groups=sorted(task.get_name() for task in unfinished))
            self.groups.abandon()
            await asyncio.wait(unfinished, timeout=5)
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        for name, _ in self.adapters.running():
            try:
                await self.adapters.get(name).stop()
            except Failure as failure:
                log.warning("adapter not stopped", action="adapter_not_stopped", adapter=name, reason=str(failure))

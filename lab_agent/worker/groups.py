"""Groups of effects, each worked on by a loop of its own, so that a slow neighbour stalls only its own group (law 9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from lab_agent.domain.journal import EffectKind
from lab_agent.errors import StoreUnreachableError
from lab_agent.worker.engine import Engine
from lab_agent.worker.outages import Outages

GROUPS: dict[str, frozenset[EffectKind]] = {
    "orders": frozenset({EffectKind.LOOK}),
    "handover": frozenset({EffectKind.HANDOVER, EffectKind.LIS_CANCEL}),
    "matching": frozenset({EffectKind.MATCH}),
    "delivery": frozenset({EffectKind.DELIVER}),
    "tasks": frozenset({EffectKind.LINE_TASK, EffectKind.ORDER_TASK}),
}

OUTWARD = frozenset({"handover", "delivery", "tasks"})
"""Groups that are felt outside; in observe mode they do not run."""


class Group:
    """One loop: claims what is due, works on up to `width` effects side by side, and sleeps until it is nudged."""

    def __init__(self, kinds: frozenset[EffectKind], engine: Engine, outages: Outages, *, width: int) -> None:
        self._kinds = kinds
        self._engine = engine
        self._outages = outages
        self._width = width
        self._nudged = asyncio.Event()
        self._stopping = False
        self._running: set[asyncio.Task[None]] = set()
        self.on_progress: Callable[[], None] = lambda: None

    def nudge(self) -> None:
        """Say that something may be due."""
        self._nudged.set()

    async def run(self) -> None:
        """Work until `stop` is called, then finish what is under way."""
        while not self._stopping:
            self._nudged.clear()
            if not await self._fill():
                await self._wait()
        if self._running:
            await asyncio.wait(self._running)

    def stop(self) -> None:
        """Claim nothing more."""
        self._stopping = True
        self._nudged.set()

    def abandon(self) -> None:
        """Cancel what is under way: its lease lapses, and whoever comes next looks before doing it again."""
        for task in self._running:
            task.cancel()

    async def _fill(self) -> bool:
        """Claim as many effects as there are free places; whether there were any."""
        free = self._width - len(self._running)
        if free <= 0:
            return False
        try:
            effects = await self._engine.claim(self._kinds, free)
        except StoreUnreachableError as exc:  # any other fault of the store ends the group, and with it the worker
            await self._outages.notice(exc)
            return False
        if effects:  # a claim that finds nothing writes nothing, and says nothing of a full disk
            self._outages.store_back()
        for effect in effects:
            task = asyncio.create_task(self._engine.work(effect), name=f"effect {effect.id}")
            self._running.add(task)
            task.add_done_callback(self._ended)
        return bool(effects)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._nudged.set()
        if not task.cancelled():
            self.on_progress()

    async def _wait(self) -> None:
        await self._nudged.wait()


@dataclass(frozen=True, slots=True)
class Groups:
    """All groups of a worker. Progress in one nudges the others, since it may have made something due for them."""

    members: dict[str, Group]

    def nudge(self) -> None:
        """Nudge every group."""
        for group in self.members.values():
            group.nudge()

    def stop(self) -> None:
        """Stop claiming everywhere."""
        for group in self.members.values():
            group.stop()

    def abandon(self) -> None:
        """Cancel what is under way everywhere."""
        for group in self.members.values():
            group.abandon()


def make_groups(engine: Engine, outages: Outages, *, width: int, observe: bool) -> Groups:
    """The groups of a worker; without the outward ones where it only observes."""
    names = [name for name in GROUPS if not (observe and name in OUTWARD)]
    groups = Groups({name: Group(GROUPS[name], engine, outages, width=width) for name in names})
    for group in groups.members.values():
        group.on_progress = groups.nudge
    return groups

"""Collection, first half: every laboratory system puts its results into the inbox; one that is away stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lab_agent.errors import Failure
from lab_agent.steps.adapters import AdapterSource

OnResult = Callable[[str, Failure | None], Awaitable[None]]
"""Hears, for each laboratory system, what went wrong; None for nothing."""


@dataclass(frozen=True, slots=True)
class ResultCollector:
    """Asks each running adapter for what the LIS has put out."""

    adapters: AdapterSource
    on_result: OnResult

    async def run(self) -> int:
        """Ask once round, side by side; the number of new messages."""
        return sum(await asyncio.gather(*(self._collect_from(name) for name, _ in self.adapters.running())))

    async def _collect_from(self, name: str) -> int:
        adapter = self.adapters.get(name)
        try:
            await adapter.check()
            new = await adapter.collect()
        except Failure as failure:
            await self.on_result(name, failure)
            return 0
        await self.on_result(name, None)
        return new

"""The settings and the store, opened for one command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from lab_agent import bootstrap
from lab_agent.ports.store import Store
from lab_agent.ports.views import Queries
from lab_agent.settings.root import Settings, load_settings
from lab_agent.store.views import SqlQueries

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CommandContext:
    """What a command works on."""

    settings: Settings
    store: Store
    queries: Queries

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.now(UTC)


def run_with_store(config: Path | None, work: Callable[[CommandContext], Awaitable[T]]) -> T:
    """Read the settings, open the store, work, close it."""
    settings = load_settings(config)

    async def whole() -> T:
        async with _open_context(settings) as opened:
            return await work(opened)

    return asyncio.run(whole())


@asynccontextmanager
async def _open_context(settings: Settings) -> AsyncIterator[CommandContext]:
    store = bootstrap.open_store(settings)
    try:
        yield CommandContext(settings, store, SqlQueries(store))
    finally:
        await store.close()

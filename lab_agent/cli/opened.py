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
from lab_agent.ports.views import Views
from lab_agent.settings.root import Settings, load_settings
from lab_agent.store.views import SqlViews

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opened:
    """What a command works on."""

    settings: Settings
    store: Store
    views: Views

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.now(UTC)


def with_store(config: Path | None, work: Callable[[Opened], Awaitable[T]]) -> T:
    """Read the settings, open the store, work, close it."""
    settings = load_settings(config)

    async def whole() -> T:
        async with _opened(settings) as opened:
            return await work(opened)

    return asyncio.run(whole())


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Opened]:
    store = bootstrap.open_store(settings)
    try:
        yield Opened(settings, store, SqlViews(store))
    finally:
        await store.close()

"""What commands share: the settings and the store, opened for one command, and common options."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from lab_agent.cli.lazy_commands import paused_garbage_collection
from lab_agent.settings.groups import StoreSettings
from lab_agent.settings.root import Settings, StoreGroups, load_groups, load_settings
from lab_agent.settings.sources import CONFIG_VARIABLE
from lab_agent.store.audit_origin import find_origin, find_person
from lab_agent.store.queries import Queries
from lab_agent.store.unit_of_work import Store

T = TypeVar("T")


@dataclass(frozen=True)
class CommandContext:
    """What a command works with: its settings are read, and checked, when it asks for them."""

    config: Path | None
    store: Store
    queries: Queries

    @cached_property
    def settings(self) -> Settings:
        """All settings, without the secret of the sign-in. Raises `SettingsError`."""
        return load_settings(self.config, requires_login=False)

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.now(UTC)


def run_with_store(config: Path | None, work: Callable[[CommandContext], Awaitable[T]], by: str | None = None) -> T:
    """Open the store, run `work`, and close the store. What is recorded without a name is of `by`."""
    settings = load_groups(StoreGroups, config).store

    async def whole() -> T:
        async with _open_context(config, settings, by) as opened:
            return await work(opened)

    return asyncio.run(whole())


@asynccontextmanager
async def _open_context(config: Path | None, settings: StoreSettings, by: str | None) -> AsyncIterator[CommandContext]:
    with paused_garbage_collection():  # a command without a store, such as a trial, does not import the database library
        from lab_agent.store.opening import open_store  # noqa: PLC0415
        from lab_agent.store.queries import Queries  # noqa: PLC0415

    store = open_store(settings, origin=find_origin(by=by))
    try:
        yield CommandContext(config, store, Queries(store))
    finally:
        await store.close()


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar=CONFIG_VARIABLE, show_envvar=True, metavar="PATH", help="Settings file (TOML)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of entries to show.")]
OffsetOption = Annotated[int, typer.Option("--offset", min=0, help="Number of entries to skip.")]
ColumnsOption = Annotated[
    str | None, typer.Option("--columns", metavar="A,B,C", help="Only these columns of the table, in this order.")
]
WideOption = Annotated[bool, typer.Option("--wide", help="All columns of the table, however wide the terminal is.")]
ByOption = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Who decides. Default: whoever signed in to this machine.")
]


def operator_name(by: str | None) -> str:
    """Who decides: as given, else whoever signed in to this machine."""
    return by or find_person()

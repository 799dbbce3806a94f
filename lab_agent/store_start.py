"""How the agent begins: it waits for its database, and its status page and its channels say what is wrong meanwhile."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from lab_agent.operations.notification.building import build_memory_notifier
from lab_agent.operations.notification.dead_man import DeadManPing
from lab_agent.operations.notification.memory import MemoryBook
from lab_agent.result_bootstrap import SystemClock
from lab_agent.settings.root import Settings
from lab_agent.shared import web_server
from lab_agent.shared.conditions.model import OpenCondition
from lab_agent.status.waiting_app import create_waiting_app
from lab_agent.store.agent_lock import AgentLock
from lab_agent.store.database_files import beside_database
from lab_agent.store.engine import sqlite_file
from lab_agent.store.opening import open_store
from lab_agent.store.store_health import StoreOutage, name_host
from lab_agent.store_wait import StoreWait, keep_watchdog

_DRAIN_SECONDS = 1.0


@dataclass(slots=True)
class StoreStart:
    """Opens the database for one run of the daemon. `lock` is to be held as long as that works."""

    settings: Settings
    lock: AgentLock
    book: MemoryBook = field(init=False)
    """What channels were told of the database, by this process and by former ones."""
    _waiting: StoreWait = field(init=False)

    def __post_init__(self) -> None:
        self.book = MemoryBook.load(_find_book(self.settings))
        self._waiting = StoreWait(self._open)

    @property
    def outages(self) -> tuple[StoreOutage, ...]:
        """What was wrong meanwhile."""
        return tuple(self._waiting.outages.values())

    async def wait(self, sock: socket.socket, stop: asyncio.Event) -> bool:
        """As `StoreWait.wait`; the status page is served on `sock` meanwhile."""
        return await self._waiting.wait(stop, lambda: self._tell(sock))

    async def _tell(self, sock: socket.socket) -> None:
        """Tell by the page and by the channels what is wrong, and call nobody who would take it for health."""
        app = create_waiting_app(self._waiting.find_condition, _now, self.settings.worker.mode, self.settings.status.language)
        notifier = build_memory_notifier(self.settings.notify, SystemClock(), self._observe, self.book)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(web_server.serve(app, sock.dup(), drain=_DRAIN_SECONDS), name="status page")
            tasks.create_task(notifier.run(), name="notifications")
            tasks.create_task(self._ping(), name="ping")
            tasks.create_task(keep_watchdog(), name="watchdog")

    async def _ping(self) -> None:
        ping = DeadManPing(self.settings.notify.ping, lambda: False)
        await self._waiting.failed.wait()  # so far it only takes long
        while True:
            await ping.run()
            await asyncio.sleep(self.settings.notify.ping.interval)

    async def _open(self) -> None:
        """Open it once, and close it again."""
        await asyncio.to_thread(self.lock.acquire, _now())
        store = await asyncio.to_thread(open_store, self.settings.store)
        try:
            await store.verify()
            await store.transact(
                lambda uow: uow.key_values.get("instance")
            )  # it begins as one that writes, which a lock prevents
        finally:
            await store.close()

    def _observe(self) -> tuple[OpenCondition]:
        host = "" if self.settings.store.url.startswith("sqlite") else socket.gethostname()
        return (name_host(self._waiting.find_condition(), host),)


def _find_book(settings: Settings) -> Path | None:
    """Where it is kept what was told of the database: in systemd's state folder, else beside the SQLite database.

    Elsewhere there is no folder of ours, and a restart forgets it. Agents that share a folder have different ports.
    """
    file, state = sqlite_file(settings.store.url), os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    folder = Path(state) if state else None if file is None else beside_database(file, "").parent
    return None if folder is None else folder / f"told-of-database-{settings.status.port}.json"


def _now() -> datetime:
    return datetime.now(UTC)

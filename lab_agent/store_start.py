"""How the daemon begins: it waits until its database can be opened, and its status page says what is wrong meanwhile.

A daemon that ended instead would be started again and again, and say so in the log alone.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from lab_agent import sd_notify, web_server
from lab_agent.bootstrap import SystemClock
from lab_agent.conditions.model import OpenCondition
from lab_agent.domain.store_health import StoreOutage, name_host
from lab_agent.errors import StoreFault, StoreUnreachableError
from lab_agent.notification.building import build_memory_notifier
from lab_agent.notification.dead_man import DeadManPing
from lab_agent.notification.memory import MemoryBook
from lab_agent.settings.root import Settings
from lab_agent.status.waiting_app import create_waiting_app
from lab_agent.store.agent_lock import AgentLock
from lab_agent.store.database_files import beside_database
from lab_agent.store.engine import sqlite_file
from lab_agent.store.opening import open_store

log = structlog.get_logger(__name__)

_PATIENCE = 1.0
"""Seconds that the first attempt may take before the status page says that the daemon waits."""
_PAUSE = 2.0
_DRAIN_SECONDS = 1.0
_NO_ANSWER = "no answer yet"


@dataclass(slots=True)
class StoreStart:
    """Opens the database for one run of the daemon. `lock` is to be held as long as that works."""

    settings: Settings
    lock: AgentLock
    outages: dict[StoreFault, StoreOutage] = field(default_factory=dict)
    """What was wrong meanwhile, with the beginning of each fault."""
    book: MemoryBook = field(init=False)
    """What channels were told of the database, by this process and by former ones."""
    _current: StoreOutage | None = None
    _failed: asyncio.Event = field(default_factory=asyncio.Event)
    _since: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self.book = MemoryBook.load(_find_book(self.settings))

    async def wait(self, sock: socket.socket, stop: asyncio.Event) -> bool:
        """Wait until the database is open to us; whether it is: False if `stop` came first.

        Raises what waiting cannot mend: `CryptoError` for an invalid key, `StoreError` for an invalid URL.
        """
        opening = asyncio.ensure_future(self._open_in_the_end())
        stopping = asyncio.create_task(stop.wait(), name="stop")
        either: set[asyncio.Future[Any]] = {opening, stopping}
        try:
            ended, _ = await asyncio.wait(either, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if not ended:
                await self._serve_until(either, sock)
            if opening.done():
                await opening
            return opening.done() and not stop.is_set()
        finally:
            opening.cancel()
            stopping.cancel()

    async def _serve_until(self, either: set[asyncio.Future[Any]], sock: socket.socket) -> None:
        """Serve the page that says why it waits, until one of these has ended."""
        app = create_waiting_app(self._find_condition, _now, self.settings.worker.mode)
        serving = asyncio.create_task(web_server.serve(app, sock.dup(), drain=_DRAIN_SECONDS), name="status page")
        beside = (serving, *self._start_telling())
        try:
            await asyncio.wait({*either, serving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    def _start_telling(self) -> tuple[asyncio.Task[None], ...]:
        """Tell by the channels what is wrong, and call nobody who would take it for health."""
        notifier = build_memory_notifier(self.settings.notify, SystemClock(), self._observe, self.book)
        return (
            asyncio.create_task(notifier.run(), name="notifications"),
            asyncio.create_task(self._ping(), name="ping"),
            asyncio.create_task(_keep_watchdog(), name="watchdog"),
        )

    async def _ping(self) -> None:
        ping = DeadManPing(self.settings.notify.ping, lambda: False)
        await self._failed.wait()  # so far it only takes long
        while True:
            await ping.run()
            await asyncio.sleep(self.settings.notify.ping.interval)

    async def _open_in_the_end(self) -> None:
        while True:
            try:
                await self._open()
            except StoreUnreachableError as exc:
                self._note(exc)
            else:
                self._log_end()
                return
            await asyncio.sleep(_PAUSE)

    async def _open(self) -> None:
        """Open it once, and close it again."""
        await asyncio.to_thread(self.lock.acquire, _now())
        store = await asyncio.to_thread(open_store, self.settings.store)
        try:
            await store.verify()
            await store.run(lambda uow: uow.key_values.get("instance"))  # it begins as one that writes, which a lock prevents
        finally:
            await store.close()

    def _note(self, error: StoreUnreachableError) -> None:
        fault = error.fault or StoreFault.UNREACHABLE
        known = self.outages.get(fault)
        self._failed.set()
        self._current = known or StoreOutage(fault, str(error), self._since)
        if known is None:
            self.outages[fault] = self._current
            log.error("the database is out", action="outage_started", outage=str(self._current.key), reason=str(error))
        sd_notify.notify_ready(f"waiting: {self._current.to_condition().title}")

    def _log_end(self) -> None:
        for each in self.outages.values():
            log.info("the database works again", action="outage_ended", outage=str(each.key))

    def _find_condition(self) -> OpenCondition:
        return (self._current or StoreOutage(StoreFault.UNREACHABLE, _NO_ANSWER, self._since)).to_condition()

    def _observe(self) -> tuple[OpenCondition]:
        host = "" if self.settings.store.url.startswith("sqlite") else socket.gethostname()
        return (name_host(self._find_condition(), host),)


def _find_book(settings: Settings) -> Path | None:
    """Where it is kept what was told of the database: in systemd's state folder, else beside the SQLite database.

    Elsewhere there is no folder of ours, and a restart forgets it. Agents that share a folder have different ports.
    """
    file, state = sqlite_file(settings.store.url), os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    folder = Path(state) if state else None if file is None else beside_database(file, "").parent
    return None if folder is None else folder / f"told-of-database-{settings.status.port}.json"


async def _keep_watchdog() -> None:
    """Tell systemd that the process lives, however long the database takes to answer."""
    while True:
        sd_notify.notify_watchdog()
        await asyncio.sleep(1)


def _now() -> datetime:
    return datetime.now(UTC)

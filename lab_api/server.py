"""Run the application: a socket of our own, systemd told, a graceful stop, a reload upon SIGHUP."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Coroutine

from fastapi import FastAPI

from lab_agent import sd_notify, serving
from lab_agent.logs import get_logger
from lab_agent.settings.api import ApiSettings
from lab_api.served import Shelf
from lab_api.upkeep import Upkeep

_log = get_logger(__name__)


def listen(settings: ApiSettings) -> socket.socket:
    """Take the address. Raises `CannotListen` if it cannot be had."""
    return serving.listen(settings.host, settings.port, group="api")


class Server(serving.Server):
    """uvicorn with our signals: SIGTERM and SIGINT drain and end with exit code 0, SIGHUP looks at the catalogue at once."""

    def __init__(self, app: FastAPI, shelf: Shelf, upkeep: Upkeep, settings: ApiSettings) -> None:
        self._shelf = shelf
        self._upkeep = upkeep
        self._side_tasks: set[asyncio.Task[None]] = set()
        super().__init__(app, drain=settings.drain)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and say so."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        loop.add_signal_handler(signal.SIGHUP, self._start, self._reload, "reload")
        self._start(self._upkeep.watch, "upkeep")
        interval = sd_notify.watchdog_interval()
        if interval is not None:
            self._start(lambda: _signs_of_life(interval), "watchdog")
        host, port = sockets[0].getsockname()[:2] if sockets else ("", 0)
        version = self._shelf.served.catalogue.version
        _log.info("the laboratory's API listens", action="api.started", host=host, port=port, version=version)
        sd_notify.ready(f"catalogue {version}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let open requests end, then stop."""
        sd_notify.stopping()
        for task in self._side_tasks:
            task.cancel()
        await super().shutdown(sockets)
        _log.info("the laboratory's API has stopped", action="api.stopped")

    def _start(self, work: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work(), name=name)
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)

    async def _reload(self) -> None:
        sd_notify.reloading(time.monotonic_ns() // 1000)
        await self._upkeep.reload()
        sd_notify.ready(f"catalogue {self._shelf.served.catalogue.version}")


async def _signs_of_life(interval: float) -> None:
    while True:
        sd_notify.watchdog()
        await asyncio.sleep(interval)

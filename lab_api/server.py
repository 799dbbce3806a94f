"""Run the application: a socket of our own, systemd told, a graceful stop, a reload upon SIGHUP."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Mapping

from fastapi import FastAPI

from lab_agent import sd_notify, serving
from lab_agent.logs import get_logger
from lab_agent.settings.api import ApiSettings
from lab_agent.worker.worker import SideTaskDied
from lab_api.served import Shelf
from lab_api.upkeep import Upkeep

_log = get_logger(__name__)

SideTask = Callable[[], Coroutine[None, None, None]]
"""What runs beside the server until it ends."""


def listen(settings: ApiSettings) -> socket.socket:
    """Take the address. Raises `CannotListen` if it cannot be had."""
    return serving.listen(settings.host, settings.port, group="api")


class Server(serving.Server):
    """uvicorn with our signals: SIGTERM and SIGINT drain and end with exit code 0, SIGHUP looks at the catalogue at once."""

    def __init__(
        self, app: FastAPI, shelf: Shelf, upkeep: Upkeep, settings: ApiSettings, beside: Mapping[str, SideTask] | None = None
    ) -> None:
        self._shelf = shelf
        self._upkeep = upkeep
        self._beside = {"upkeep": upkeep.watch, **(beside or {})}
        self._side_tasks: set[asyncio.Task[None]] = set()
        self._died: tuple[str, BaseException] | None = None
        super().__init__(app, drain=settings.drain)

    async def run_until_stopped(self, sock: socket.socket) -> None:
        """Serve until a signal. Raises `SideTaskDied` if a part failed; open requests were answered before."""
        await self.serve([sock])
        if self._died:
            name, error = self._died
            raise SideTaskDied(f"{name} ended by itself; the laboratory's API stops") from error

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and say so."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        loop.add_signal_handler(signal.SIGHUP, self._start, self._reload, "reload")
        for name, work in self._beside.items():
            self._start(work, name)
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

    def _start(self, work: SideTask, name: str) -> None:
        task = asyncio.get_running_loop().create_task(work(), name=name)
        self._side_tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A part that failed stops the server: it would serve an old offer for ever, and nobody would know."""
        self._side_tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        _log.error("a part failed; the laboratory's API stops", action="api.failed", task=task.get_name(), error=error)
        self._died = self._died or (task.get_name(), error)
        self.should_exit = True

    async def _reload(self) -> None:
        sd_notify.reloading(time.monotonic_ns() // 1000)
        await self._upkeep.reload()
        sd_notify.ready(f"catalogue {self._shelf.served.catalogue.version}")


async def _signs_of_life(interval: float) -> None:
    while True:
        sd_notify.watchdog()
        await asyncio.sleep(interval)

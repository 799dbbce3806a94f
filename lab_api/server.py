"""Runs the application: systemd is notified, SIGTERM stops gracefully, SIGHUP reloads the catalogue."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Mapping

from fastapi import FastAPI

from lab_agent.operations.worker import BackgroundTaskFailed
from lab_agent.settings.api import ApiSettings
from lab_agent.shared import sd_notify, web_server
from lab_agent.shared.asyncio_errors import retrieve_error
from lab_agent.shared.logs import get_logger
from lab_api.catalogue_sync import CatalogueSync
from lab_api.response_cache import CurrentCatalogue

_log = get_logger(__name__)

BackgroundTask = Callable[[], Coroutine[None, None, None]]
"""What runs beside the server until it stops."""


def listen(settings: ApiSettings) -> socket.socket:
    """Take the address of the settings. Raises `ListenError`."""
    return web_server.listen(settings.host, settings.port, settings_group="api")


class ApiServer(web_server.UvicornServer):
    """uvicorn with what runs beside it; SIGHUP looks for a new catalogue at once."""

    def __init__(
        self,
        app: FastAPI,
        current_catalogue: CurrentCatalogue,
        sync: CatalogueSync,
        settings: ApiSettings,
        background: Mapping[str, BackgroundTask] | None = None,
    ) -> None:
        self._current_catalogue = current_catalogue
        self._sync = sync
        self._background = {"catalogue sync": sync.run, **(background or {})}
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._failure: tuple[str, BaseException] | None = None
        super().__init__(app, drain=settings.drain)

    async def run_until_stopped(self, sock: socket.socket) -> None:
        """Serve until `stop`. Raises `BackgroundTaskFailed` if a part failed; open requests are answered before."""
        await self.serve([sock])
        if self._failure:
            name, error = self._failure
            raise BackgroundTaskFailed(f"{name} ended by itself; the laboratory's API stops") from error

    def stop(self, signal_name: str) -> None:
        """Let open requests end, then stop; a second Ctrl-C lets them not."""
        self.force_exit = self.should_exit and signal_name == signal.SIGINT.name
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and say so to the log and to systemd."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._start_task, self._reload, "reload")
        for name, work in self._background.items():
            self._start_task(work, name)
        interval = sd_notify.watchdog_interval()
        if interval is not None:
            self._start_task(lambda: _ping_watchdog(interval), "watchdog")
        host, port = sockets[0].getsockname()[:2] if sockets else ("", 0)
        version = self._current_catalogue.responses.catalogue.version
        _log.info("API is listening", action="api.started", host=host, port=port, version=version)
        sd_notify.notify_ready(f"catalogue {version}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let open requests end, then stop."""
        sd_notify.notify_stopping()
        for task in self._background_tasks:
            task.cancel()
        await super().shutdown(sockets)
        await asyncio.gather(*self._background_tasks, return_exceptions=True)
        _log.info("API stopped", action="api.stopped")

    def _start_task(self, work: BackgroundTask, name: str) -> None:
        task = asyncio.get_running_loop().create_task(work(), name=name)
        self._background_tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """A part that failed stops the server; else it would serve an old catalogue for ever, and nobody would notice."""
        self._background_tasks.discard(task)
        if (error := retrieve_error(task)) is None:
            return
        _log.error("background task failed; the API stops", action="api.failed", task=task.get_name(), error=error)
        self._failure = self._failure or (task.get_name(), error)
        self.should_exit = True

    async def _reload(self) -> None:
        sd_notify.notify_reloading(time.monotonic_ns() // 1000)
        await self._sync.reload()
        version = self._current_catalogue.responses.catalogue.version
        sd_notify.notify_ready(f"catalogue {version}")
        _log.info("catalogue looked at again", action="api.reloaded", version=version)


async def _ping_watchdog(interval: float) -> None:
    while True:
        sd_notify.notify_watchdog()
        await asyncio.sleep(interval)

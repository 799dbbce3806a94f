"""`lab-agent run`: the process around the worker: signals, reload, the status page, and one line at start and end."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from lab_agent import bootstrap, logs, sd_notify, web_server
from lab_agent.accounts import Accounts
from lab_agent.bootstrap import Components
from lab_agent.crypto import Passwords
from lab_agent.errors import SettingsError, StoreError
from lab_agent.settings.root import Settings, load_settings
from lab_agent.status.app import create_app
from lab_agent.status.context import AdapterStatus, StatusContext
from lab_agent.worker.worker import BackgroundTask, Worker, loop_task_name

log = structlog.get_logger(__name__)

_RELOADABLE = frozenset({"logging"})
_STATUS_DRAIN_SECONDS = 2.0
"""Seconds that a page may take when everything else has ended."""


async def run(
    settings: Settings,
    config: Path | None = None,
    *,
    replace_components: Callable[[Components], Components] = lambda components: components,
) -> None:
    """Run until SIGTERM or SIGINT. `replace_components` is the test seam.

    Raises `SettingsError` if the status page's address cannot be bound, `StoreError` if the database cannot be opened,
    `CryptoError` if it was written with other keys, and `BackgroundTaskFailed` if a part ended by itself.
    """
    logs.configure(settings.logging)
    # The address is bound before anything else: if that fails, nothing was started.
    with closing(web_server.listen(settings.status.host, settings.status.port, settings_group="status")) as sock:
        await _run(settings, config, replace_components, sock)


async def _run(
    settings: Settings, config: Path | None, replace_components: Callable[[Components], Components], sock: socket.socket
) -> None:
    async with bootstrap.open_components(settings) as opened:
        components = replace_components(opened)
        await components.catalogue_cache.reload()
        components.mapping_cache.reload()
        app = create_app(_build_status_context(components, lambda: _stopped_loops(worker), lambda: worker.outages.is_store_down))
        background_tasks: dict[str, BackgroundTask] = {
            "status page": partial(web_server.serve, app, sock, drain=_STATUS_DRAIN_SECONDS),
            "catalogue": components.catalogue_cache.watch,
        }
        worker = bootstrap.build_worker(components, background_tasks=background_tasks)
        _log_address(sock)
        reload = ReloadHandler(settings, config, components)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        loop.add_signal_handler(signal.SIGHUP, reload.run)
        await worker.run()


def _build_status_context(
    components: Components, stopped_loops: Callable[[], Sequence[str]], cannot_write: Callable[[], bool]
) -> StatusContext:
    """Build what the status page works with."""
    if components.queries is None:
        raise StoreError("The daemon needs a database.")
    adapters = [
        AdapterStatus(name=each.name, kind=each.kind, loaded=each.is_loaded, reason=each.reason)
        for each in components.adapters.statuses
    ]
    return StatusContext(
        settings=components.settings.status,
        store=components.store,
        queries=components.queries,
        accounts=Accounts(components.store, Passwords()),
        cipher=bootstrap.build_cipher(components.settings),
        metrics=components.metrics,
        clock=components.clock,
        adapters=adapters,
        mode=components.settings.worker.mode,
        create_matcher=partial(bootstrap.build_manual_matcher, components.settings, components.catalogue_cache.view),
        missing_tasks=stopped_loops,
        is_store_unwritable=cannot_write,
    )


def _stopped_loops(worker: Worker) -> list[str]:
    """The queues of the worker whose loop does not run."""
    running = {task.get_name() for task in asyncio.all_tasks()}
    return [name for name in worker.loops.loops if loop_task_name(name) not in running]


def _log_address(sock: socket.socket) -> None:
    host, port = sock.getsockname()[:2]
    log.info("the status page listens", action="status_listens", host=host, port=port)


@dataclass(slots=True)
class ReloadHandler:
    """What SIGHUP does: reload catalogue, mapping tables and log settings; the log names other changes that need a restart."""

    settings: Settings
    config: Path | None
    components: Components

    def run(self) -> None:
        """Reload. Settings that cannot be read leave everything as it is, with one log line about it."""
        sd_notify.notify_reloading(time.monotonic_ns() // 1000)
        try:
            new = load_settings(self.config)
        except SettingsError as exc:
            log.error("settings not reloaded", action="reload_rejected", reason=str(exc))  # noqa: TRY400 - a fault in the file needs no traceback
        else:
            self._apply(new)
        self.components.catalogue_cache.request_reload()
        self.components.mapping_cache.reload()
        sd_notify.notify_ready("working")

    def _apply(self, new: Settings) -> None:
        logs.configure(new.logging)
        changed = [name for name in type(new).model_fields if getattr(new, name) != getattr(self.settings, name)]
        waiting = sorted(set(changed) - _RELOADABLE)
        log.info("settings reloaded", action="reloaded", changed=sorted(changed), needs_restart=waiting)

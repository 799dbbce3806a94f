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

from lab_agent import bootstrap, logs, web_server
from lab_agent.accounts import Accounts
from lab_agent.bootstrap import Components
from lab_agent.crypto import Passwords
from lab_agent.errors import SettingsError, StoreError
from lab_agent.settings.root import Settings, load_settings
from lab_agent.status.app import create_app
from lab_agent.status.context import AdapterStatus, StatusContext
from lab_agent.worker.worker import Worker

log = structlog.get_logger(__name__)

_RELOADABLE = frozenset({"logging"})
_STATUS_DRAIN_SECONDS = 2.0
"""Seconds that a page may take when everything else has ended."""


async def run(
    settings: Settings,
    config: Path | None = None,
    *,
    replace_components: Callable[[Components], Components] = lambda parts: parts,
) -> None:
    """Run until SIGTERM or SIGINT. `change` replaces parts (the test seam).

    Raises `SettingsError` where the status page's address cannot be had, `StoreError` where the store cannot be opened,
    `CryptoError` where it was written with other keys, and `SideTaskDied` if a part ended by itself.
    """
    logs.configure(settings.logging)
    # The address is taken before anything else is: where it cannot be had, nothing was begun.
    with closing(web_server.listen(settings.status.host, settings.status.port, settings_group="status")) as sock:
        await _run(settings, config, replace_components, sock)


async def _run(
    settings: Settings, config: Path | None, replace_components: Callable[[Components], Components], sock: socket.socket
) -> None:
    async with bootstrap.open_components(settings) as connected:
        parts = replace_components(connected)
        await parts.catalogue_cache.reload()
        parts.mapping_cache.reload()
        page = create_app(_build_status_context(parts, lambda: _stopped_loops(worker), lambda: worker.outages.is_store_down))
        serve = partial(web_server.serve, page, sock, drain=_STATUS_DRAIN_SECONDS)
        worker = bootstrap.build_worker(parts, background_tasks={"status page": serve, "catalogue": parts.catalogue_cache.watch})
        _log_address(sock)
        reload = ReloadHandler(settings, config, parts)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        loop.add_signal_handler(signal.SIGHUP, reload.run)
        await worker.run()


def _build_status_context(
    components: Components, stopped_loops: Callable[[], Sequence[str]], cannot_write: Callable[[], bool]
) -> StatusContext:
    """What the status page works with."""
    if components.queries is None:
        raise StoreError("The daemon needs a store on a database.")
    shown = [
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
        adapters=shown,
        mode=components.settings.worker.mode,
        create_matcher=partial(bootstrap.build_manual_matcher, components.settings, components.catalogue_cache.view),
        missing_tasks=stopped_loops,
        is_store_unwritable=cannot_write,
    )


def _stopped_loops(worker: Worker) -> list[str]:
    """Loops of the worker that do not run."""
    running = {task.get_name() for task in asyncio.all_tasks()}
    return [name for name in worker.loops.loops if f"group {name}" not in running]


def _log_address(sock: socket.socket) -> None:
    host, port = sock.getsockname()[:2]
    log.info("the status page listens", action="status_listens", host=host, port=port)


@dataclass(slots=True)
class ReloadHandler:
    """What SIGHUP does: catalogue, mapping tables and log settings are read anew; what else changed is said to need a restart."""

    settings: Settings
    config: Path | None
    components: Components

    def run(self) -> None:
        """Reload. What cannot be read leaves everything as it is, with one line about it."""
        web_server.notify_reloading(time.monotonic_ns() // 1000)
        try:
            new = load_settings(self.config)
        except SettingsError as exc:
            log.error("settings not reloaded", action="reload_rejected", reason=str(exc))  # noqa: TRY400 - an error of the data
        else:
            self._apply(new)
        self.components.catalogue_cache.request_reload()
        self.components.mapping_cache.reload()
        web_server.notify_ready("working")

    def _apply(self, new: Settings) -> None:
        logs.configure(new.logging)
        changed = [name for name in type(new).model_fields if getattr(new, name) != getattr(self.settings, name)]
        waiting = sorted(set(changed) - _RELOADABLE)
        log.info("settings reloaded", action="reloaded", changed=sorted(changed), needs_restart=waiting)

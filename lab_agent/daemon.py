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

from lab_agent import bootstrap, logs, sd_notify, serving
from lab_agent.accounts import Accounts
from lab_agent.bootstrap import Parts
from lab_agent.crypto import Passwords
from lab_agent.errors import SettingsError, StoreError
from lab_agent.settings.root import Settings, load_settings
from lab_agent.status.app import create_app
from lab_agent.status.house import AdapterShown, House
from lab_agent.worker.worker import Worker

log = structlog.get_logger(__name__)

_RELOADABLE = frozenset({"logging"})
_DRAIN_PAGES = 2.0
"""Seconds that a page may take when everything else has ended."""


async def run(settings: Settings, config: Path | None = None, *, change: Callable[[Parts], Parts] = lambda parts: parts) -> None:
    """Run until SIGTERM or SIGINT. `change` replaces parts (the test seam).

    Raises `SettingsError` where the status page's address cannot be had, `StoreError` where the store cannot be opened,
    `CryptoError` where it was written with other keys, and `SideTaskDied` if a part ended by itself.
    """
    logs.configure(settings.logging)
    # The address is taken before anything else is: where it cannot be had, nothing was begun.
    with closing(serving.listen(settings.status.host, settings.status.port, group="status")) as sock:
        await _run(settings, config, change, sock)


async def _run(settings: Settings, config: Path | None, change: Callable[[Parts], Parts], sock: socket.socket) -> None:
    async with bootstrap.connect(settings) as connected:
        parts = change(connected)
        await parts.catalogues.reload()
        parts.mappings.reload()
        page = create_app(_house(parts, lambda: _missing(worker), lambda: worker.outages.store_is_away))
        serve = partial(serving.serve, page, sock, drain=_DRAIN_PAGES)
        worker = bootstrap.make_worker(parts, side_tasks={"status page": serve, "catalogue": parts.catalogues.watch})
        _say_where(sock)
        reload = Reload(settings, config, parts)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        loop.add_signal_handler(signal.SIGHUP, reload.run)
        await worker.run()


def _house(parts: Parts, missing: Callable[[], Sequence[str]], cannot_write: Callable[[], bool]) -> House:
    """What the status page works with."""
    if parts.views is None:
        raise StoreError("The daemon needs a store on a database.")
    shown = [
        AdapterShown(name=each.name, kind=each.kind, loaded=each.loaded, reason=each.reason) for each in parts.adapters.statuses
    ]
    return House(
        settings=parts.settings.status,
        store=parts.store,
        views=parts.views,
        accounts=Accounts(parts.store, Passwords()),
        cipher=bootstrap.cipher(parts.settings),
        metrics=parts.metrics,
        clock=parts.clock,
        adapters=shown,
        mode=parts.settings.worker.mode,
        matcher=partial(bootstrap.desk_matcher, parts.settings, parts.catalogues.view),
        missing=missing,
        cannot_write=cannot_write,
    )


def _missing(worker: Worker) -> list[str]:
    """Loops of the worker that do not run."""
    running = {task.get_name() for task in asyncio.all_tasks()}
    return [name for name in worker.groups.members if f"group {name}" not in running]


def _say_where(sock: socket.socket) -> None:
    host, port = sock.getsockname()[:2]
    log.info("the status page listens", action="status_listens", host=host, port=port)


@dataclass(slots=True)
class Reload:
    """What SIGHUP does: catalogue, mapping tables and log settings are read anew; what else changed is said to need a restart."""

    settings: Settings
    config: Path | None
    parts: Parts

    def run(self) -> None:
        """Reload. What cannot be read leaves everything as it is, with one line about it."""
        sd_notify.reloading(time.monotonic_ns() // 1000)
        try:
            new = load_settings(self.config)
        except SettingsError as exc:
            log.error("settings not reloaded", action="reload_refused", reason=str(exc))  # noqa: TRY400 - an error of the data
        else:
            self._apply(new)
        self.parts.catalogues.ask()
        self.parts.mappings.reload()
        sd_notify.ready("working")

    def _apply(self, new: Settings) -> None:
        logs.configure(new.logging)
        changed = [name for name in type(new).model_fields if getattr(new, name) != getattr(self.settings, name)]
        waiting = sorted(set(changed) - _RELOADABLE)
        log.info("settings reloaded", action="reloaded", changed=sorted(changed), needs_restart=waiting)

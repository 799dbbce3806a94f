"""`lab-agent run`: the process around the worker: signals, reload, the status page, and one line at start and end."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from lab_agent import bootstrap, logs, sd_notify
from lab_agent.bootstrap import Parts
from lab_agent.errors import SettingsError
from lab_agent.settings import Settings, load_settings

log = structlog.get_logger(__name__)

_RELOADABLE = frozenset({"logging"})


async def run(settings: Settings, config: Path | None = None, *, change: Callable[[Parts], Parts] = lambda parts: parts) -> None:
    """Run until SIGTERM or SIGINT. `change` replaces parts (the test seam).

    Raises `SettingsError` where the status page's address cannot be had, `StoreError` where the store cannot be opened, and
    `SideTaskDied` if a part ended by itself.
    """
    logs.configure(settings.logging)
    async with bootstrap.connect(settings) as connected:
        parts = change(connected)
        parts.catalogues.reload()
        worker = bootstrap.make_worker(parts)
        reload = Reload(settings, config, parts)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        loop.add_signal_handler(signal.SIGHUP, reload.run)
        await worker.run()


@dataclass(slots=True)
class Reload:
    """What SIGHUP does: the catalogue and the log settings are read anew; a change of anything else is said to need a restart."""

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
        self.parts.catalogues.reload()
        sd_notify.ready("working")

    def _apply(self, new: Settings) -> None:
        logs.configure(new.logging)
        changed = [name for name in type(new).model_fields if getattr(new, name) != getattr(self.settings, name)]
        waiting = sorted(set(changed) - _RELOADABLE)
        log.info("settings reloaded", action="reloaded", changed=sorted(changed), needs_restart=waiting)

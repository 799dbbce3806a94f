"""`lab-agent run`: the worker and its status page, until SIGTERM."""

from __future__ import annotations

import asyncio
import signal

from lab_agent.cli.context import ConfigOption
from lab_agent.settings.root import load_settings


def run(config: ConfigOption = None) -> None:
    """Fetch orders, submit them to the LIS and deliver results, until SIGTERM. SIGHUP reloads catalogue and maps."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the daemon handles it
    from lab_agent import daemon  # noqa: PLC0415 - the web server is slow to import, and no other command needs it

    asyncio.run(daemon.run(load_settings(config), config))

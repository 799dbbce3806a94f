"""`lab-agent run`: the worker and its status page, until SIGTERM."""

from __future__ import annotations

import asyncio
import signal

from lab_agent.cli.context import ConfigOption
from lab_agent.settings.root import load_settings


def run(config: ConfigOption = None) -> None:
    """Poll for orders, hand them over, deliver results; until SIGTERM. SIGHUP reads the catalogue again."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the daemon listens for it: the settings are being read just now
    from lab_agent import daemon  # noqa: PLC0415 - the web server takes a while to import, and no other command needs it

    asyncio.run(daemon.run(load_settings(config), config))

"""`lab-agent run`: the worker and its status page, until SIGTERM."""

from __future__ import annotations

import asyncio

from lab_agent import daemon
from lab_agent.cli.options import Config
from lab_agent.settings.root import load_settings


def run(config: Config = None) -> None:
    """Poll for orders, hand them over, deliver results; until SIGTERM. SIGHUP reads the catalogue again."""
    asyncio.run(daemon.run(load_settings(config), config))

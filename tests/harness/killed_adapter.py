"""The agent in small over one adapter, as a process that goes on until it is killed; its journal is that of `adapter_journal`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab_agent.lis.folder import FolderAdapter
from lab_agent.lis.http import HttpAdapter
from lab_agent.lis.sql import SqlAdapter
from lab_agent.lis.testing import make_order
from lab_agent.shared.errors import LabAgentError, LisOutcomeUnknown, LisUnavailable
from tests.harness import forked_programs
from tests.harness.adapter_journal import Journal

ADAPTERS: dict[str, Any] = {"folder": FolderAdapter, "http": HttpAdapter, "sql": SqlAdapter}


def start(kind: str, settings: Mapping[str, Any], journal: Path, orders: int) -> forked_programs.ForkedProgram:
    """Start it; `orders` is how many it has to hand over."""
    forked_programs.prepare(__name__)
    task = {"kind": kind, "settings": settings, "journal": str(journal), "orders": orders}
    return forked_programs.start(__name__, json.dumps(task))


def main() -> None:
    asyncio.run(_work(json.loads(sys.argv[1])))


async def _work(task: dict[str, Any]) -> None:
    kind = ADAPTERS[task["kind"]]
    adapter = kind(kind.Settings.model_validate(task["settings"]), task["kind"])
    journal, is_started = Journal(Path(task["journal"])), False
    while not is_started:
        with suppress(LisUnavailable):
            await adapter.start(journal)
            is_started = True
        await asyncio.sleep(0.002)
    while True:
        for seed in range(task["orders"]):
            with suppress(LisUnavailable, LisOutcomeUnknown):
                await journal.hand_over(adapter, make_order(seed))
        with suppress(LabAgentError):
            await adapter.collect()
        await asyncio.sleep(0.002)

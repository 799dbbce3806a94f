"""The hl7v2 adapter with the inbox of the store, in a process of its own: `python -m benchmarks.hl7_agent SETTINGS PORT`.

Results are received, stored and acknowledged; orders go to the laboratory system at `PORT`. No worker runs beside it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from benchmarks.child_process import Json, announce, cpu_seconds, serve_commands
from lab_agent.lis.guard import GuardedInbox
from lab_agent.lis.hl7v2 import Hl7v2Adapter, Hl7v2Settings
from lab_agent.lis.testing import make_order
from lab_agent.result_bootstrap import SystemClock
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.settings.root import Settings, load_settings
from lab_agent.shared import logs
from lab_agent.store.opening import open_store


async def _run(settings: Settings, folder: Path, order_port: int) -> None:
    logs.configure(settings.logging)
    store = open_store(settings.store)
    adapter = Hl7v2Adapter(
        Hl7v2Settings.model_validate(
            {
                "orders": {"role": "client", "port": order_port},
                "results": {"role": "server", "port": 0},
                "folder": folder / "hl7v2",
                "duplicates": "msh10",
            }
        ),
        "hl7v2",
    )

    async def run_command(command: Json) -> Json:
        before = cpu_seconds()
        for seed in range(command.get("submit", 0)):
            await adapter.submit(make_order(command["first"] + seed))
        return {"cpu": cpu_seconds() - before, "total": cpu_seconds()}

    await adapter.start(GuardedInbox(StoreInbox(store, SystemClock(), "hl7v2"), "hl7v2"))
    try:
        announce({"port": adapter.ports[1]})
        await serve_commands(run_command)
    finally:
        await adapter.stop()
        await store.close()


if __name__ == "__main__":
    settings_file = Path(sys.argv[1])
    asyncio.run(_run(load_settings(settings_file), settings_file.parent, int(sys.argv[2])))

"""The daemon's parts in a process that can be told to poll and asked what it has cost: `python -m benchmarks.agent SETTINGS`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from benchmarks.child_process import announce, cpu_seconds, peak_memory, serve_commands
from benchmarks.statement_counts import StatementCounts
from lab_agent import bootstrap, logs
from lab_agent.settings.root import Settings, load_settings
from lab_agent.worker.worker import Worker


async def run(settings: Settings) -> None:
    """Run the worker until the input ends. Commands: `now` runs a scheduled task, `cpu` and `statements` say what was used."""
    logs.configure(settings.logging)
    counts = StatementCounts()
    async with bootstrap.open_components(settings) as components:
        await components.catalogue_cache.reload()
        components.mapping_cache.reload()

        async def serve() -> None:
            announce({"ready": True})
            await serve_commands(run_command)
            worker.stop()
            await asyncio.Event().wait()  # until the worker ends this task

        worker = bootstrap.build_worker(
            components, background_tasks={"catalogue": components.catalogue_cache.watch, "commands": serve}
        )

        async def run_command(command: dict[str, Any]) -> dict[str, Any]:
            return _run_command(worker, counts, command)

        await worker.run()


def _run_command(worker: Worker, counts: StatementCounts, command: dict[str, Any]) -> dict[str, Any]:
    match command:
        case {"now": str(task)}:
            worker.scheduler.postpone(task, 0)
        case {"statements": "count"}:
            counts.start()
        case {"statements": "take"}:
            return counts.take()
    return {"cpu": cpu_seconds(), "peak_memory": peak_memory()}


if __name__ == "__main__":
    asyncio.run(run(load_settings(Path(sys.argv[1]))))

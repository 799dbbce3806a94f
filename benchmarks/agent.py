"""The daemon's parts in a process that can be told what to do and asked what it cost: `python -m benchmarks.agent SETTINGS`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.child_process import Json, announce, cpu_seconds, peak_memory, serve_commands
from benchmarks.loop_watch import LoopWatch
from benchmarks.profiler import Profiler
from benchmarks.statement_counts import StatementCounts
from lab_agent import bootstrap, worker_bootstrap
from lab_agent.bootstrap import Components
from lab_agent.operations.worker import Worker
from lab_agent.settings.root import Settings, load_settings
from lab_agent.shared import logs

if TYPE_CHECKING:
    from benchmarks.overview import StatusPage

_SETTLE = 0.05
"""Seconds after each poll for what it has woken."""


async def run(settings: Settings) -> None:
    """Run the worker until the input ends."""
    logs.configure(settings.logging)
    async with bootstrap.open_components(settings) as components:
        await components.catalogue_cache.reload()
        components.mapping_cache.reload()

        async def serve() -> None:
            announce({"ready": True})
            await serve_commands(_Commands(components, worker).run)
            worker.stop()
            await asyncio.Event().wait()  # until the worker ends this task

        worker = worker_bootstrap.build_worker(
            components, background_tasks={"catalogue": components.catalogue_cache.watch, "commands": serve}
        )
        await worker.run()


class _Commands:
    """What the process can be told; each answer has the CPU so far and the peak of memory."""

    def __init__(self, components: Components, worker: Worker) -> None:
        self._components = components
        self._worker = worker
        self._counts = StatementCounts()
        self._watch = LoopWatch()
        self._profiler = Profiler()
        self._page: StatusPage | None = None
        self._servers: list[asyncio.Task[None]] = []

    async def run(self, command: Json) -> Json:
        """Run one command."""
        answer: Json = {}
        match command:
            case {"now": str(task)}:
                self._worker.scheduler.postpone(task, 0)
            case {"statements": "count"}:
                self._counts.start()
            case {"statements": "take"}:
                answer = dict(self._counts.take())
            case {"loop": "watch"}:
                self._watch.start()
            case {"loop": "take"}:
                answer = {"blocked": self._watch.take()}
            case {"profile": "start"}:
                self._profiler.start()
            case {"profile": "stop"}:
                answer = {"profile": self._profiler.stop()}
            case {"poll": int(times)}:
                await self._poll(times)
            case {"overview": int(times)}:
                await self._show_overview(times)
            case {"pages": "serve"}:
                answer = {"pages": await self._serve_pages()}
        return {**answer, "cpu": cpu_seconds(), "peak_memory": peak_memory()}

    async def _poll(self, times: int) -> None:
        _, poll = self._worker.scheduled_tasks["poll"]
        for _ in range(times):
            await poll()
            await asyncio.sleep(_SETTLE)

    async def _show_overview(self, times: int) -> None:
        page = await self._open_page()
        for _ in range(times):
            await page.show("/")

    async def _serve_pages(self) -> Json:
        """Serve the status page: its port, that of its last page from constants, and the cookie of a session."""
        page = await self._open_page()
        self._servers, ports = page.serve()
        return {"port": ports[0], "constant": ports[1], "cookie": page.cookie}

    async def _open_page(self) -> StatusPage:
        from benchmarks.overview import open_status_page  # noqa: PLC0415 - the worker alone needs no page

        self._page = self._page or await open_status_page(self._components)
        return self._page


if __name__ == "__main__":
    asyncio.run(run(load_settings(Path(sys.argv[1]))))

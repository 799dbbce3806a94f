"""A folder adapter on two folders of its own, with an inbox in memory."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.lab_messages import LabMessage, LabReport
from lab_agent.lis.serialization import dump_message
from lab_agent.lis.testing import MemoryInbox, make_order, make_report
from tests.harness.clock import DEADLINE

REPORT = make_report(1, make_order(1))


class Place:
    def __init__(self, folder: Path) -> None:
        self.orders, self.results = folder / "orders", folder / "results"
        for each in (self.orders, self.results):
            each.mkdir()
        self.inbox = MemoryInbox()
        self.adapters: list[FolderAdapter] = []

    def settings(self, **more: Any) -> FolderSettings:
        return FolderSettings.model_validate({"orders": self.orders, "results": self.results, "settle": 0, **more})

    async def adapter(self, **settings: Any) -> FolderAdapter:
        """A started adapter; each is one more process on the same folders."""
        adapter = FolderAdapter(self.settings(**settings), "folder")
        await adapter.start(self.inbox)
        self.adapters.append(adapter)
        return adapter

    def put(self, name: str, content: LabMessage | bytes = REPORT, *, age: float = 0.0) -> Path:
        path = self.results / name
        path.write_bytes(content if isinstance(content, bytes) else dump_message(content))
        moment = time.time() - age
        os.utime(path, (moment, moment))
        return path

    def names(self, folder: str = "") -> list[str]:
        """The files of a folder of results, by default of that itself."""
        return sorted(path.name for path in (self.results / folder).iterdir() if path.is_file())

    def reasons(self) -> str:
        return "\n".join(path.read_text("utf-8") for path in (self.results / "failed").glob("*.reason.txt"))

    @property
    def report(self) -> LabReport:
        """The one report that was taken."""
        (report,) = self.inbox.contents
        assert isinstance(report, LabReport)
        return report

    def report_ids(self) -> list[str]:
        return [one.report_id for one in self.inbox.contents if isinstance(one, LabReport)]

    async def collect_until(self, reached: Callable[[], object]) -> None:
        end = time.monotonic() + DEADLINE
        while not reached():
            assert time.monotonic() < end
            await self.adapters[-1].collect()
            await asyncio.sleep(0.005)

    async def collect_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        await self.collect_until(lambda: time.monotonic() >= end)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    yield made
    for adapter in made.adapters:
        await adapter.stop()

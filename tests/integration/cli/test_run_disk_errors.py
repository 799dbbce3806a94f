"""`lab-agent run` whose disks report errors: nothing is acknowledged that is not kept, it is told, and all goes on by itself."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab_agent.conditions.ids import ConditionId
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.daemon import running, wait_told
from tests.harness.failing_disk import failing_calls
from tests.harness.small_disk import fill, mounted_disk
from tests.integration.cli.test_run_store_faults import check_ends

pytestmark = pytest.mark.slow


async def test_error_of_the_disk_is_told_and_goes_on_when_it_is_over(lab: Any) -> None:
    files = tuple(lab.folder / name for name in ("lab.db", "lab.db-wal"))
    async with running(lab) as daemon:
        await wait_until(daemon.is_ready)
        with failing_calls(daemon.process.pid, files):
            await wait_told(daemon, ConditionId.STORE_UNREACHABLE)
            assert "its disk reports an error" in daemon.log
            assert (await daemon.client.get("/healthz")).status_code == 200
            assert daemon.count("action=outage_started outage=store.unreachable") == 1
        await check_ends(daemon, ConditionId.STORE_UNREACHABLE)
    assert await asyncio.to_thread(lab.write, lambda uow: uow.key_values.get("instance")) is not None


@pytest.fixture
def full_disk_for_the_mark(lab: Any) -> Iterator[Path]:
    folder: Path = lab.folder / "marks"
    folder.mkdir()
    with mounted_disk(folder) as disk:
        lab.config.write_text(lab.config.read_text().replace("[store]\n", f'[store]\nmark = "{disk}/mark"\n'))
        fill(disk)
        yield disk


async def test_full_disk_of_the_mark_is_told_and_stops_nothing(lab: Any, full_disk_for_the_mark: Path) -> None:
    async with running(lab) as daemon:
        await wait_until(daemon.is_ready)
        await wait_until(lambda: daemon.count("action=store_mark_failed") >= 1, "it is told that there is no mark")
        assert daemon.process.poll() is None
    assert not await asyncio.to_thread((full_disk_for_the_mark / "mark").exists)


def start_without_log(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a process whose output is on a disk that is always full."""
    with Path("/dev/full").open("wb") as full:
        return subprocess.Popen(command, cwd=folder, stdout=full, stderr=full, env=environment)


async def test_agent_works_on_while_its_log_cannot_be_written(lab: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from lab_agent.cli import main; main()", "run", "--config", str(lab.config)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "LAB_AGENT_STATUS__PORT": str(port)}
    process = await asyncio.to_thread(start_without_log, command, lab.folder, environment)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE) as client:

            async def is_ready() -> bool:
                assert process.poll() is None, "it has ended"
                try:
                    return (await client.get("/readyz")).status_code == 200
                except httpx.TransportError:
                    return False

            await wait_until(is_ready, "it works")
    finally:
        process.terminate()
    assert await asyncio.to_thread(process.wait, DEADLINE) == 0

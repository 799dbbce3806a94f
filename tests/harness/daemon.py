"""`lab-agent run` as a process of its own, asked over HTTP and read by its log."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.conditions.table import CONDITIONS
from tests.harness import forked_programs
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.forked_programs import ForkedProgram

NO_KEEP_ALIVE = httpx.Limits(max_keepalive_connections=0)
"""For clients of a program that restarts, or closes an idle connection at the moment of the next request."""


@dataclass
class Daemon:
    process: ForkedProgram
    log_file: Path
    client: httpx.AsyncClient

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def count(self, text: str) -> int:
        return self.log.count(text)

    async def readyz(self) -> tuple[int, dict[str, Any]]:
        answer = await self.client.get("/readyz")
        return answer.status_code, answer.json()

    async def is_ready(self) -> bool:
        """Whether /readyz says so. A connection that ends as the page passes from one server to the next says nothing yet."""
        try:
            return (await self.readyz())[0] == 200
        except (httpx.RemoteProtocolError, httpx.ReadError):
            return False

    async def page(self) -> str:
        answer = await self.client.get("/sign-in" if await self.is_ready() else "/")
        return answer.text


@asynccontextmanager
async def running(lab: Any, name: str = "agent") -> AsyncIterator[Daemon]:
    log = lab.folder / f"{name}.log"
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    with log.open("wb") as file:
        process = forked_programs.start(
            "lab_agent.cli", "run", "--config", str(lab.config), cwd=lab.folder, stdout=file, stderr=file, env=env
        )
    try:
        await wait_until(lambda: process.poll() is not None or "status_listens" in log.read_text(), "the status page")
        assert process.poll() is None, log.read_text()
        found = re.search(r"action=status_listens.*?port=(\d+)", log.read_text())
        assert found is not None
        address = f"http://127.0.0.1:{found[1]}"
        async with httpx.AsyncClient(base_url=address, timeout=DEADLINE, limits=NO_KEEP_ALIVE) as client:
            yield Daemon(process, log, client)
    finally:
        process.terminate()
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # it logs what its threads were at
            process.wait(DEADLINE)
            pytest.fail(f"the daemon does not end after SIGTERM:\n{log.read_text()}")


def title(condition: ConditionId) -> str:
    return CONDITIONS[condition].title


async def is_told(daemon: Daemon, condition: ConditionId) -> bool:
    status, answer = await daemon.readyz()
    return status == 503 and answer["reason"] == condition.value


async def wait_told(daemon: Daemon, condition: ConditionId, timeout: float = DEADLINE) -> None:
    await wait_until(lambda: is_told(daemon, condition), f"{condition} in /readyz", timeout)


def alerts(lab: Any) -> list[tuple[str, bool]]:
    with closing(sqlite3.connect(lab.folder / "lab.db")) as connection:
        return [(name, until is not None) for name, until in connection.execute("SELECT condition, closed_at FROM alerts")]

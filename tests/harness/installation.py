"""A whole house of real processes over loopback: the service, the laboratory's API, and agents that may be killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from lab_sandbox.demo.lis.transport_files import write_atomically
from lab_sandbox.demo.processes import ProcessGroup, Program, RunningProgram, program_path
from lab_sandbox.demo.workspace import Workspace
from lab_sandbox.partner.client import PartnerClient
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.order_bundle import LabelSequence

CRASHING_AGENT = Path(__file__).with_name("crashing_agent.py")
DEADLINE = 60.0


async def wait_until(condition: Callable[[], Awaitable[bool]], description: str, timeout: float = DEADLINE) -> None:
    """Look until it is so; fail with `what` at the deadline."""
    deadline = time.monotonic() + timeout
    while not await condition():
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {description}"
        await asyncio.sleep(0.05)


SHORTENED = {
    "lease = 30": "lease = 4",
    "poll_longest = 2": "poll_longest = 0.5",
    "call_timeout = 10": "call_timeout = 3",
    "\ntimeout = 10": "\ntimeout = 3",
    "read_timeout = 8": "read_timeout = 3",
}


def shorten_timeouts(settings: Path) -> None:
    """Shorten leases and time-outs, so that what a dead agent left is taken up soon."""
    text = settings.read_text()
    for slow, quick in SHORTENED.items():
        assert slow in text, f"{settings.name} has no {slow!r} any more"
        text = text.replace(slow, quick)
    settings.write_text(text)


@dataclass
class AgentProcess:
    """A running `lab-agent run`."""

    process: asyncio.subprocess.Process
    log: Path
    crash_point: str | None

    async def wait_killed(self, timeout: float = DEADLINE) -> None:
        """Wait until its crash point has killed it."""
        try:
            await asyncio.wait_for(self.process.wait(), timeout)
        except TimeoutError:
            passed = (self.log.parents[1] / "config" / "crash_points.log").read_text().splitlines()
            raise AssertionError(f"never met {self.crash_point!r}; passed {sorted(set(passed))}") from None
        assert self.process.returncode == -signal.SIGKILL, f"ended by itself:\n{self.log.read_text()[-4000:]}"

    async def stop(self) -> int:
        """SIGTERM, and its exit code."""
        if self.process.returncode is None:
            self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), 30)


@dataclass
class FolderLis:
    """A laboratory system that takes every order file at once and counts how often each order came."""

    orders: Path
    results: Path
    received: list[Json] = field(default_factory=list)
    _numbers: Any = field(default_factory=itertools.count)

    async def run(self) -> None:
        while True:
            for file in sorted(self.orders.glob("*.json")):
                away = self.orders.parent / f"taken-{next(self._numbers)}.json"
                file.rename(away)
                order = json.loads(away.read_bytes())
                self.received.append(order)
                self.report(order)
            await asyncio.sleep(0.02)

    def report(self, order: Json) -> None:
        """One final report with one observation and one document for each line."""
        for line in order["lines"]:
            now = datetime.now().astimezone().isoformat()
            body = {
                "report_id": f"rep-{line['key']}",
                "version": 1,
                "status": "final",
                "order": order["key"],
                "lines": [line["key"]],
                "effective": now,
                "issued": now,
                "observations": [
                    {
                        "id": "x",
                        "code": {"system": "http://loinc.org", "code": "718-7"},
                        "value_quantity": {"value": "1.20", "unit": "g/L"},
                    }
                ],
                "documents": [{"content": "JVBERi0xLjQKJSVFT0YK", "content_type": "application/pdf"}],
            }
            write_atomically(self.results, f"{line['key']}.json", json.dumps(body).encode())

    def received_counts(self) -> dict[str, int]:
        counted: dict[str, int] = {}
        for order in self.received:
            counted[order["key"]] = counted.get(order["key"], 0) + 1
        return counted


class ProcessHarness:
    """The processes of one test, in one folder."""

    def __init__(self, workplace: Workspace, programs: ProcessGroup, client: PartnerClient, service: RunningProgram) -> None:
        self.workplace = workplace
        self.lis = FolderLis(workplace.orders, workplace.results)
        self.use_client(client)
        self._programs = programs
        self._service = service
        self._agents: list[AgentProcess] = []

    def use_client(self, client: PartnerClient) -> None:
        """Let the clinic work with this client from now on."""
        self.client = client
        self.clinic = Clinic(client, LabelSequence(first=7_000_001), lambda: datetime.now().astimezone(), "acceptance")

    async def stop_service(self) -> None:
        """Switch the exchange service off."""
        await self._programs.stop(self._service)

    async def start_service(self) -> None:
        """Switch it on again, empty, at its old address."""
        self._service = await self._programs.start(self._service.program)
        await self._programs.wait_until_ready(self._service, DEADLINE)

    def log_lines(self, text: str) -> list[str]:
        """Lines of the agents' log that hold `text`."""
        log = self.workplace.logs / "agent.log"
        return [line for line in log.read_text().splitlines() if text in line] if log.exists() else []

    def poll_count(self) -> int:
        """How often the agents have polled, or tried to."""
        log = self.workplace.agent_settings.with_name("crash_points.log")
        return log.read_text().count("before requested_order_tasks") if log.exists() else 0

    async def run_command(self, *words: str) -> None:
        await self._programs.run_to_end(Program(" ".join(words[:2]), (program_path(words[0]), *words[1:])), DEADLINE)

    async def start_agent(self, crash_point: str | None = None, nth: int = 1, **environment: str) -> AgentProcess:
        """Start an agent, with a trap at a place if one is named."""
        trap = [crash_point, str(nth)] if crash_point else []
        log = self.workplace.logs / "agent.log"
        with log.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(CRASHING_AGENT),
                str(self.workplace.agent_settings),
                *trap,
                cwd=self.workplace.folder,
                stdout=file,
                stderr=file,
                env={**os.environ, **environment},
            )
        agent = AgentProcess(process, log, crash_point)
        self._agents.append(agent)
        return agent

    async def search(self, kind: str, criteria: dict[str, str] | None = None) -> list[Json]:
        return await self.client.search(kind, criteria or {})

    async def close(self) -> None:
        for agent in self._agents:
            if agent.process.returncode is None:
                agent.process.kill()
                await agent.process.wait()

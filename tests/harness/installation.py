"""A whole installation of real processes over loopback: the service, the laboratory's API, and agents that may be killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from lab_sandbox.demo.lis.transport_files import write_atomically
from lab_sandbox.demo.processes import ProcessGroup, Program, RunningProgram, program_path
from lab_sandbox.demo.runner import build_account
from lab_sandbox.demo.workspace import STAGING_DDL_FILE, Workspace
from lab_sandbox.partner.basket import Basket, choose_item
from lab_sandbox.partner.client import PartnerClient, open_partner_client
from lab_sandbox.partner.clinic import Clinic, PlacedOrder
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.order_bundle import LabelSequence
from lab_sandbox.partner.order_generator import OrderPlan
from lab_sandbox.partner.random_source import seeded_random
from lab_sandbox.partner.result_reader import read_order_status, read_reports
from tests.harness import forked_programs
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.crashing_agent import CRASH_LOG
from tests.harness.documents import PDF, final_report
from tests.harness.forked_programs import ForkedProgram
from tests.harness.orders import UNKNOWN_ITEM
from tests.harness.proof import keep_failed

REPLACED_ITEM = "003.002"
SHORTENED = {
    "lease = 30": "lease = 4",
    "poll_longest = 2": "poll_longest = 0.5",
    "probe_longest = 2": "probe_longest = 0.5",
    "call_timeout = 10": "call_timeout = 3",
    "\ntimeout = 10": "\ntimeout = 3",
    "read_timeout = 8": "read_timeout = 3",
}


@dataclass
class AgentProcess:
    process: ForkedProgram
    log: Path
    crash_point: str | None

    async def wait_killed(self, timeout: float = DEADLINE) -> None:
        try:
            await asyncio.to_thread(self.process.wait, timeout)
        except subprocess.TimeoutExpired:
            reached = (self.log.parents[1] / "config" / CRASH_LOG).read_text().splitlines()
            raise AssertionError(f"never reached {self.crash_point!r}, only {sorted(set(reached))}") from None
        assert self.process.returncode == -signal.SIGKILL, f"ended by itself:\n{self.log.read_text()[-4000:]}"

    async def stop(self) -> int:
        self.process.terminate()
        return await asyncio.to_thread(self.process.wait, DEADLINE)


@dataclass
class FolderLis:
    """A laboratory system that takes every order file at once and remembers how often each order came."""

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
            documents = [{"content": b64encode(PDF).decode(), "content_type": "application/pdf"}]
            now = datetime.now().astimezone()
            body = final_report(f"rep-{line['key']}", order["key"], line["key"], now, documents=documents)
            write_atomically(self.results, f"{line['key']}.json", json.dumps(body).encode())

    def received_counts(self) -> dict[str, int]:
        return Counter(order["key"] for order in self.received)


class ProcessHarness:
    def __init__(self, workspace: Workspace, programs: ProcessGroup, client: PartnerClient, service: RunningProgram) -> None:
        self.workspace = workspace
        self.lis = FolderLis(workspace.orders, workspace.results)
        self.use_client(client)
        self._programs = programs
        self._service = service
        self._agents: list[AgentProcess] = []

    def use_client(self, client: PartnerClient) -> None:
        self.client = client
        self.clinic = Clinic(client, LabelSequence(first=7_000_001), lambda: datetime.now().astimezone(), "acceptance")

    async def stop_service(self) -> None:
        await self._programs.stop(self._service)

    async def start_service(self) -> None:
        """Switch it on again, empty, at its old address."""
        self._service = await self._programs.start(self._service.program)
        await self._programs.wait_until_ready(self._service, DEADLINE)

    async def start_program(self, program: Program) -> None:
        await self._programs.wait_until_ready(await self._programs.start(program), DEADLINE)

    def log_lines(self, text: str) -> list[str]:
        log = self.workspace.logs / "agent.log"
        return [line for line in log.read_text().splitlines() if text in line] if log.exists() else []

    async def run_command(self, *words: str) -> None:
        await self._programs.run_to_end(Program(" ".join(words[:2]), (program_path(words[0]), *words[1:])), DEADLINE)

    async def start_agent(self, crash_point: str | None = None, nth: int = 1, **environment: str) -> AgentProcess:
        arguments = [crash_point, str(nth)] if crash_point else []
        log = self.workspace.logs / "agent.log"
        with log.open("ab") as file:
            process = forked_programs.start(
                "tests.harness.crashing_agent",
                str(self.workspace.agent_settings),
                *arguments,
                cwd=self.workspace.folder,
                stdout=file,
                stderr=file,
                env={**os.environ, **environment},
            )
        agent = AgentProcess(process, log, crash_point)
        self._agents.append(agent)
        return agent

    async def place_order(self, seed: str) -> PlacedOrder:
        """Place an order of three lines, one of which is for an unknown item."""
        items_by_id = {item["id"]: item for item in await self.client.nomenclature()}
        random = seeded_random(seed)
        codes = ("001.001", "002.001", REPLACED_ITEM)
        items = tuple(choose_item(items_by_id[code], random, option=items_by_id[code]["specimen"][0]) for code in codes)
        plan = OrderPlan(seed=seed.replace(" ", "-"), basket=Basket(self.client.account.contract, items))
        return await self.clinic.place_order(plan, order_unknown_item)

    async def wait_until_ended(self, order: PlacedOrder) -> None:
        async def ended() -> bool:
            return (await read_order_status(self.client, order)).has_ended()

        await wait_until(ended, "every Task of the order at its end")

    async def check_everything_once(self, order: PlacedOrder) -> None:
        """Two lines have one report with one observation each, and the third was rejected with one reason."""
        status = await read_order_status(self.client, order)
        assert sorted(status.lines.values()) == ["cancelled", "completed", "completed"]
        assert status.order == "completed"
        reports = await read_reports(self.client, order)
        for found in ([each.resource for each in reports], [one for report in reports for one in report.observations]):
            identifiers = [each["identifier"][0]["value"] for each in found]
            assert len(identifiers) == len(set(identifiers)) == 2
        cancelled = [reasons for request, reasons in status.reasons.items() if status.lines[request] == "cancelled"]
        assert list(map(len, cancelled)) == [1]

    async def search(self, kind: str, criteria: dict[str, str] | None = None) -> list[Json]:
        return await self.client.search(kind, criteria or {})

    async def close(self) -> None:
        for agent in self._agents:
            agent.process.kill()
            await asyncio.to_thread(agent.process.wait, DEADLINE)


async def _run_agent_command(workspace: Workspace, output: Path, *words: str) -> None:
    with output.open("wb") as file:
        config = ("--config", str(workspace.agent_settings))
        program = forked_programs.start("lab_agent.cli", *words, *config, cwd=workspace.folder, stdout=file, stderr=file)
        code = await asyncio.to_thread(program.wait, DEADLINE)
    assert code == 0, await asyncio.to_thread(output.read_text)


@asynccontextmanager
async def open_installation(workspace: Workspace) -> AsyncIterator[ProcessHarness]:
    """The service is up and the store is made, with short leases; neither the API nor an agent is started."""
    text = workspace.agent_settings.read_text()
    for slow, quick in SHORTENED.items():  # what a dead agent left is continued soon
        assert slow in text, f"the settings have no {slow!r} any more"
        text = text.replace(slow, quick)
    workspace.agent_settings.write_text(text)
    try:
        async with ProcessGroup(workspace.folder, workspace.logs) as programs:
            service = (program_path("lab-sandbox"), "run", "--config", str(workspace.service_settings))
            running = await programs.start(Program("service", service, f"{workspace.service_url}healthz"))
            await _run_agent_command(workspace, workspace.logs / "journal.log", "db", "upgrade")
            if workspace.connection.kind == "sql":
                await _run_agent_command(workspace, workspace.folder / STAGING_DDL_FILE, "adapter", "sql", "ddl")
            await programs.wait_until_ready(running, DEADLINE)
            async with open_partner_client(build_account(workspace)) as client:
                yield ProcessHarness(workspace, programs, client, running)
    except BaseException as error:
        keep_failed(workspace.folder, error)
        raise
    finally:
        shutil.rmtree(workspace.folder, ignore_errors=True)


def order_unknown_item(bundle: Json) -> Json:
    for entry in bundle["entry"]:
        coding = entry["resource"].get("code", {}).get("coding", [{}])[0]
        if coding.get("code") == REPLACED_ITEM:
            coding["code"] = UNKNOWN_ITEM
    return bundle

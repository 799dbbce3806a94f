"""The processes of an acceptance test, started and stopped."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from lab_sandbox.demo.lis.simulator import SimulatorFolders
from lab_sandbox.demo.processes import ProcessGroup, Program, program_path, staging_tables_program
from lab_sandbox.demo.runner import build_account
from lab_sandbox.demo.workspace import Workspace, build_transport, create_workspace
from lab_sandbox.partner.client import open_partner_client
from tests.harness.clock import DEADLINE
from tests.harness.installation import ProcessHarness, shorten_timeouts
from tests.harness.paths import ROOT


@pytest.fixture
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[ProcessHarness]:
    """The service and the laboratory's API are up, the store is made, the agent is not started; leases are short.

    Its parameter is how the laboratory system is connected: `folder` without one.
    """
    workspace = create_workspace(ROOT / "config", other_ports=True, lis=getattr(request, "param", "folder"))
    settings = workspace.agent_settings
    shorten_timeouts(settings)
    try:
        async with ProcessGroup(workspace.folder, workspace.logs) as programs:
            service = (program_path("lab-sandbox"), "run", "--config", str(workspace.service_settings))
            running = await programs.start(Program("service", service, f"{workspace.service_url}healthz"))
            await programs.run_to_end(
                Program("journal", (program_path("lab-agent"), "db", "upgrade", "--config", str(settings))), DEADLINE
            )
            if workspace.connection.kind == "sql":
                await programs.run_to_end(staging_tables_program(workspace), DEADLINE)
            api = (program_path("lab-api"), "run", "--config", str(settings))
            api_running = await programs.start(Program("api", api, f"{workspace.api_url}/readyz"))
            await asyncio.gather(programs.wait_until_ready(running, DEADLINE), programs.wait_until_ready(api_running, DEADLINE))
            async with open_partner_client(build_account(workspace)) as client:
                harness = ProcessHarness(workspace, programs, client, running)
                lis = asyncio.create_task(harness.lis.run())
                try:
                    with moved_messages(workspace):
                        yield harness
                finally:
                    await harness.close()
                    if lis.done():
                        lis.result()
                    lis.cancel()
    finally:
        shutil.rmtree(workspace.folder, ignore_errors=True)


@contextmanager
def moved_messages(workspace: Workspace) -> Iterator[None]:
    """Move messages between the folders of the laboratory system and the agent's adapter, where that uses no folders itself."""
    folders = SimulatorFolders(workspace.orders, workspace.results, workspace.lis)
    folders.create()
    ended = threading.Event()

    def move() -> None:
        transport = build_transport(workspace.connection.simulator_options[1::2], folders)
        with closing(transport):
            while not ended.wait(0.02):
                list(transport.run_once())

    with ThreadPoolExecutor(1, thread_name_prefix="transport") as pool:
        moving = pool.submit(move)
        try:
            yield
        finally:
            ended.set()
            moving.result()

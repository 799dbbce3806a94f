"""The processes of an acceptance test, started and stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from lab_sandbox.demo.lis.simulator import SimulatorFolders
from lab_sandbox.demo.processes import Program, program_path
from lab_sandbox.demo.workspace import Workspace, build_transport, create_workspace
from tests.harness.installation import ProcessHarness, open_installation
from tests.harness.paths import ROOT


@pytest.fixture
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[ProcessHarness]:
    """The service and the laboratory's API are up, the store is made, the agent is not started; leases are short.

    Its parameter is how the laboratory system is connected: `folder` without one.
    """
    workspace = create_workspace(ROOT / "config", other_ports=True, lis=getattr(request, "param", "folder"))
    async with open_installation(workspace) as harness:
        api = (program_path("lab-api"), "run", "--config", str(workspace.agent_settings))
        await harness.start_program(Program("api", api, f"{workspace.api_url}/readyz"))
        lis = asyncio.create_task(harness.lis.run())
        try:
            with moved_messages(workspace):
                yield harness
        finally:
            await harness.close()
            if lis.done():
                lis.result()
            lis.cancel()


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

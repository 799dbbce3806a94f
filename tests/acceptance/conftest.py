"""The processes of an acceptance test, started and stopped."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab_sandbox.demo.processes import ProcessGroup, Program, program_path
from lab_sandbox.demo.runner import build_account
from lab_sandbox.demo.workspace import create_workspace
from lab_sandbox.partner.client import open_partner_client
from tests.harness.clock import DEADLINE
from tests.harness.installation import ProcessHarness, shorten_timeouts
from tests.harness.paths import ROOT


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ProcessHarness]:
    """The service and the laboratory's API are up, the store is made, the agent is not started; leases are short."""
    workspace = create_workspace(ROOT / "config", other_ports=True)
    settings = workspace.agent_settings
    shorten_timeouts(settings)
    try:
        async with ProcessGroup(workspace.folder, workspace.logs) as programs:
            service = (program_path("lab-sandbox"), "run", "--config", str(workspace.service_settings))
            running = await programs.start(Program("service", service, f"{workspace.service_url}healthz"))
            await programs.run_to_end(
                Program("journal", (program_path("lab-agent"), "db", "upgrade", "--config", str(settings))), DEADLINE
            )
            api = (program_path("lab-api"), "run", "--config", str(settings))
            api_running = await programs.start(Program("api", api, f"{workspace.api_url}/readyz"))
            await asyncio.gather(programs.wait_until_ready(running, DEADLINE), programs.wait_until_ready(api_running, DEADLINE))
            async with open_partner_client(build_account(workspace)) as client:
                harness = ProcessHarness(workspace, programs, client, running)
                lis = asyncio.create_task(harness.lis.run())
                try:
                    yield harness
                finally:
                    await harness.close()
                    if lis.done():
                        lis.result()
                    lis.cancel()
    finally:
        shutil.rmtree(workspace.folder, ignore_errors=True)

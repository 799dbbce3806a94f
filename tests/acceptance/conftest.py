"""The house of an acceptance test, opened and closed."""

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
    place = create_workspace(ROOT / "config", other_ports=True)
    settings = place.agent_settings
    shorten_timeouts(settings)
    try:
        async with ProcessGroup(place.folder, place.logs) as troupe:
            service = (program_path("lab-sandbox"), "run", "--config", str(place.service_settings))
            running = await troupe.start(Program("service", service, f"{place.service_url}healthz"))
            await troupe.run_to_end(
                Program("journal", (program_path("lab-agent"), "db", "upgrade", "--config", str(settings))), DEADLINE
            )
            api = (program_path("lab-api"), "run", "--config", str(settings))
            api_running = await troupe.start(Program("api", api, f"{place.api_url}/readyz"))
            await asyncio.gather(troupe.wait_until_ready(running, DEADLINE), troupe.wait_until_ready(api_running, DEADLINE))
            async with open_partner_client(build_account(place)) as client:
                house = ProcessHarness(place, troupe, client, running)
                lis = asyncio.create_task(house.lis.run())
                try:
                    yield house
                finally:
                    await house.close()
                    if lis.done():
                        lis.result()
                    lis.cancel()
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)

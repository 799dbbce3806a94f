"""The house of an acceptance test, opened and closed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab_sandbox.demo.performance import account
from lab_sandbox.demo.programs import Program, Troupe, beside
from lab_sandbox.demo.workplace import fresh_workplace
from lab_sandbox.partner.client import partner_client
from tests.acceptance.house import DEADLINE, House, quicken

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """The service and the laboratory's API are up, the store is made, the agent is not started; leases are short."""
    place = fresh_workplace(ROOT / "config", other_ports=True)
    settings = place.agent_settings
    quicken(settings)
    try:
        async with Troupe(place.folder, place.logs) as troupe:
            service = (beside("lab-sandbox"), "run", "--config", str(place.service_settings))
            running = await troupe.start(Program("service", service, f"{place.service_url}healthz"))
            await troupe.once(Program("journal", (beside("lab-agent"), "db", "upgrade", "--config", str(settings))), DEADLINE)
            api = (beside("lab-api"), "run", "--config", str(settings))
            api_running = await troupe.start(Program("api", api, f"{place.api_url}/readyz"))
            await asyncio.gather(troupe.ready(running, DEADLINE), troupe.ready(api_running, DEADLINE))
            async with partner_client(account(place)) as client:
                house = House(place, troupe, client, running)
                lis = asyncio.create_task(house.lis.run())
                try:
                    yield house
                finally:
                    await house.end()
                    if lis.done():
                        lis.result()
                    lis.cancel()
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)

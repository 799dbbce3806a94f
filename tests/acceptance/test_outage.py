"""The service is away: one line about it, no death, and recovery by itself with one more line."""

from __future__ import annotations

import httpx

from lab_sandbox.demo.performance import account
from lab_sandbox.partner.client import partner_client
from tests.acceptance.house import House, until
from tests.acceptance.test_kill_moments import ended, everything_once, place


async def test_one_line_when_the_service_goes_and_one_when_it_comes_back(house: House) -> None:
    await house.service_down()
    agent = await house.agent()

    async def told() -> bool:
        return bool(house.lines("outage_begins"))

    await until(told, "the line about the outage")
    before = house.polls()

    async def polled_on() -> bool:
        return house.polls() >= before + 5

    await until(polled_on, "five more polls")
    assert len(house.lines("outage_begins")) == 1
    assert [line for line in house.lines("") if "Traceback" in line] == []
    assert agent.process.returncode is None

    await house.service_up()
    async with partner_client(account(house.place)) as client:
        house.signed_in(client)
        order = await place(house, "outage")
        await ended(house, order)
        await everything_once(house, order)
    assert len(house.lines("outage_begins")) == 1
    assert len(house.lines("outage_ends")) == 1
    warnings = [line for line in house.lines("") if "[warning" in line or "[error" in line]
    assert len(warnings) == 1, warnings
    await calls_are_measured(house)
    assert await agent.stop() == 0


async def calls_are_measured(house: House) -> None:
    """How long the calls to both neighbours took, and how they ended, is among the numbers."""
    async with httpx.AsyncClient(base_url=house.place.status_url) as client:
        numbers = (await client.get("/metrics")).text
    for each in (
        'exchange_call_seconds_count{operation="searching Task",outcome="ServiceUnavailable"}',
        'exchange_call_seconds_count{operation="searching Task",outcome="ok"}',
        'lis_call_seconds_count{adapter="folder",operation="submit",outcome="ok"}',
    ):
        assert f"lab_agent_{each}" in numbers

"""The agent is killed at the worst moments and started again: nothing is lost, and nothing is done twice."""

from __future__ import annotations

from collections import Counter

import pytest

from lab_sandbox.partner.basket import Basket, choose_item
from lab_sandbox.partner.clinic import PlacedOrder
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.order_generator import OrderPlan
from lab_sandbox.partner.random_source import seeded_random
from lab_sandbox.partner.result_reader import read_order_status, read_reports
from tests.harness.installation import ProcessHarness, wait_until

SPOILT = "003.002"

MOMENTS = [
    "before commit order",
    "after commit order",
    "before commit fetch_order:done",
    "after commit fetch_order:done",
    "before commit submit_order:started",  # the file lies there under its temporary name, and the store does not know
    "after commit submit_order:started",
    "after submit",  # the LIS has it, and the store does not know
    "after commit submit_order:done",
    "before commit report",
    "after commit report",  # the report is kept, and its file was not moved away
    "after commit match_report:done",
    "after upload_document",
    "before create Observation",
    "after create Observation",  # done on the service, and nobody here knows
    "after create DiagnosticReport",
    "after commit upload DiagnosticReport",
    "after commit deliver_report:done",
    "before update Task",
    "after update Task",
    "after commit update_line_task:done",
    "before commit update_order_task:done",
]


WORST = [
    "after commit order",
    "before commit fetch_order:done",
    "before commit submit_order:started",
    "after submit",
    "after commit submit_order:done",
    "after commit report",
    "after create Observation",
    "after create DiagnosticReport",
    "after update Task",
    "before commit update_order_task:done",
]
"""The ten worst: some of them are tried each time, and `make proof` tries every moment."""


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(WORST[::3], id="worst"),
        pytest.param([moment for moment in WORST if moment not in WORST[::3]], id="worst-others", marks=pytest.mark.proof),
        pytest.param([moment for moment in MOMENTS if moment not in WORST], id="others", marks=pytest.mark.proof),
    ],
)
async def test_crashed_agent_restarts_and_completes_every_order(harness: ProcessHarness, moments: list[str]) -> None:
    """One order for each moment; each start also finishes what the killed one before left."""
    orders = []
    for moment in moments:
        agent = await harness.start_agent(moment)
        orders.append(await place(harness, moment))
        await agent.wait_killed()
    await harness.start_agent()
    for order in orders:
        await ended(harness, order)
    for order in orders:
        await everything_once(harness, order)
    assert set(harness.lis.received_counts().values()) == {1}
    assert len(harness.lis.received_counts()) == len(orders)


async def place(house: ProcessHarness, seed: str) -> PlacedOrder:
    """An order of three lines, one of which names a test that does not exist."""
    offer = {item["id"]: item for item in await house.client.nomenclature()}
    luck = seeded_random(seed)
    items = tuple(choose_item(offer[code], luck, option=offer[code]["specimen"][0]) for code in ("001.001", "002.001", SPOILT))
    basket = Basket(house.client.account.contract, items)
    return await house.clinic.place_order(OrderPlan(seed=seed.replace(" ", "-"), basket=basket), spoil)


async def ended(house: ProcessHarness, order: PlacedOrder) -> None:
    async def over() -> bool:
        return (await read_order_status(house.client, order)).has_ended()

    await wait_until(over, "every Task of the order at its end")


async def everything_once(house: ProcessHarness, order: PlacedOrder) -> None:
    status = await read_order_status(house.client, order)
    assert sorted(status.lines.values()) == ["cancelled", "completed", "completed"]
    assert status.order == "completed"
    found = await read_reports(house.client, order)
    identifiers = Counter(report.resource["identifier"][0]["value"] for report in found)
    assert len(identifiers) == 2
    assert set(identifiers.values()) == {1}
    observations = Counter(one["identifier"][0]["value"] for report in found for one in report.observations)
    assert len(observations) == 2
    assert set(observations.values()) == {1}
    cancelled = [reasons for request, reasons in status.reasons.items() if status.lines[request] == "cancelled"]
    assert len(cancelled) == 1
    assert len(cancelled[0]) == 1


def spoil(bundle: Json) -> Json:
    for entry in bundle["entry"]:
        coding = entry["resource"].get("code", {}).get("coding", [{}])[0]
        if coding.get("code") == SPOILT:
            coding["code"] = "999.999"
    return bundle

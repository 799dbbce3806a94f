"""Two workers on one PostgreSQL share the orders: none is done twice, none is forgotten."""

from __future__ import annotations

from collections import Counter

import pytest

from lab_agent.store.migrate import upgrade
from lab_sandbox.partner.basket import Basket, chosen
from lab_sandbox.partner.generator import Plan
from lab_sandbox.partner.seeded import chance
from tests.acceptance.house import House, until

MANY, FEW = 200, 20


@pytest.mark.timeout(400)
@pytest.mark.parametrize("orders", [FEW, pytest.param(MANY, marks=pytest.mark.proof)])
async def test_two_workers_share_the_orders(house: House, postgres_url: str, orders: int) -> None:
    upgrade(postgres_url)
    offer = {item["id"]: item for item in await house.client.nomenclature()}
    blood = chosen(offer["001.001"], chance("two"), option=offer["001.001"]["specimen"][0])
    basket = Basket(house.client.account.contract, (blood,))
    prepared = await house.clinic.prepare(Plan(seed="two", basket=basket))
    placed = []
    for number in range(orders):
        plan = Plan(seed=f"two-{number}", basket=basket, patient="reused")
        placed.append(await house.clinic.send(await house.clinic.bundle(plan, prepared)))

    for _ in range(2):
        await house.agent(LAB_AGENT_STORE__URL=postgres_url)

    async def all_ended() -> bool:
        waiting = await house.resources("task", {"status": "requested", "code": "OrderProcessingTask"})
        return not waiting

    await until(all_ended, "no order-level Task in status requested any more", within=300)
    assert set(house.lis.times_taken().values()) == {1}
    assert len(house.lis.taken) == orders
    assert sorted(order["requisition"]["value"] for order in house.lis.taken) == sorted(one.requisition for one in placed)
    for kind, number in (("DiagnosticReport", orders), ("Observation", orders)):
        identifiers = Counter(one["identifier"][0]["value"] for one in await house.resources(kind))
        assert len(identifiers) == number
        assert set(identifiers.values()) == {1}
    tasks = await house.resources("task")
    assert Counter(task["status"] for task in tasks) == {"completed": 2 * orders}

"""Calls that fail, through the real agent against the service in a box: waits that are asked for, and poison in one resource."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from lab_agent.domain.records import JobKind
from lab_agent.domain.state_machines import OrderState
from lab_sandbox.faults.plan import FaultPlan, FaultRule, Poison
from tests.harness.orders import templates
from tests.harness.world import SimulatedAgent, World

ORDERS = 10


def inject(world: World, **rule: Any) -> None:
    world.service.faults.activate(FaultPlan(faults=(FaultRule.model_validate(rule),)))


async def place_orders(world: World, count: int, *, spoil: int | None = None) -> tuple[SimulatedAgent, list[str]]:
    agent = world.agent()
    placed = [world.place_order(template, spoil=spoil) for template in templates(world.clock.now(), count)]
    await agent.poll.run()
    return agent, placed


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_one_wait_holds_back_all_orders(form: str) -> None:
    """Ten orders are rejected; the service asks the first write to wait, and gets no other until then."""
    world = World("wait")
    agent, placed = await place_orders(world, ORDERS, spoil=0)
    inject(world, kind="status", status=503, retry_after=15, retry_after_form=form, route="PUT /fhir/*")
    while not world.service.faults.fired:
        world.clock.advance(3)
        await agent.run_jobs(limit=50)
    first = len(world.service.faults.fired)
    assert first <= world.settings.exchange.max_concurrency
    for _ in range(4):
        world.clock.advance(3)
        await agent.run_jobs(limit=50)
    assert len(world.service.faults.fired) == first
    world.service.faults.activate(FaultPlan())
    await world.drain(agent)
    assert all("cancelled" in {line["status"] for line in world.line_tasks(task)} for task in placed)


@pytest.mark.parametrize("poison", get_args(Poison))
async def test_poison_in_one_order_stops_no_other(poison: str) -> None:
    world = World("poison")
    agent = world.agent()
    placed = [world.place_order(template) for template in templates(world.clock.now(), 3)]
    inject(world, kind="poison_task", poison=poison, route="GET /fhir/Task*", ids=[placed[1]])
    await agent.poll.run()
    assert agent.exchange.unreadable_order_tasks() == (placed[1],)
    await world.drain(agent)
    for task in (placed[0], placed[2]):
        assert (await world.stored_order(task))[0].state is OrderState.HANDED_OVER
    world.service.faults.activate(FaultPlan())
    await agent.poll.run()
    await world.drain(agent)
    assert (await world.stored_order(placed[1]))[0].state is OrderState.HANDED_OVER


async def test_poison_line_never_left_out_of_order() -> None:
    """An order that cannot be read whole is not handed over in part; it goes on when it can be read."""
    world = World("line")
    agent, (task,) = await place_orders(world, 1)
    line = str(world.line_tasks(task)[0]["id"])
    inject(world, kind="poison_task", poison="nan", route="GET /fhir/Task*", ids=[line])
    await world.drain(agent)
    assert (await world.stored_order(task))[0].state is OrderState.SEEN
    (fetch,) = await world.jobs(task)
    assert fetch.kind is JobKind.FETCH_ORDER
    assert line in str(fetch.reason)
    world.service.faults.activate(FaultPlan())
    world.clock.advance(600)
    await world.drain(agent)
    assert (await world.stored_order(task))[0].state is OrderState.HANDED_OVER

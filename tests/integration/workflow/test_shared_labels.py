"""One barcode on the tubes of two orders: of one patient it is told, of two it holds, and an operator decides."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from lab_agent.orders import order_actions
from lab_agent.orders.order_assessment import reassess
from lab_agent.orders.order_decision import RELEASE_HINT
from lab_agent.queue.job_records import JobKind
from lab_agent.rules.rule import Finding, Severity
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import InvalidTransitionError
from lab_agent.shared.state_machines import OrderState
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import Store
from tests.harness.world import World
from tests.integration.workflow.conftest import MakeScenario, Scenario, pick_template

ANOTHER = {"birthDate": "1950-01-01"}


async def order_twice(scenario: Scenario, **patient: str) -> OrderState:
    """The order is processed, and then the same for somebody in whom `patient` differs; the state of that one."""
    await scenario.process_all()
    scenario.task = scenario.order_anew(**patient)
    await scenario.process_all()
    return await scenario.state()


async def release(scenario: Scenario) -> frozenset[str]:
    """An operator releases the order, as the command does; gives the rules."""
    store = scenario.world.store
    holds = (await reassess(store, scenario.agent.assessor, scenario.key)).assessment.holds
    return await order_actions.release_order(store, scenario.key, holds, "looked", by="eve", now=scenario.world.clock.now())


@pytest.mark.parametrize("other", [ANOTHER, {"gender": "other"}])
async def test_label_of_another_patient_holds_until_released(make_scenario: MakeScenario, other: dict[str, str]) -> None:
    """Somebody has looked: the name was changed by marriage, say."""
    scenario = make_scenario(1)
    assert await order_twice(scenario, **other) is OrderState.HELD
    record, now = await scenario.order_record(), scenario.world.clock.now()
    assert (scenario.statuses(), "is in use" in str(record.reason)) == (["requested"], True)
    assert str(record.reason).endswith(RELEASE_HINT)
    other_hold = Finding("order.catalogue", Severity.HOLD, "order", "no catalogue")
    with pytest.raises(InvalidTransitionError):
        await order_actions.release_order(scenario.world.store, record.key, [other_hold], "looked", by="eve", now=now)
    assert await release(scenario) == {"tube.label-in-use"}
    await scenario.drain()
    assert await scenario.state() is OrderState.HANDED_OVER
    assert "tube.label-in-use" in scenario.reported_rules("warn")
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_released_order_that_is_taken_back_holds_again(make_scenario: MakeScenario) -> None:
    """Put on hold after its release, right before the handover: what is requested later may be another order."""
    scenario = make_scenario(1)
    await order_twice(scenario, **ANOTHER)
    await release(scenario)
    await scenario.assess()
    assert await scenario.state() is OrderState.FETCHED
    scenario.world.update_task(scenario.task, status="on-hold")
    await scenario.drain()
    scenario.world.update_task(scenario.task, status="requested")
    await scenario.drain(301, 301)
    record = await scenario.order_record()
    assert (record.state, "is in use" in str(record.reason)) == (OrderState.HELD, True)


@pytest.mark.parametrize("is_purged", [False, True])
async def test_label_of_same_patient_created_anew_warns(make_scenario: MakeScenario, is_purged: bool) -> None:
    """An additional test from the same tube: the partner creates a Patient for each order, which is the document's default.

    Of a patient of whom nothing is known any more nobody can tell.
    """
    scenario = make_scenario(1)
    await scenario.process_all()
    if is_purged:
        scenario.world.store.execute("DELETE FROM identities")  # type: ignore[attr-defined]
    state = await order_twice(scenario)
    assert state is (OrderState.HELD if is_purged else OrderState.HANDED_OVER)
    assert ("tube.label-reused" in scenario.reported_rules("warn")) is not is_purged


async def test_rejected_line_reordered_with_same_tube_is_accepted(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1, spoil=0)
    assert await order_twice(scenario) is OrderState.HANDED_OVER
    assert not {rule for rule in scenario.reported_rules("refuse", "warn") if "label" in rule}


async def test_concurrent_orders_with_one_tube_accept_one(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    second = scenario.order_anew(**ANOTHER)
    await scenario.assess()
    states = {(await scenario.world.stored_order(task))[0].state for task in (scenario.task, second)}
    assert states == {OrderState.FETCHED, OrderState.HELD}


@pytest.mark.slow
async def test_label_claimed_by_two_workers_on_postgresql_goes_to_one(postgres_url: str) -> None:
    """They assess the two orders at the same moment."""
    upgrade(postgres_url)
    store = Store(postgres_url, Cipher(new_key()))
    try:
        world = World("labels", store=store)
        for _ in range(4):
            again = pick_template(world, 1)
            tasks = [world.place_order(each) for each in (again, replace(again, patient={**again.patient, **ANOTHER}))]
            workers = [world.agent("one"), world.agent("two")]
            await workers[0].poll.run()
            for _ in range(6):
                await asyncio.gather(*(worker.run_jobs(JobKind.FETCH_ORDER, limit=1) for worker in workers))
                world.clock.advance(6)
            states = [(await world.stored_order(task))[0].state for task in tasks]
            assert states.count(OrderState.FETCHED) <= 1
            assert set(states) <= {OrderState.FETCHED, OrderState.HELD}
    finally:
        await store.close()

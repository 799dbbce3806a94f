"""Calls that fail, through the real agent against the service in a box: waits that are asked for, and poison in one resource."""

from __future__ import annotations

from datetime import datetime

import pytest

from lab_agent.operations.schedule import PollInterval, PollTask
from lab_agent.orders.order_reading import ASKED_TO_WAIT
from lab_agent.queue.outages import PAUSE_OUTAGE
from lab_agent.shared.errors import ServiceUnavailable
from lab_agent.shared.metrics import Metrics
from lab_agent.shared.state_machines import OrderState
from tests.integration.workflow.conftest import MakeScenario, Scenario, parametrize_first, pick_template
from tests.integration.workflow.service_answers import answer_with, change_answers, is_read_of

WORDS = "Ivanova is not shown"
"""What the service says beside a Retry-After: it may name the patient."""


# --- poison


# --- waits that are asked for


def make_poll_task(scenario: Scenario) -> PollTask:
    """The poll as the worker runs it; the test says when."""
    return PollTask(
        poll=scenario.agent.poll,
        outages=scenario.agent.runner.outages,
        store=scenario.world.store,
        clock=scenario.world.clock,
        metrics=Metrics(),
        interval=PollInterval(15, 120),
        reschedule=lambda _: None,
    )


@parametrize_first("wait, longest", [("30", 90), ("120", 180), ("1000000000", 3900)], quick=0)
async def test_resource_that_pauses_service_delays_others_little(make_scenario: MakeScenario, wait: str, longest: int) -> None:
    """Law 9: the order that closes the gate is held, and goes after the others, of which one comes every ten minutes."""
    scenario, hours = make_scenario(2), 5
    world = scenario.world
    request = world.get_task(scenario.line_tasks[0])["basedOn"][0]["reference"].rsplit("/", 1)[-1]
    change_answers(scenario, is_read_of(f"procedurerequest/{request}"), answer_with(503, WORDS, **{"Retry-After": wait}))
    poll = make_poll_task(scenario)
    placed: dict[str, datetime] = {}
    handed: dict[str, datetime] = {}
    for step in range(hours * 360):
        if step % 60 == 0 and step < (hours - 1) * 360:
            placed[world.order_key_of(world.place_order(pick_template(world, 1), relabel=True))] = world.clock.now()
        if step % 2 == 0:
            await poll.run()
        await scenario.agent.run_jobs(limit=20)
        for order in world.lis.submitted:
            handed.setdefault(order.key, world.clock.now())
        world.clock.advance(10)
    assert handed.keys() == placed.keys()
    assert max((handed[key] - placed[key]).total_seconds() for key in placed) <= longest
    record = await scenario.order_record()
    assert (record.state, record.reason) == (OrderState.HELD, ASKED_TO_WAIT)
    (said,) = (await world.store.run_read_only(lambda uow: uow.vault.service_messages(record.key))).values()
    assert all(WORDS in each.text for each in said)
    assert said[-1].answer == ASKED_TO_WAIT


@pytest.mark.parametrize("wait", ["0", "Thu, 01 Jan 2015 00:00:00 GMT"])
async def test_retry_after_without_a_wait_is_none(make_scenario: MakeScenario, wait: str) -> None:
    scenario = make_scenario(1)
    change_answers(scenario, is_read_of("procedurerequest/"), answer_with(503, **{"Retry-After": wait}))
    await scenario.process_all()
    assert "procedurerequest/" in str((await scenario.order_record()).reason)
    await scenario.drain(scenario.world.settings.worker.unreadable_after + 60)
    assert await scenario.state() is OrderState.HELD


async def test_pause_asked_for_in_check_of_ended_orders_is_told(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1, spoil=0)
    await scenario.process_all()
    scenario.world.clock.advance(301)
    restore = change_answers(scenario, is_read_of(f"task/{scenario.task}"), answer_with(503, **{"Retry-After": "600"}))
    with pytest.raises(ServiceUnavailable):
        await scenario.agent.poll.ended_orders.run()
    restore()
    poll = make_poll_task(scenario)
    await poll.run()
    scenario.order_anew(relabel=True)
    assert PAUSE_OUTAGE in scenario.open_alerts()
    scenario.world.clock.advance(601)
    await poll.run()
    assert PAUSE_OUTAGE not in scenario.open_alerts()
    await scenario.drain()
    assert scenario.handed_over == [1]

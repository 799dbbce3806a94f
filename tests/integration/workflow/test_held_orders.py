"""Held orders (law 10): what may be our own fault is held with an alert, never rejected, and goes on once it is fixed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from lab_agent.orders import job_actions
from lab_agent.orders.order_assessment import UNREADABLE_RULE
from lab_agent.orders.order_reading import LINES_DIFFER
from lab_agent.orders.rejection_breaker import tripped_rule_alert_key
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.retry import LONGEST_WAIT
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import InvalidTransitionError
from lab_agent.shared.state_machines import OrderState
from lab_sandbox.references import Ref
from lab_sandbox.resources import missing_right_error
from tests.harness.orders import templates
from tests.harness.world import World
from tests.integration.workflow.conftest import MakeScenario, Scenario, listen, parametrize_first
from tests.integration.workflow.service_answers import answer_with, change_answers, is_read_of, is_search_with

NO_ROWS = answer_with(200, '{"resourceType": "Bundle", "entry": []}')


def withdraw_right(scenario: Scenario, what: str) -> Callable[[], None]:
    """The laboratory may not read the order's Task or first ProcedureRequest any more; gives what restores the right."""
    service = scenario.world.service
    request = scenario.world.get_task(scenario.line_tasks[0])["basedOn"][0]["reference"].rsplit("/", 1)[-1]
    withdrawn = Ref("Task", scenario.task) if what == "task" else Ref("ProcedureRequest", request)
    get = service.resources.get

    def refuse(ref: Ref, caller: Any, *args: Any, **options: Any) -> Any:
        if ref == withdrawn and caller.guid == scenario.world.laboratory.guid:
            raise missing_right_error(ref, "read")
        return get(ref, caller, *args, **options)

    service.resources.get = refuse  # type: ignore[method-assign]
    return lambda: setattr(service.resources, "get", get)


@parametrize_first("what", ["procedurerequest", "task", "lines"])
async def test_unreadable_resource_retried_then_held_with_alert(make_scenario: MakeScenario, what: str) -> None:
    """What cannot be read is tried again, then held with an alert that names it, for days; also an order without lines."""
    scenario = make_scenario(1)
    await scenario.agent.poll.run()
    restore = change_answers(scenario, is_search_with("part-of"), NO_ROWS) if what == "lines" else withdraw_right(scenario, what)
    await scenario.drain()
    assert await scenario.state() is OrderState.SEEN
    await scenario.drain(scenario.world.settings.worker.unreadable_after + 60)
    record = await scenario.order_record()
    assert (record.state, what != "procedurerequest" or f"{what}/" in str(record.reason)) == (OrderState.HELD, True)
    assert await scenario.is_told(ConditionId.ORDERS_HELD)
    await scenario.drain(*[86_400] * 5)
    assert (await scenario.state(), scenario.statuses()) == (OrderState.HELD, ["requested"])
    restore()
    await scenario.drain(LONGEST_WAIT, LONGEST_WAIT)
    assert await scenario.state() is OrderState.HANDED_OVER
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_unreadable_resource_is_rejected_after_configured_time(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1, unreadable_refuse_after=7200)
    withdraw_right(scenario, "procedurerequest")
    await scenario.process_all()
    await scenario.drain(3600)
    assert await scenario.state() is OrderState.HELD
    await scenario.drain(3700, 0)
    assert (scenario.status(), scenario.statuses()) == ("cancelled", ["cancelled"])
    assert (scenario.reported_rules(), len(scenario.outputs(scenario.line_tasks[0]))) == ({UNREADABLE_RULE}, 1)


async def test_operator_rejects_a_held_order(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    scenario.world.catalogues.available = False
    await scenario.process_all()
    await scenario.reject_order("we do not do this")
    assert scenario.statuses() == ["cancelled"] * 2
    assert [scenario.outputs(task) for task in scenario.line_tasks] == [["we do not do this"]] * 2
    assert await scenario.state() is OrderState.CLOSED
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)
    with pytest.raises(InvalidTransitionError):
        await scenario.reject_order("again")


@pytest.mark.slow
async def test_tripped_breaker_holds_orders_until_reset() -> None:
    """Many rejections by one rule trip the breaker; its reset lets the held orders proceed."""
    world = World("breaker")
    limit = world.settings.rules.refusal_limit
    found = templates(world.clock.now().replace(minute=0, second=0))
    tasks = [world.place_order(found[0], spoil=0, relabel=True) for _ in range(limit + 3)]
    scenario = Scenario(world, world.agent(), tasks[0])
    await scenario.agent.poll.run()
    await world.drain(scenario.agent, until=timedelta(seconds=60))
    held = [task for task in tasks if (await world.stored_order(task))[0].state is OrderState.HELD]
    assert [world.get_task(task)["status"] for task in held] == ["requested"] * 3
    assert await job_actions.reset_tripped_rule(world.store, "line.item", by="anna", now=world.clock.now())
    assert tripped_rule_alert_key("line.item") not in scenario.open_alerts()
    assert await scenario.agent.run_jobs(JobKind.FETCH_ORDER) == 3, "the orders that it held are fetched at once"
    assert {(await world.stored_order(task))[0].state for task in held}.isdisjoint({OrderState.HELD, OrderState.SEEN})


async def test_observe_mode_writes_nothing(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2, spoil=0, mode="observe")
    sent = listen(scenario)
    await scenario.process_all()
    await scenario.drain(700)
    assert {request.method for request in sent} == {"GET"}
    assert "line.item" in str((await scenario.order_record()).reason)
    assert {job.kind for job in await scenario.jobs(open_only=False)} == {JobKind.FETCH_ORDER}
    assert scenario.handed_over == []


async def test_orders_before_ignore_date_are_left_alone(make_scenario: MakeScenario) -> None:
    """Also those that were held, and because of which it was set: they leave no alert."""
    scenario = make_scenario(2, spoil=0)
    scenario.world.catalogues.available = False
    await scenario.process_all()
    assert await scenario.state() is OrderState.HELD
    scenario.restart("worker", ignore_before=scenario.world.clock.now() + timedelta(hours=1))
    scenario.world.catalogues.available = True
    held, scenario.task = scenario.task, scenario.order_anew(relabel=True)
    await scenario.recheck()
    await scenario.drain(301)
    record = await scenario.order_record()
    assert (record.state, "ignore_before" in str(record.reason)) == (OrderState.CLOSED, True)
    assert (await scenario.world.stored_order(held))[0].state is OrderState.CLOSED
    assert scenario.world.status_history(scenario.task) == ["requested"]
    assert {each["status"] for each in scenario.world.all_tasks()} == {"requested"}
    assert await scenario.agent.poll.run() == 0
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)


@pytest.mark.slow
async def test_lines_that_differ_at_every_reading_hold_with_reason(make_scenario: MakeScenario) -> None:
    """Two copies of a search index answer in turn."""
    scenario, turns = make_scenario(3), itertools.cycle([0, 1])

    def leave_one_out(_: httpx.Request, response: httpx.Response) -> httpx.Response:
        bundle = response.json()
        return httpx.Response(200, json={**bundle, "entry": bundle["entry"][next(turns) :]})

    restore = change_answers(scenario, is_search_with("part-of"), leave_one_out)
    await scenario.process_all()
    for state in (OrderState.SEEN, OrderState.HELD):
        record = await scenario.order_record()
        assert (record.state, record.reason) == (state, LINES_DIFFER)
        await scenario.drain(scenario.world.settings.worker.unreadable_after + 60)
    restore()
    await scenario.drain(LONGEST_WAIT, LONGEST_WAIT)
    assert scenario.handed_over == [3]


@parametrize_first("what", ["specimen", "lines", "list", "task", "patient"], quick=0)
async def test_held_order_tells_each_reason_once(make_scenario: MakeScenario, what: str) -> None:
    """Read again and again, from a service that answers now this and now that."""
    scenario = make_scenario(2, hold_retry=8, unreadable_after=20)
    scenario.world.catalogues.available = False
    gone, turns = answer_with(404), itertools.cycle([False, True])
    applies, answer = {
        "lines": (is_search_with("part-of"), NO_ROWS),
        "list": (is_search_with("part-of"), answer_with(500)),
        "task": (is_read_of(f"task/{scenario.task}"), gone),
        "specimen": (is_read_of("specimen/"), gone),
        "patient": (is_read_of("patient/"), gone),
    }[what]
    change_answers(scenario, applies, lambda request, response: answer(request, response) if next(turns) else response)
    await scenario.process_all()
    await scenario.drain(*[LONGEST_WAIT] * 120)
    record = await scenario.order_record()
    assert record.state is OrderState.HELD
    assert max(Counter((event.action, event.text) for event in scenario.events()).values()) == 1
    assert (await scenario.jobs())[0].attempts > 100
    assert record.changed_at > (record.held_since or record.changed_at)

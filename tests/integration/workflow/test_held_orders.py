"""Held orders (law 10): what may be our own fault is held with an alert, never rejected, and goes on once it is fixed."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.retry import LONGEST_WAIT
from lab_agent.domain.state_machines import LineState, OrderState
from lab_agent.errors import InvalidTransitionError
from lab_agent.workflow import operator_jobs, operator_orders
from lab_agent.workflow.order_assessment import UNREADABLE_RULE
from lab_agent.workflow.order_reading import LINES_DIFFER
from lab_agent.workflow.rejection_breaker import tripped_rule_alert_key
from lab_sandbox.references import Ref
from lab_sandbox.resources import missing_right_error
from tests.harness.orders import templates
from tests.harness.world import World
from tests.integration.workflow.conftest import Scenario
from tests.integration.workflow.service_answers import answer_with, change_answers, is_read_of, is_search_with

MakeScenario = Callable[..., Scenario]


async def later(scenario: Scenario, seconds: float) -> None:
    scenario.world.clock.advance(seconds)
    await scenario.world.drain(scenario.agent)


def withdraw_right(scenario: Scenario) -> Callable[[], None]:
    """The laboratory may not read the order's first ProcedureRequest any more; gives what restores the right."""
    service = scenario.world.service
    request = scenario.world.get_task(scenario.line_tasks[0])["basedOn"][0]["reference"].rsplit("/", 1)[-1]
    kept = service.resources.find(Ref("ProcedureRequest", request))
    assert kept is not None
    original_get = service.resources.get

    def get(ref: Ref, caller: Any, *args: Any, **options: Any) -> Any:
        if ref == kept.ref and caller.guid == scenario.world.laboratory.guid:
            raise missing_right_error(ref, "read")
        return original_get(ref, caller, *args, **options)

    service.resources.get = get  # type: ignore[method-assign]

    def restore() -> None:
        service.resources.get = original_get  # type: ignore[method-assign]

    return restore


async def test_empty_catalogue_holds_until_it_returns(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    scenario.world.catalogues.available = False
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HELD
    assert scenario.statuses() == ["requested"] * 2
    scenario.world.catalogues.available = True
    await later(scenario, 301)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_unreadable_resource_retried_then_held_with_alert(make_scenario: MakeScenario) -> None:
    """What cannot be read is tried again, then held with an alert that names it."""
    scenario = make_scenario(1)
    restore_right = withdraw_right(scenario)
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.SEEN
    assert "procedurerequest/" in str((await scenario.order_record()).reason)
    await later(scenario, scenario.world.settings.worker.unreadable_after + 60)
    record = await scenario.order_record()
    assert record.state is OrderState.HELD
    assert "procedurerequest/" in str(record.reason)
    restore_right()
    await later(scenario, 301)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_unreadable_resource_is_held_indefinitely_by_default(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    withdraw_right(scenario)
    await scenario.process_all()
    for _ in range(5):
        await later(scenario, 86_400)
    assert (await scenario.order_record()).state is OrderState.HELD
    assert scenario.statuses() == ["requested"]


async def test_unreadable_resource_is_rejected_after_configured_time(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1, unreadable_refuse_after=7200)
    withdraw_right(scenario)
    await scenario.process_all()
    await later(scenario, 3600)
    assert (await scenario.order_record()).state is OrderState.HELD
    await later(scenario, 3700)
    await scenario.world.drain(scenario.agent)
    assert scenario.statuses() == ["cancelled"]
    assert scenario.status() == "cancelled"
    assert await scenario.reported_rules() == {UNREADABLE_RULE}
    assert len(scenario.outputs(scenario.line_tasks[0])) == 1


async def test_order_without_lines_is_held_with_alert(make_scenario: MakeScenario) -> None:
    """An order without lines is held, and not fetched for ever without notice."""
    scenario = make_scenario(1)

    async def none(_: str) -> tuple[()]:
        return ()

    scenario.agent.exchange.line_tasks = none  # type: ignore[method-assign, assignment]
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.SEEN
    await later(scenario, scenario.world.settings.worker.unreadable_after + 1)
    assert (await scenario.order_record()).state is OrderState.HELD
    assert await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_unreadable_order_task_is_held_with_alert(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.agent.poll.run()
    get = scenario.world.service.resources.get

    def refused(ref: Ref, caller: Any, *args: Any, **options: Any) -> Any:
        if ref.id == scenario.task:
            raise missing_right_error(ref, "read")
        return get(ref, caller, *args, **options)

    scenario.world.service.resources.get = refused  # type: ignore[method-assign]
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.SEEN
    await later(scenario, scenario.world.settings.worker.unreadable_after + 31)
    assert (await scenario.order_record()).state is OrderState.HELD
    assert await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_operator_rejects_a_held_order(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    scenario.world.catalogues.available = False
    await scenario.process_all()
    record = await scenario.order_record()
    service, now = scenario.world.settings.exchange.base_url, scenario.world.clock.now()
    await operator_orders.reject_order(scenario.world.store, service, record.key, "we do not do this", by="eve", now=now)
    await scenario.world.drain(scenario.agent)
    assert scenario.statuses() == ["cancelled"] * 2
    assert [scenario.outputs(task) for task in scenario.line_tasks] == [["we do not do this"]] * 2
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)
    with pytest.raises(InvalidTransitionError):
        await operator_orders.reject_order(scenario.world.store, service, record.key, "again", by="eve", now=now)


async def test_tripped_breaker_holds_orders_until_reset() -> None:
    """Many rejections by one rule trip the breaker; its reset lets the held orders proceed."""
    world = World("breaker")
    limit = world.settings.rules.refusal_limit
    found = templates(world.clock.now().replace(minute=0, second=0))
    tasks = [world.place_order(found[0], spoil=0, relabel=True) for _ in range(limit + 3)]
    scenario = Scenario(world, world.agent(), tasks[0])
    await scenario.agent.poll.run()
    await world.drain(scenario.agent, until=timedelta(seconds=60))
    states = [(await world.stored_order(task))[0].state for task in tasks]
    assert states.count(OrderState.HELD) == 3
    held = [task for task, state in zip(tasks, states, strict=True) if state is OrderState.HELD]
    assert {world.get_task(task)["status"] for task in held} == {"requested"}
    assert await operator_jobs.reset_tripped_rule(world.store, "line.item", by="anna", now=world.clock.now())
    assert not await scenario.is_alert_open(tripped_rule_alert_key("line.item"))
    assert await scenario.agent.run_jobs(JobKind.FETCH_ORDER) == 3, "the orders that it held are fetched at once"
    assert {(await world.stored_order(task))[0].state for task in held}.isdisjoint({OrderState.HELD, OrderState.SEEN})


async def test_observe_mode_writes_nothing(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2, spoil=0, mode="observe")
    sent: list[str] = []
    handle = scenario.agent._http._transport.handle_async_request  # type: ignore[attr-defined]

    async def listen(request: Any) -> Any:
        sent.append(request.method)
        return await handle(request)

    scenario.agent._http._transport.handle_async_request = listen  # type: ignore[attr-defined]
    await scenario.process_all()
    await later(scenario, 700)
    assert set(sent) == {"GET"}
    record = await scenario.order_record()
    assert "line.item" in str(record.reason)
    assert {job.kind for job in await scenario.jobs(open_only=False)} == {JobKind.FETCH_ORDER}
    assert scenario.world.lis.submitted == []


async def test_orders_before_ignore_date_are_left_alone(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2, spoil=0, ignore_before="2026-03-02T13:00:00+00:00")
    await scenario.process_all()
    record = await scenario.order_record()
    assert record.state is OrderState.CLOSED
    assert "ignore_before" in str(record.reason)
    assert scenario.world.status_history(scenario.task) == ["requested"]
    assert scenario.statuses() == ["requested"] * 2
    assert await scenario.agent.poll.run() == 0


async def test_held_order_that_is_ignored_then_leaves_no_alert(make_scenario: MakeScenario) -> None:
    """A backlog was held, and `worker.ignore_before` is set because of that."""
    scenario = make_scenario(2)
    scenario.world.catalogues.available = False
    await scenario.process_all()
    record = await scenario.order_record()
    assert record.state is OrderState.HELD
    ignoring = scenario.world.settings.worker.model_copy(
        update={"ignore_before": scenario.world.clock.now() + timedelta(hours=1)}
    )
    scenario.world.settings = scenario.world.settings.model_copy(update={"worker": ignoring})
    scenario.world.catalogues.available = True
    scenario.agent = scenario.world.agent("restarted")
    await later(scenario, 301)
    await later(scenario, 301)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_unsearchable_questionnaire_answers_never_reject(make_scenario: MakeScenario) -> None:
    """Questionnaire answers that cannot be searched for are noted and never reject an order."""
    scenario = make_scenario(2, rules={"questionnaire_search": False})
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert "questionnaire.unknown" in await scenario.reported_rules("warn")


async def test_configured_hold_severity_holds_order(make_scenario: MakeScenario) -> None:
    """A rule that rejects by default is given the severity hold."""
    scenario = make_scenario(1, spoil=0)
    rules = scenario.world.settings.rules.model_copy(update={"severities": {"line.item": "hold"}})
    scenario.world.settings = scenario.world.settings.model_copy(update={"rules": rules})
    scenario.agent = scenario.world.agent("stricter")
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HELD
    assert [line.state for line in await scenario.lines()] == [] != [LineState.REJECTED]


async def test_lines_that_differ_at_every_reading_hold_with_reason(make_scenario: MakeScenario) -> None:
    """Two copies of a search index answer in turn."""
    scenario = make_scenario(3)
    count = itertools.count()

    def leave_one_out(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        bundle = json.loads(response.content)
        return httpx.Response(200, json={**bundle, "entry": bundle["entry"][next(count) % 2 :]})

    restore = change_answers(scenario, is_search_with("part-of"), leave_one_out)
    await scenario.process_all()
    record = await scenario.order_record()
    assert (record.state, record.reason) == (OrderState.SEEN, LINES_DIFFER)
    await later(scenario, scenario.world.settings.worker.unreadable_after + 60)
    record = await scenario.order_record()
    assert (record.state, record.reason) == (OrderState.HELD, LINES_DIFFER)
    restore()
    for _ in range(2):
        await later(scenario, 301)
    assert len(scenario.world.lis.submitted[0].lines) == 3


async def test_outage_does_not_count_as_unreadable(make_scenario: MakeScenario) -> None:
    """After an outage that is longer than `unreadable_after`, one 404 of a copy that is behind holds nothing."""
    scenario = make_scenario(1)
    await scenario.agent.poll.run()
    restore = change_answers(scenario, lambda request: True, answer_with(502))
    for _ in range(40):
        await later(scenario, 30)
    restore()
    change_answers(scenario, is_read_of("procedurerequest/"), answer_with(404))
    scenario.world.clock.advance(300)
    await scenario.world.drain(scenario.agent)
    record = await scenario.order_record()
    assert (record.state, "procedurerequest/" in str(record.reason)) == (OrderState.SEEN, True)


def flap(scenario: Scenario, applies: Callable[[httpx.Request], bool], answer: Callable[..., httpx.Response]) -> None:
    """Every other such request is answered otherwise."""
    turns = itertools.cycle([False, True])
    change_answers(scenario, applies, lambda request, response: answer(request, response) if next(turns) else response)


@pytest.mark.parametrize("what", ["lines", "list", "task", "specimen", "patient"])
async def test_held_order_tells_each_reason_once(make_scenario: MakeScenario, what: str) -> None:
    """Read again and again, from a service that answers now this and now that."""
    scenario = make_scenario(2, hold_retry=8, unreadable_after=20)
    scenario.world.catalogues.available = False
    gone, no_rows = answer_with(404), answer_with(200, '{"resourceType": "Bundle", "entry": []}')
    applies, answer = {
        "lines": (is_search_with("part-of"), no_rows),
        "list": (is_search_with("part-of"), answer_with(500)),
        "task": (is_read_of(f"task/{scenario.task}"), gone),
        "specimen": (is_read_of("specimen/"), gone),
        "patient": (is_read_of("patient/"), gone),
    }[what]
    flap(scenario, applies, answer)
    await scenario.process_all()
    for _ in range(120):
        await later(scenario, LONGEST_WAIT)
    record = await scenario.order_record()
    assert record.state is OrderState.HELD
    told = Counter((event.action, event.text) for event in await scenario.events())
    assert max(told.values()) == 1
    assert (await scenario.jobs())[0].attempts > 100
    assert record.changed_at > (record.held_since or record.changed_at)

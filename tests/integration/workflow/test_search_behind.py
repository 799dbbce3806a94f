"""A search whose index is behind, or that fails for one order: what it says is checked by reading the Tasks by their ids."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.ids import ResourceId, line_key
from lab_agent.domain.state_machines import LineState, OrderState
from tests.integration.workflow.conftest import Scenario, pick_template
from tests.integration.workflow.service_answers import Change, answer_as_before, answer_with, change_answers, is_search_with

MakeScenario = Callable[..., Scenario]


async def test_old_end_of_line_offered_again_withdraws_nothing(make_scenario: MakeScenario) -> None:
    """The order was refused, mended and offered again; the search still has the line as we had cancelled it."""
    scenario = make_scenario(1, spoil=0)
    await scenario.process_all()
    (line,) = scenario.line_tasks
    behind = answer_as_before(scenario, line)
    scenario.world.mend_item(line, pick_template(scenario.world, 1))
    scenario.world.clock.advance(200)
    for task in (line, scenario.task):
        scenario.world.force_task(task, status="requested")
    change_answers(scenario, is_search_with("part-of"), behind)
    await scenario.process_all()
    await scenario.agent.reconcile.run()
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert [line.state for line in await scenario.lines()] == [LineState.ACCEPTED]
    assert scenario.world.lis.cancelled == []
    assert [scenario.status(), *scenario.statuses()] == ["requested"] * 2


async def test_line_reported_as_ended_before_assessment_is_read(make_scenario: MakeScenario) -> None:
    """It was ended and put back before the order was found."""
    scenario = make_scenario(2)
    put_back = scenario.line_tasks[0]
    scenario.world.force_task(put_back, status="cancelled")
    change_answers(scenario, is_search_with("part-of"), answer_as_before(scenario, put_back))
    scenario.world.force_task(put_back, status="requested")
    await scenario.process_all()
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [2]


@pytest.mark.parametrize("status", ["on-hold", "cancelled", "in-progress"])
async def test_line_taken_behind_search_is_not_handed_over(make_scenario: MakeScenario, status: str) -> None:
    """Both lists show it as it was: what is handed over is read by its id right before, however short the way there was."""
    scenario = make_scenario(2)
    taken = scenario.line_tasks[1]
    change_answers(scenario, is_search_with("part-of"), answer_as_before(scenario, taken))
    scenario.world.update_task(taken, status=status)
    await scenario.process_all()
    submitted = {line.key for order in scenario.world.lis.submitted for line in order.lines}
    assert line_key(scenario.world.settings.exchange.base_url, ResourceId(taken)) not in submitted
    assert len(submitted) == 1


POISONED = answer_with(200, '{"resourceType": "Bundle", "type": "searchset", "entry": [{"x": "\\ud83d"}]}')


@pytest.mark.parametrize(
    "answer", [POISONED, answer_with(422), answer_with(400), answer_with(502)], ids=["poisoned", "422", "400", "502"]
)
async def test_withdrawal_behind_failing_search_is_seen_and_told_once(make_scenario: MakeScenario, answer: Change) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    restore = change_answers(scenario, is_search_with("part-of"), answer)
    for _ in range(3):
        await scenario.agent.reconcile.run()
    assert len([event for event in await scenario.events() if event.action == "task_unreadable"]) == 1
    scenario.world.end_task(scenario.line_tasks[0])
    await scenario.agent.reconcile.run()
    assert [line.state for line in await scenario.lines()] == [LineState.WITHDRAWN, LineState.ACCEPTED]
    restore()
    await scenario.agent.reconcile.run()
    assert not await scenario.is_told(ConditionId.ORDERS_TASK_UNREADABLE)


async def test_order_withdrawn_behind_failing_search_is_cancelled_at_lis(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    change_answers(scenario, is_search_with("part-of"), POISONED)
    for task in (*scenario.line_tasks, scenario.task):
        scenario.world.end_task(task)
    await scenario.agent.reconcile.run()
    await scenario.world.drain(scenario.agent)
    assert len(scenario.world.lis.cancelled) == 1
    assert (await scenario.order_record()).state is OrderState.CLOSED

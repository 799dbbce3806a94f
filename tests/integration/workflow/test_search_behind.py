"""A search whose index is behind, or that fails for one order: what it says is checked by reading the Tasks by their ids."""

from __future__ import annotations

from collections.abc import Callable

from lab_agent.domain.state_machines import LineState, OrderState
from tests.integration.workflow.conftest import Scenario, pick_template
from tests.integration.workflow.service_answers import answer_as_before, change_answers, is_search_with

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

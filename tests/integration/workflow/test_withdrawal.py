"""Withdrawal by the partner, of a line and of a whole order, at every place of its way: the laboratory is told once or never."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import JobState, LineState, OrderState
from lab_agent.errors import LisRejected
from tests.harness.jobs import claim_jobs
from tests.integration.workflow.conftest import Scenario

MakeScenario = Callable[..., Scenario]


def withdraw_whole(scenario: Scenario) -> None:
    for task in (*scenario.line_tasks, scenario.task):
        scenario.world.end_task(task)


async def settle(scenario: Scenario) -> None:
    for _ in range(3):
        await scenario.agent.reconcile.run()
        await scenario.world.drain(scenario.agent)


async def test_withdrawal_before_polling_does_nothing(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    withdraw_whole(scenario)
    assert await scenario.agent.poll.run() == 0


async def test_whole_order_withdrawn_before_assessment(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.agent.poll.run()
    withdraw_whole(scenario)
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert scenario.world.lis.submitted == scenario.world.lis.cancelled == []


async def test_all_lines_withdrawn_before_assessment_ends_order_task(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.agent.poll.run()
    for task in scenario.line_tasks:
        scenario.world.end_task(task)
    await scenario.world.drain(scenario.agent)
    assert scenario.status() == "cancelled"
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert all(scenario.outputs(task) == [] for task in scenario.line_tasks), "the lines are the partner's"


async def test_line_withdrawn_before_assessment_is_not_submitted(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.agent.poll.run()
    scenario.world.end_task(scenario.line_tasks[0])
    await scenario.world.drain(scenario.agent)
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [1]
    assert scenario.world.lis.cancelled == []


async def test_line_withdrawn_before_submit_is_not_submitted(make_scenario: MakeScenario) -> None:
    """A line withdrawn between assessment and submit is not submitted."""
    scenario = make_scenario(2)
    await scenario.assess()
    scenario.world.end_task(scenario.line_tasks[0])
    await scenario.agent.reconcile.run()
    await settle(scenario)
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [1]
    assert scenario.world.lis.cancelled == []


async def test_all_lines_withdrawn_singly_before_submit(make_scenario: MakeScenario) -> None:
    """Every line is withdrawn one by one between assessment and submit."""
    scenario = make_scenario(2)
    await scenario.assess()
    for task in scenario.line_tasks:
        scenario.world.end_task(task)
        await scenario.agent.reconcile.run()
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert scenario.status() == "cancelled"
    assert scenario.world.lis.submitted == scenario.world.lis.cancelled == []


async def test_whole_order_withdrawn_before_submit_closes_at_once(make_scenario: MakeScenario) -> None:
    """An order withdrawn between assessment and submit closes without another fetch."""
    scenario = make_scenario(2)
    await scenario.assess()
    withdraw_whole(scenario)
    await scenario.agent.reconcile.run()
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert scenario.world.lis.submitted == scenario.world.lis.cancelled == []


@pytest.mark.parametrize("whole", [True, False])
async def test_withdrawal_during_submit_is_sent_afterwards(make_scenario: MakeScenario, whole: bool) -> None:
    """The order was read for the submit under a lease: the laboratory gets it, and is told right after."""
    scenario = make_scenario(2)
    await scenario.assess()
    (job,) = await claim_jobs(scenario.agent.runner, [JobKind.SUBMIT_ORDER], 1)
    lis = scenario.agent.adapters.get()
    submit = lis.submit

    async def partner_is_faster(order: object) -> object:
        if whole:
            withdraw_whole(scenario)
        else:
            scenario.world.end_task(scenario.line_tasks[0])
        await scenario.world.agent("other").reconcile.run()
        return await submit(order)  # type: ignore[arg-type]

    lis.submit = partner_is_faster  # type: ignore[method-assign, assignment]
    await scenario.agent.runner.run(job)
    await settle(scenario)
    assert len(scenario.world.lis.submitted) == 1
    withdrawn = [line.key for line in await scenario.lines() if line.state is LineState.WITHDRAWN]
    assert len(withdrawn) == (2 if whole else 1)
    assert [scenario.world.lis.cancel_count(line) for line in withdrawn] == [1] * len(withdrawn)
    assert (await scenario.order_record()).state is (OrderState.CLOSED if whole else OrderState.HANDED_OVER)


async def test_withdrawal_after_undelivered_submit_submits_nothing(make_scenario: MakeScenario) -> None:
    """The worker died before it sent, then all was withdrawn: the laboratory never gets the order."""
    scenario = make_scenario(2)
    await scenario.assess()
    await claim_jobs(scenario.agent.runner, [JobKind.SUBMIT_ORDER], 1)
    for task in scenario.line_tasks:
        scenario.world.end_task(task)
    await scenario.agent.reconcile.run()
    scenario.world.clock.advance(scenario.world.settings.worker.lease + 1)
    await settle(scenario)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert scenario.world.lis.submitted == scenario.world.lis.cancelled == []


@pytest.mark.parametrize("whole", [True, False])
async def test_withdrawal_after_submit_is_sent_once(make_scenario: MakeScenario, whole: bool) -> None:
    scenario = make_scenario(3)
    await scenario.process_all()
    if whole:
        withdraw_whole(scenario)
    else:
        scenario.world.end_task(scenario.line_tasks[1])
    await settle(scenario)
    output = [line for _, lines in scenario.world.lis.cancelled for line in lines]
    assert len(output) == len(set(output)) == (3 if whole else 1)
    assert (await scenario.order_record()).state is (OrderState.CLOSED if whole else OrderState.HANDED_OVER)
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert scenario.status() == ("cancelled" if whole else "completed")
    assert scenario.statuses().count("cancelled") == (3 if whole else 1)


async def test_order_task_withdrawal_withdraws_every_line(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    scenario.world.end_task(scenario.task)
    await settle(scenario)
    assert [line.state for line in await scenario.lines()] == [LineState.WITHDRAWN] * 2
    assert len(scenario.world.lis.cancelled) == 1
    assert scenario.statuses() == ["requested"] * 2, "line Tasks that the partner left open are the partner's"


async def test_withdrawal_with_result_pending_keeps_the_result(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    await scenario.report_all()
    scenario.world.end_task(scenario.line_tasks[0])
    await scenario.world.drain(scenario.agent)
    assert scenario.statuses() == ["cancelled"], "never out of a terminal status"
    assert (await scenario.lines())[0].state is LineState.COMPLETED
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert any(event.action == "task_unchanged" for event in await scenario.events())


async def test_withdrawal_of_held_order_closes_its_alert(make_scenario: MakeScenario) -> None:
    """The withdrawal of a held order closes the order and its alert."""
    scenario = make_scenario(1)
    scenario.world.catalogues.available = False
    await scenario.assess()
    assert (await scenario.order_record()).state is OrderState.HELD
    withdraw_whole(scenario)
    scenario.world.clock.advance(scenario.world.settings.worker.hold_retry + 1)
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_uncancellable_withdrawal_is_recorded_in_timeline(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()

    async def refuses(*_: object) -> None:
        raise LisRejected("already measured")

    scenario.agent.adapters.get().cancel = refuses  # type: ignore[method-assign]
    withdraw_whole(scenario)
    await settle(scenario)
    assert any("already measured" in event.text for event in await scenario.events())
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert not [e for e in await scenario.jobs() if e.state is JobState.DEAD_LETTER]

"""Withdrawal by the partner, of a line and of a whole order, at every place of its way: the laboratory is told once or never."""

from __future__ import annotations

from typing import Any

import pytest

from lab_agent.queue.job_records import JobKind
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import LisRejected
from lab_agent.shared.state_machines import JobState, LineState, OrderState
from tests.harness.jobs import claim_jobs
from tests.integration.workflow.conftest import MakeScenario, Scenario


def withdrawn_tasks(scenario: Scenario, what: str) -> list[str]:
    tasks = {"line": scenario.line_tasks[:1], "lines": scenario.line_tasks, "order": scenario.tasks, "task": [scenario.task]}
    return tasks[what]


@pytest.mark.parametrize("is_compared", [True, False])
@pytest.mark.parametrize("is_assessed", [True, False])
@pytest.mark.parametrize("what", ["line", "lines", "order"])
async def test_withdrawal_before_handover_never_reaches_lis(
    make_scenario: MakeScenario, what: str, is_assessed: bool, is_compared: bool
) -> None:
    """Before or after the assessment, seen by the reconciliation one by one, or not at all before the handover."""
    scenario = make_scenario(2)
    await (scenario.assess() if is_assessed else scenario.agent.poll.run())
    for task in withdrawn_tasks(scenario, what):
        scenario.end(task)
        await scenario.reconcile(is_compared, drain=False)
    await scenario.drain()
    is_line = what == "line"
    assert scenario.handed_over == ([1] if is_line else [])
    assert len(scenario.told_lis) <= (is_line and is_assessed and not is_compared), "the handover may be on its way"
    assert (await scenario.state(), scenario.status()) == (
        (OrderState.HANDED_OVER, "requested") if is_line else (OrderState.CLOSED, "cancelled")
    )
    assert all(scenario.outputs(task) == [] for task in scenario.line_tasks), "the lines are the partner's"


@pytest.mark.parametrize("what", ["line", "order"])
async def test_withdrawal_during_submit_is_sent_afterwards(make_scenario: MakeScenario, what: str) -> None:
    """The order was read for the submit under a lease: the laboratory gets it, and is told right after."""
    scenario = make_scenario(2)
    await scenario.assess()
    (job,) = await claim_jobs(scenario.agent.runner, [JobKind.SUBMIT_ORDER], 1)
    lis: Any = scenario.agent.adapters.get()
    submit = lis.submit

    async def partner_is_faster(order: object) -> object:
        scenario.end(*withdrawn_tasks(scenario, what))
        await scenario.world.agent("other").reconcile.run()
        return await submit(order)

    lis.submit = partner_is_faster
    await scenario.agent.runner.run(job)
    await scenario.reconcile(3)
    assert len(scenario.handed_over) == 1
    withdrawn = [line.key for line in await scenario.lines() if line.state is LineState.WITHDRAWN]
    assert [scenario.world.lis.cancel_count(line) for line in withdrawn] == [1] * (2 if what == "order" else 1)
    assert await scenario.state() is (OrderState.CLOSED if what == "order" else OrderState.HANDED_OVER)


async def test_withdrawal_after_undelivered_submit_submits_nothing(make_scenario: MakeScenario) -> None:
    """The worker died before it sent, then all was withdrawn: the laboratory never gets the order."""
    scenario = make_scenario(2)
    await scenario.assess()
    await claim_jobs(scenario.agent.runner, [JobKind.SUBMIT_ORDER], 1)
    scenario.end(*scenario.line_tasks)
    await scenario.reconcile(drain=False)
    scenario.world.clock.advance(scenario.world.settings.worker.lease + 1)
    await scenario.reconcile(3)
    assert await scenario.state() is OrderState.CLOSED
    assert (scenario.handed_over, scenario.told_lis) == ([], [])


@pytest.mark.parametrize(("what", "left"), [("line", "requested"), ("order", "cancelled"), ("task", "requested")])
async def test_withdrawal_after_submit_is_sent_once(make_scenario: MakeScenario, what: str, left: str) -> None:
    """Of a line, of all, or of the order-level Task alone: its line Tasks are the partner's, and stay open."""
    scenario = make_scenario(3)
    await scenario.process_all()
    scenario.end(*withdrawn_tasks(scenario, what))
    await scenario.reconcile(3)
    is_line = what == "line"
    told = [line for lines in scenario.told_lis for line in lines]
    assert len(told) == len(set(told)) == (1 if is_line else 3)
    assert await scenario.state() is (OrderState.HANDED_OVER if is_line else OrderState.CLOSED)
    assert scenario.statuses() == ["cancelled" if is_line else left, left, left]
    await scenario.finish()
    assert scenario.status() == ("completed" if is_line else "cancelled")
    assert scenario.statuses() == (["cancelled", "completed", "completed"] if is_line else [left] * 3)


async def test_withdrawal_with_result_pending_keeps_the_result(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    await scenario.report_all()
    scenario.end(scenario.line_tasks[0])
    await scenario.drain()
    assert scenario.statuses() == ["cancelled"], "never out of a terminal status"
    assert (await scenario.line_states(), await scenario.state()) == ([LineState.COMPLETED], OrderState.CLOSED)
    assert scenario.told("task_unchanged")


async def test_withdrawal_of_held_order_closes_its_alert(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    scenario.world.catalogues.available = False
    await scenario.assess()
    assert await scenario.state() is OrderState.HELD
    scenario.end()
    await scenario.drain(scenario.world.settings.worker.hold_retry + 1)
    assert await scenario.state() is OrderState.CLOSED
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_uncancellable_withdrawal_is_recorded_in_timeline(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()

    async def refuses(*_: object) -> None:
        raise LisRejected("already measured")

    scenario.agent.adapters.get().cancel = refuses  # type: ignore[method-assign]
    scenario.end()
    await scenario.reconcile(3)
    assert any("already measured" in text for text in scenario.told())
    assert await scenario.state() is OrderState.CLOSED
    assert not [job for job in await scenario.jobs() if job.state is JobState.DEAD_LETTER]

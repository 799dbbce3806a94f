"""Only requested OrderProcessingTasks are ours: what waits elsewhere waits here, told, and goes on when it is requested again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import SubmitResult
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import LisOutcomeUnknown
from lab_agent.shared.state_machines import LineState, OrderState
from tests.integration.workflow.conftest import MakeScenario, Scenario, parametrize_first
from tests.integration.workflow.service_answers import answer_with, change_answers, is_read_of

BILLING = {"code": {"coding": [{"system": "http://service.test:8480/terminology/task_type", "code": "BillingTask"}]}}
ON_HOLD, IN_PROGRESS = ({"status": status} for status in ("on-hold", "in-progress"))


def set_task(scenario: Scenario, task: str, fields: dict[str, Any]) -> Callable[[], None]:
    """Somebody else changes the Task; gives what makes it ours again."""
    before = scenario.world.get_task(task)
    scenario.world.force_task(task, **fields)
    as_it_was = {name: before.get(name) for name in fields}
    return lambda: scenario.world.force_task(task, **(as_it_was | {"status": "requested"}))


async def go_on(scenario: Scenario) -> None:
    await scenario.drain(*[scenario.world.settings.worker.hold_retry + 1] * 2)


async def expect_waiting(scenario: Scenario, task: str) -> None:
    record = await scenario.order_record()
    assert scenario.handed_over == []
    assert (record.state, f"task/{task}" in str(record.reason)) == (OrderState.HELD, True)


WAITING = [(2, "order", ON_HOLD), (1, "line", ON_HOLD), (2, "line", BILLING), (2, "order", IN_PROGRESS), (2, "order", BILLING)]


async def expect_order_waits(scenario: Scenario, level: str, fields: dict[str, Any]) -> None:
    """It waits as long as a Task of it is elsewhere, and is handed over and done when that is ours again."""
    lines, task = len(scenario.line_tasks), scenario.line_tasks[-1] if level == "line" else scenario.task
    request_again = set_task(scenario, task, fields)
    await scenario.drain()
    await expect_waiting(scenario, task)
    assert set(await scenario.line_states()) <= {LineState.REQUESTED}
    request_again()
    await go_on(scenario)
    assert scenario.handed_over == [lines]
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)
    await scenario.finish()
    assert {scenario.status(), *scenario.statuses()} == {"completed"}


@parametrize_first("lines, level, fields", WAITING)
async def test_order_set_elsewhere_before_look_waits(
    make_scenario: MakeScenario, lines: int, level: str, fields: dict[str, Any]
) -> None:
    """Between the poll and the look."""
    scenario = make_scenario(lines)
    await scenario.agent.poll.run()
    await expect_order_waits(scenario, level, fields)


@parametrize_first("lines, level, fields", WAITING)
async def test_order_set_elsewhere_before_handover_waits(
    make_scenario: MakeScenario, lines: int, level: str, fields: dict[str, Any]
) -> None:
    """Between the assessment and the handover."""
    scenario = make_scenario(lines)
    await scenario.assess()
    assert await scenario.state() is OrderState.FETCHED
    await expect_order_waits(scenario, level, fields)


@parametrize_first("status, is_assessed, place", [("on-hold", False, 0), ("draft", True, -1), ("in-progress", False, -1)])
async def test_line_set_aside_before_handover_holds_no_other(
    make_scenario: MakeScenario, status: str, is_assessed: bool, place: int
) -> None:
    """The others are handed over and completed; once it is requested it is a late line, about which a person decides."""
    scenario = make_scenario(4)
    await (scenario.assess() if is_assessed else scenario.agent.poll.run())
    aside = scenario.line_tasks[place]
    request_again = set_task(scenario, aside, {"status": status})
    await scenario.drain()
    (order,) = scenario.world.lis.submitted
    assert (len(order.lines), bool(order.answers), scenario.told_lis) == (3, True, [])
    told = scenario.told("other_tasks", "withdrawn")
    assert (len(told), status in told[0]) == (1, True)
    await scenario.reconcile(2, drain=False)
    assert not await scenario.is_told(ConditionId.LINES_HELD)
    request_again()
    await scenario.reconcile(drain=False)
    assert {line.state for line in await scenario.lines() if line.task_id == aside} == {LineState.HELD}
    assert await scenario.is_told(ConditionId.LINES_HELD)
    assert len(scenario.told("other_tasks")) == (not is_assessed)


async def test_unreadable_line_set_aside_holds_no_other(make_scenario: MakeScenario) -> None:
    """What a draft refers to need not be there yet."""
    scenario = make_scenario(2)
    await scenario.agent.poll.run()
    aside = scenario.line_tasks[1]
    set_task(scenario, aside, {"status": "draft"})
    change_answers(scenario, is_read_of(scenario.world.get_task(aside)["basedOn"][0]["reference"]), answer_with(404))
    await scenario.drain()
    assert scenario.handed_over == [1]


@pytest.mark.slow
async def test_line_set_aside_beside_a_rejected_one_keeps_order_open(make_scenario: MakeScenario) -> None:
    """Nothing of the order goes to the laboratory; the line set aside is told once it is requested."""
    scenario = make_scenario(2, spoil=0)
    await scenario.agent.poll.run()
    request_again = set_task(scenario, scenario.line_tasks[1], {"status": "on-hold"})
    await scenario.drain()
    assert (scenario.handed_over, scenario.statuses()) == ([], ["cancelled", "on-hold"])
    request_again()
    for _ in range(2):
        await scenario.recheck(400)
    assert await scenario.state() is OrderState.HELD
    assert await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_line_changed_while_waiting_is_assessed_as_it_is_now(make_scenario: MakeScenario) -> None:
    """What waits may be edited: the laboratory gets the order as it was requested last."""
    scenario = make_scenario(2)
    await scenario.assess()
    request_again = set_task(scenario, scenario.task, {"status": "on-hold"})
    await scenario.drain()
    scenario.end(scenario.line_tasks[0])
    request_again()
    await go_on(scenario)
    assert (scenario.handed_over, await scenario.line_states()) == ([1], [LineState.WITHDRAWN, LineState.ACCEPTED])


@pytest.mark.parametrize("status", ["on-hold", "cancelled"])
async def test_tasks_are_checked_again_before_repeated_handover(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """The answer to the first handover is lost, the laboratory system does not have it, and the order was changed meanwhile."""
    scenario = make_scenario(2)
    await scenario.assess()

    async def lose(_: LabOrder) -> SubmitResult:
        raise LisOutcomeUnknown

    with monkeypatch.context() as lost:
        lost.setattr(scenario.agent.adapters.get(), "submit", lose)
        await scenario.agent.run_jobs(JobKind.SUBMIT_ORDER)
    request_again = set_task(scenario, scenario.task, {"status": status})
    await scenario.drain(3600)
    if status == "cancelled":
        assert (scenario.handed_over, await scenario.state()) == ([], OrderState.CLOSED)
        return
    await expect_waiting(scenario, scenario.task)
    request_again()
    await go_on(scenario)
    assert scenario.handed_over == [2]


@parametrize_first("status", [403, 404, 502])
async def test_task_unreadable_for_a_moment_before_handover_holds_nothing(make_scenario: MakeScenario, status: int) -> None:
    scenario = make_scenario(2)
    await scenario.assess()
    restore = change_answers(scenario, is_read_of(f"task/{scenario.line_tasks[1]}"), answer_with(status))
    await scenario.agent.run_jobs(JobKind.SUBMIT_ORDER)
    restore()
    assert (await scenario.state(), scenario.handed_over) == (OrderState.FETCHED, [])
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)
    await scenario.work_for(60)
    assert scenario.handed_over == [2]


@parametrize_first("status, is_assessed", [(403, True), (403, False), (502, False)])
@pytest.mark.slow
async def test_task_that_stays_unreadable_before_handover_is_held_once(
    make_scenario: MakeScenario, status: int, is_assessed: bool
) -> None:
    """The search shows it, so that the order would be accepted and taken back again and again."""
    scenario = make_scenario(2)
    if is_assessed:
        await scenario.assess()
    restore = change_answers(scenario, is_read_of(f"task/{scenario.line_tasks[1]}"), answer_with(status))
    await scenario.agent.poll.run()
    await scenario.work_for(3600)
    reasons = scenario.told("held")
    assert (await scenario.state(), scenario.handed_over) == (OrderState.HELD, [])
    assert len(reasons) == len(set(reasons)) <= 2, "why it was taken back, and why it waits"
    assert await scenario.is_told(ConditionId.ORDERS_HELD)
    restore()
    await scenario.drain(3600, 3600)
    assert scenario.handed_over == [2]


async def test_listed_line_code_is_ours(make_scenario: MakeScenario) -> None:
    """A service that gives the Tasks of lines a code of their own needs one setting."""
    scenario = make_scenario(1)
    scenario.restart("exchange", line_task_codes=("LineTask",))
    scenario.world.update_task(scenario.line_tasks[0], code={"coding": [{"code": "LineTask"}]})
    await scenario.process_all()
    assert await scenario.state() is OrderState.HANDED_OVER


# --- Tasks that are gone after the handover


def lose_task(scenario: Scenario, task: str, status: int) -> Callable[[], None]:
    """Its id is answered with this status, and no search finds it; gives what ends the first."""
    scenario.world.force_task(task, partOf=[{"reference": "task/nothing"}])
    return change_answers(scenario, is_read_of(f"task/{task}"), answer_with(status))


async def test_deleted_line_task_is_a_withdrawn_line(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    deleted = scenario.line_tasks[0]
    lose_task(scenario, deleted, 410)
    await scenario.reconcile()
    (line, other) = await scenario.lines()
    assert (line.task_id, line.state, other.state) == (deleted, LineState.WITHDRAWN, LineState.ACCEPTED)
    assert scenario.told_lis == [(line.key,)]
    await scenario.finish()
    assert await scenario.state() is OrderState.CLOSED


async def test_order_task_deleted_before_assessment_ends_order(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.agent.poll.run()
    lose_task(scenario, scenario.task, 410)
    await scenario.drain()
    assert await scenario.state() is OrderState.CLOSED


@parametrize_first("status, is_line", [(403, True), (403, False), (410, False), (500, False)])
async def test_task_unreadable_after_handover_is_told_once(make_scenario: MakeScenario, status: int, is_line: bool) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    task = scenario.line_tasks[0] if is_line else scenario.task
    restore = lose_task(scenario, task, status) if is_line else change_answers(
        scenario, is_read_of(f"task/{task}"), answer_with(status)
    )  # fmt: skip
    await scenario.reconcile(3, drain=False)
    told = scenario.told("task_unreadable")
    assert (len(told), is_line or str(status) in told[0]) == (1, True)
    assert (await scenario.line_states(), await scenario.state()) == ([LineState.ACCEPTED], OrderState.HANDED_OVER)
    condition = ConditionId.LINES_TASK_UNREADABLE if is_line else ConditionId.ORDERS_TASK_UNREADABLE
    assert await scenario.is_told(condition)
    restore()
    await scenario.reconcile(drain=False)
    assert not await scenario.is_told(condition)


async def test_alert_of_lost_line_task_ends_with_its_order(make_scenario: MakeScenario) -> None:
    """Before the Task is looked for again."""
    scenario = make_scenario(2)
    await scenario.process_all()
    lose_task(scenario, scenario.line_tasks[0], 403)
    await scenario.reconcile(drain=False)
    assert await scenario.is_told(ConditionId.LINES_TASK_UNREADABLE)
    scenario.end(scenario.task)
    await scenario.reconcile()
    assert await scenario.state() is OrderState.CLOSED
    assert not await scenario.is_told(ConditionId.LINES_TASK_UNREADABLE)


@parametrize_first("fields", [BILLING, ON_HOLD])
async def test_task_added_after_handover_that_is_not_ours_is_told_once(
    make_scenario: MakeScenario, fields: dict[str, Any]
) -> None:
    """It is no late line: nobody decides about it, the order ends without it, and it stays as it is."""
    scenario = make_scenario(1)
    await scenario.process_all()
    added = scenario.world.add_late_line(scenario.task)
    scenario.world.force_task(added, **fields)
    as_added = scenario.world.get_task(added)
    await scenario.reconcile(3, drain=False)
    told = scenario.told("other_tasks")
    assert (len(told), added in told[0], len(await scenario.lines())) == (1, True, 1)
    await scenario.finish()
    await scenario.recheck()
    assert await scenario.state() is OrderState.CLOSED
    assert (scenario.status(), scenario.world.get_task(added)) == ("completed", as_added)

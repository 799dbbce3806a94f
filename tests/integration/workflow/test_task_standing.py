"""Only requested OrderProcessingTasks are ours: what waits elsewhere waits here, told, and goes on when it is requested again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.lab_order import LabOrder
from lab_agent.domain.state_machines import LineState, OrderState
from lab_agent.errors import LisOutcomeUnknown
from lab_agent.ports.lis import SubmitResult
from tests.integration.workflow.conftest import Scenario
from tests.integration.workflow.service_answers import (
    answer_as_before,
    answer_with,
    change_answers,
    is_read_of,
    is_search_with,
)
from tests.integration.workflow.test_concurrency import place_late_line
from tests.integration.workflow.test_held_orders import later

MakeScenario = Callable[..., Scenario]

ELSEWHERE: list[dict[str, Any]] = [
    *({"status": status} for status in ("on-hold", "draft", "in-progress", "accepted", "received", "ready")),
    {"code": {"coding": [{"system": "http://service.test:8480/terminology/task_type", "code": "BillingTask"}]}},
]


def set_task(scenario: Scenario, task: str, fields: dict[str, Any]) -> Callable[[], None]:
    """Somebody else changes the Task; gives what makes it ours again."""
    before = scenario.world.get_task(task)
    scenario.world.force_task(task, **fields)
    as_it_was = {name: before.get(name) for name in fields}
    return lambda: scenario.world.force_task(task, **(as_it_was | {"status": "requested"}))


async def go_on(scenario: Scenario) -> None:
    for _ in range(2):
        await later(scenario, scenario.world.settings.worker.hold_retry + 1)


async def expect_waiting(scenario: Scenario, task: str) -> None:
    record = await scenario.order_record()
    assert scenario.world.lis.submitted == []
    assert (record.state, f"task/{task}" in str(record.reason)) == (OrderState.HELD, True)


WAITING = [
    *(
        pytest.param(lines, level, fields, id=f"{lines} {level} {fields}")
        for lines, level in ((2, "order"), (1, "line"))
        for fields in ELSEWHERE
    ),
    pytest.param(2, "line", ELSEWHERE[-1], id="2 line of another code"),
]


@pytest.mark.parametrize(("lines", "level", "fields"), WAITING)
async def test_order_set_elsewhere_before_look_waits(
    make_scenario: MakeScenario, lines: int, level: str, fields: dict[str, Any]
) -> None:
    """Between the poll and the look."""
    scenario = make_scenario(lines)
    await scenario.agent.poll.run()
    task = scenario.line_tasks[-1] if level == "line" else scenario.task
    request_again = set_task(scenario, task, fields)
    await scenario.world.drain(scenario.agent)
    await expect_waiting(scenario, task)
    request_again()
    await go_on(scenario)
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [lines]
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)


@pytest.mark.parametrize(("lines", "level", "fields"), WAITING)
async def test_order_set_elsewhere_before_handover_waits(
    make_scenario: MakeScenario, lines: int, level: str, fields: dict[str, Any]
) -> None:
    """Between the assessment and the handover."""
    scenario = make_scenario(lines)
    await scenario.assess()
    assert (await scenario.order_record()).state is OrderState.FETCHED
    task = scenario.line_tasks[-1] if level == "line" else scenario.task
    request_again = set_task(scenario, task, fields)
    await scenario.agent.run_jobs(JobKind.SUBMIT_ORDER)
    await scenario.world.drain(scenario.agent)
    await expect_waiting(scenario, task)
    assert [line.state for line in await scenario.lines()] == [LineState.REQUESTED] * lines
    request_again()
    await go_on(scenario)
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [lines]
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert [scenario.status(), *scenario.statuses()] == ["completed"] * (lines + 1)


@pytest.mark.parametrize("status", [each["status"] for each in ELSEWHERE if "status" in each])
@pytest.mark.parametrize("is_assessed", [False, True])
@pytest.mark.parametrize("place", [0, -1])
async def test_line_set_aside_before_handover_holds_no_other(
    make_scenario: MakeScenario, status: str, is_assessed: bool, place: int
) -> None:
    """The others are handed over and completed; once it is requested it is a late line, about which a person decides."""
    scenario = make_scenario(4)
    await (scenario.assess() if is_assessed else scenario.agent.poll.run())
    aside = scenario.line_tasks[place]
    request_again = set_task(scenario, aside, {"status": status})
    await scenario.world.drain(scenario.agent)
    (order,) = scenario.world.lis.submitted
    assert (len(order.lines), bool(order.answers), scenario.world.lis.cancelled) == (3, True, [])
    told = [event.text for event in await scenario.events() if event.action in {"other_tasks", "withdrawn"}]
    assert (len(told), status in told[0]) == (1, True)
    for _ in range(2):
        await scenario.agent.reconcile.run()
    assert not await scenario.is_told(ConditionId.LINES_HELD)
    request_again()
    await scenario.agent.reconcile.run()
    assert {line.state for line in await scenario.lines() if line.task_id == aside} == {LineState.HELD}
    assert await scenario.is_told(ConditionId.LINES_HELD)
    assert [event.action for event in await scenario.events()].count("other_tasks") == (not is_assessed)


async def test_line_set_aside_may_be_requested_after_the_end(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.agent.poll.run()
    request_again = set_task(scenario, scenario.line_tasks[1], {"status": "on-hold"})
    await scenario.world.drain(scenario.agent)
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert (scenario.status(), scenario.statuses()) == ("completed", ["completed", "on-hold"])
    request_again()
    for _ in range(2):
        await later(scenario, 400)
        await scenario.agent.poll.run()
    assert [line.state for line in await scenario.lines()] == [LineState.COMPLETED, LineState.HELD]
    assert await scenario.is_told(ConditionId.LINES_HELD)


@pytest.mark.parametrize("status", [403, 404, 502])
async def test_unreadable_line_set_aside_holds_no_other(make_scenario: MakeScenario, status: int) -> None:
    """What a draft refers to need not be there yet."""
    scenario = make_scenario(2)
    await scenario.agent.poll.run()
    aside = scenario.line_tasks[1]
    set_task(scenario, aside, {"status": "draft"})
    change_answers(scenario, is_read_of(scenario.world.get_task(aside)["basedOn"][0]["reference"]), answer_with(status))
    await scenario.world.drain(scenario.agent)
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [1]


async def test_line_set_aside_beside_a_rejected_one_keeps_order_open(make_scenario: MakeScenario) -> None:
    """Nothing of the order goes to the laboratory; the line set aside is told once it is requested."""
    scenario = make_scenario(2, spoil=0)
    await scenario.agent.poll.run()
    request_again = set_task(scenario, scenario.line_tasks[1], {"status": "on-hold"})
    await scenario.world.drain(scenario.agent)
    assert (scenario.world.lis.submitted, scenario.statuses()) == ([], ["cancelled", "on-hold"])
    request_again()
    for _ in range(2):
        await later(scenario, 400)
        await scenario.agent.poll.run()
    assert (await scenario.order_record()).state is OrderState.HELD
    assert await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_line_changed_while_waiting_is_assessed_as_it_is_now(make_scenario: MakeScenario) -> None:
    """What waits may be edited: the laboratory gets the order as it was requested last."""
    scenario = make_scenario(2)
    await scenario.assess()
    request_again = set_task(scenario, scenario.task, {"status": "on-hold"})
    await scenario.world.drain(scenario.agent)
    scenario.world.end_task(scenario.line_tasks[0])
    request_again()
    await go_on(scenario)
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [1]
    assert [line.state for line in await scenario.lines()] == [LineState.WITHDRAWN, LineState.ACCEPTED]


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
    await later(scenario, 3600)
    assert scenario.world.lis.submitted == []
    if status == "cancelled":
        assert (await scenario.order_record()).state is OrderState.CLOSED
        return
    await expect_waiting(scenario, scenario.task)
    request_again()
    await go_on(scenario)
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [2]


@pytest.mark.parametrize("whole", [True, False])
async def test_order_ended_before_handover_is_not_handed_over(make_scenario: MakeScenario, whole: bool) -> None:
    scenario = make_scenario(2)
    await scenario.assess()
    for task in (*scenario.line_tasks, scenario.task) if whole else scenario.line_tasks[:1]:
        scenario.world.end_task(task)
    await scenario.world.drain(scenario.agent)
    assert [len(order.lines) for order in scenario.world.lis.submitted] == ([] if whole else [1])
    assert (await scenario.order_record()).state is (OrderState.CLOSED if whole else OrderState.HANDED_OVER)


async def test_unreadable_task_before_handover_waits(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.assess()
    restore = change_answers(scenario, is_read_of(f"task/{scenario.line_tasks[0]}"), answer_with(403))
    await work_for(scenario, scenario.world.settings.worker.unreadable_after * 2)
    assert (await scenario.order_record()).state is OrderState.HELD
    assert scenario.world.lis.submitted == []
    restore()
    await go_on(scenario)
    assert len(scenario.world.lis.submitted) == 1


async def work_for(scenario: Scenario, seconds: float) -> None:
    for _ in range(int(seconds / 30)):
        await scenario.agent.run_jobs(limit=20)
        scenario.world.clock.advance(30)


@pytest.mark.parametrize("status", [403, 404, 502])
async def test_task_unreadable_for_a_moment_before_handover_holds_nothing(make_scenario: MakeScenario, status: int) -> None:
    scenario = make_scenario(2)
    await scenario.assess()
    restore = change_answers(scenario, is_read_of(f"task/{scenario.line_tasks[1]}"), answer_with(status))
    await scenario.agent.run_jobs(JobKind.SUBMIT_ORDER)
    restore()
    record = await scenario.order_record()
    assert (record.state, scenario.world.lis.submitted) == (OrderState.FETCHED, [])
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)
    await work_for(scenario, 60)
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [2]


@pytest.mark.parametrize("status", [403, 502])
async def test_task_that_stays_unreadable_before_handover_is_held_once(make_scenario: MakeScenario, status: int) -> None:
    """The search shows it, so that the order would be accepted and taken back again and again."""
    scenario = make_scenario(2)
    change_answers(scenario, is_read_of(f"task/{scenario.line_tasks[1]}"), answer_with(status))
    await scenario.agent.poll.run()
    await work_for(scenario, 3600)
    record = await scenario.order_record()
    reasons = [event.text for event in await scenario.events() if event.action == "held"]
    assert (record.state, len(reasons), len(set(reasons))) == (OrderState.HELD, len(reasons), len(reasons))
    assert len(reasons) <= 2, "why it was taken back, and why it waits"
    assert await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_order_put_on_hold_before_handover_is_held_once_though_search_is_behind(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.assess()
    change_answers(scenario, is_search_with("part-of"), answer_as_before(scenario, *scenario.line_tasks))
    scenario.world.update_task(scenario.line_tasks[0], status="on-hold")
    await work_for(scenario, 1800)
    assert [event.action for event in await scenario.events()].count("held") == 1
    await expect_waiting(scenario, scenario.line_tasks[0])


async def test_listed_line_code_is_ours(make_scenario: MakeScenario) -> None:
    """A service that gives the Tasks of lines a code of their own needs one setting."""
    scenario = make_scenario(1)
    exchange = scenario.world.settings.exchange.model_copy(update={"line_task_codes": ("LineTask",)})
    scenario.world.settings = scenario.world.settings.model_copy(update={"exchange": exchange})
    scenario.agent = scenario.world.agent("listed")
    scenario.world.update_task(scenario.line_tasks[0], code={"coding": [{"code": "LineTask"}]})
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


def delete_task(scenario: Scenario, task: str) -> None:
    """The Task is deleted: its id answers 410, and no search finds it."""
    change_answers(scenario, is_read_of(f"task/{task}"), answer_with(410))
    hide_from_search(scenario, task)


def hide_from_search(scenario: Scenario, task: str) -> None:
    scenario.world.force_task(task, partOf=[{"reference": "task/nothing"}])


async def test_deleted_line_task_is_a_withdrawn_line(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    deleted = scenario.line_tasks[0]
    delete_task(scenario, deleted)
    await scenario.agent.reconcile.run()
    await scenario.world.drain(scenario.agent)
    (line, other) = await scenario.lines()
    assert (line.task_id, line.state, other.state) == (deleted, LineState.WITHDRAWN, LineState.ACCEPTED)
    assert [lines for _, lines in scenario.world.lis.cancelled] == [(line.key,)]
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def test_order_task_deleted_before_assessment_ends_order(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.agent.poll.run()
    delete_task(scenario, scenario.task)
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED


@pytest.mark.parametrize("status", [403, 404, 410, 500])
async def test_unreadable_order_task_after_handover_is_told_once(make_scenario: MakeScenario, status: int) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    restore = change_answers(scenario, is_read_of(f"task/{scenario.task}"), answer_with(status))
    for _ in range(3):
        await scenario.agent.reconcile.run()
    told = [event.text for event in await scenario.events() if event.action == "task_unreadable"]
    assert (len(told), str(status) in told[0]) == (1, True)
    restore()
    await scenario.agent.reconcile.run()
    assert not await scenario.is_told(ConditionId.ORDERS_TASK_UNREADABLE)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


@pytest.mark.parametrize("status", [403, 404])
async def test_line_task_lost_after_handover_is_told_once(make_scenario: MakeScenario, status: int) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    change_answers(scenario, is_read_of(f"task/{scenario.line_tasks[0]}"), answer_with(status))
    hide_from_search(scenario, scenario.line_tasks[0])
    for _ in range(3):
        await scenario.agent.reconcile.run()
    (line,) = await scenario.lines()
    assert len([event for event in await scenario.events() if event.action == "task_unreadable"]) == 1
    assert line.state is LineState.ACCEPTED
    assert await scenario.is_told(ConditionId.LINES_TASK_UNREADABLE)


@pytest.mark.parametrize("whole", [True, False])
async def test_alert_of_lost_line_task_ends_with_its_line(make_scenario: MakeScenario, whole: bool) -> None:
    """The line ends before its Task is looked for again: with its order, or alone."""
    scenario = make_scenario(2)
    await scenario.process_all()
    line = next(line for line in await scenario.lines() if line.task_id == scenario.line_tasks[0])
    restore = change_answers(scenario, is_read_of(f"task/{line.task_id}"), answer_with(403))
    partof = scenario.world.get_task(line.task_id)["partOf"]
    hide_from_search(scenario, line.task_id)
    await scenario.agent.reconcile.run()
    if whole:
        scenario.world.end_task(scenario.task)
    else:
        restore()
        scenario.world.force_task(line.task_id, partOf=partof)
        await scenario.world.end_line(scenario.world.store, line.key)
        await scenario.world.drain(scenario.agent)
    await scenario.agent.reconcile.run()
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is (OrderState.CLOSED if whole else OrderState.HANDED_OVER)
    assert not await scenario.is_told(ConditionId.LINES_TASK_UNREADABLE)


BILLING = {"coding": [{"system": "http://service.test:8480/terminology/task_type", "code": "BillingTask"}]}


@pytest.mark.parametrize("fields", [{"code": BILLING}, {"status": "draft"}, {"status": "on-hold"}], ids=str)
async def test_task_added_after_handover_that_is_not_ours_is_told_once(
    make_scenario: MakeScenario, fields: dict[str, Any]
) -> None:
    """It is no late line: nobody decides about it, the order ends without it, and it stays as it is."""
    scenario = make_scenario(1)
    await scenario.process_all()
    added = await place_late_line(scenario)
    scenario.world.force_task(added, **fields)
    as_added = scenario.world.get_task(added)
    for _ in range(3):
        await scenario.agent.reconcile.run()
    told = [event.text for event in await scenario.events() if event.action == "other_tasks"]
    assert (len(told), added in told[0], len(await scenario.lines())) == (1, True, 1)
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    await later(scenario, 301)
    await scenario.agent.poll.run()
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert (scenario.status(), scenario.world.get_task(added)) == ("completed", as_added)


async def test_line_search_refused_after_handover_is_told_once(make_scenario: MakeScenario) -> None:
    """The lines are read by their ids then, so that a withdrawal is seen all the same."""
    scenario = make_scenario(2)
    await scenario.process_all()
    change_answers(scenario, is_search_with("part-of"), answer_with(403))
    for _ in range(3):
        await scenario.agent.reconcile.run()
    assert len([event for event in await scenario.events() if event.action == "task_unreadable"]) == 1
    scenario.world.end_task(scenario.line_tasks[0])
    await scenario.agent.reconcile.run()
    assert [line.state for line in await scenario.lines()] == [LineState.WITHDRAWN, LineState.ACCEPTED]

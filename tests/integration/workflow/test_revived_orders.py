"""What comes back to life: it is processed, or held with an alert, and never left alone in silence."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.orders import job_actions
from lab_agent.orders.reopening import OFFERED_AGAIN_WITHOUT_LINES
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import LisRejected
from lab_agent.shared.state_machines import LineState, OrderState
from tests.integration.workflow.conftest import MakeScenario, Scenario, parametrize_first, pick_template
from tests.integration.workflow.service_answers import answer_with, change_answers, is_read_of


async def expect_ended(scenario: Scenario, status: str) -> None:
    """The order and all of its Tasks have this end."""
    assert await scenario.state() is OrderState.CLOSED
    assert {scenario.status(), *scenario.statuses()} == {status}


async def hand_over_and_report(scenario: Scenario) -> None:
    await scenario.process_all()
    await scenario.finish()
    await expect_ended(scenario, "completed")


# --- before the laboratory had it


async def test_refused_order_mended_and_offered_again_is_done(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1, spoil=0)
    await scenario.process_all()
    (line_task,) = scenario.line_tasks
    scenario.force("requested")
    await scenario.recheck()
    await expect_ended(scenario, "cancelled")
    assert len(scenario.outputs(line_task)) == 1, "unchanged, it is refused again"
    scenario.world.mend_item(line_task, pick_template(scenario.world, 1))
    theirs = {"type": {"text": "note"}, "valueString": "theirs"}
    scenario.world.update_task(line_task, output=[theirs, *scenario.world.get_task(line_task)["output"]])
    scenario.force("requested")
    await scenario.recheck()
    assert await scenario.state() is OrderState.HANDED_OVER
    await scenario.finish()
    await expect_ended(scenario, "completed")
    assert scenario.outputs(line_task) == ["theirs"], "the refusal that is no longer true is gone"


async def test_withdrawn_before_handover_and_put_back_is_done(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.assess()
    scenario.end()
    await scenario.drain()
    assert await scenario.state() is OrderState.CLOSED
    scenario.force("requested")
    await scenario.recheck()
    assert scenario.handed_over == [2]
    scenario.force("cancelled", scenario.line_tasks[0])
    await scenario.reconcile(drain=False)
    assert await scenario.line_states() == [LineState.WITHDRAWN, LineState.ACCEPTED], "what the partner ends then is seen"


async def test_unsubmitted_order_dismissed_and_offered_again_is_done(make_scenario: MakeScenario) -> None:
    """The laboratory system refused it, an operator dismissed that with a note for the clinic, and it is offered again."""
    scenario = make_scenario(2)
    adapter: Any = scenario.agent.adapters.get()

    async def refuse(_: object) -> None:
        raise LisRejected("no such department")

    prepare, adapter.prepare = adapter.prepare, refuse
    await scenario.process_all()
    job, now = await scenario.dead_letter(), scenario.world.clock.now()
    assert job.kind is JobKind.SUBMIT_ORDER
    await job_actions.dismiss_job(scenario.world.store, job.id, by="eve", note="not performed here yet", now=now)
    await scenario.drain()
    assert {tuple(scenario.outputs(task)) for task in scenario.line_tasks} == {("not performed here yet",)}
    await expect_ended(scenario, "cancelled")
    adapter.prepare = prepare
    scenario.force("requested")
    await scenario.recheck()
    assert (await scenario.state(), scenario.handed_over) == (OrderState.HANDED_OVER, [2])


@pytest.mark.parametrize("in_time", [True, False])
async def test_order_requested_before_its_lines_waits_for_them(make_scenario: MakeScenario, in_time: bool) -> None:
    """A partner puts the Tasks back one by one: nobody is called for that, unless it stays so."""
    scenario = make_scenario(1, spoil=0)
    await scenario.process_all()
    scenario.force("requested", scenario.task)
    await scenario.recheck()
    record = await scenario.order_record()
    assert (record.state, record.reason) == (OrderState.SEEN, OFFERED_AGAIN_WITHOUT_LINES.text)
    if not in_time:
        await scenario.drain(scenario.world.settings.worker.unreadable_after)
        assert await scenario.state() is OrderState.HELD
    assert await scenario.is_told(ConditionId.ORDERS_HELD) is not in_time
    assert scenario.status() == "requested"
    scenario.world.mend_item(scenario.line_tasks[0], pick_template(scenario.world, 1))
    scenario.force("requested", *scenario.line_tasks)
    await scenario.drain(60 if in_time else 301)
    assert await scenario.state() is OrderState.HANDED_OVER


# --- after the laboratory had it


@pytest.mark.parametrize("with_results", [False, True])
async def test_order_put_back_after_handover_holds_its_lines(make_scenario: MakeScenario, with_results: bool) -> None:
    """The laboratory was told to cancel it, or has reported it: it is not handed over twice, and a person decides."""
    scenario = make_scenario(2)
    await scenario.process_all()
    if with_results:
        await scenario.finish()
    else:
        scenario.end()
        await scenario.reconcile()
    assert await scenario.state() is OrderState.CLOSED
    scenario.force("requested")
    await scenario.recheck()
    assert await scenario.line_states() == [LineState.HELD] * 2
    assert await scenario.is_told(ConditionId.LINES_HELD)
    assert len(scenario.handed_over) == 1
    accepted, refused = await scenario.lines()
    await scenario.accept_line(accepted.key)
    await scenario.reject_line(refused.key)
    await scenario.world.end_line(scenario.world.store, accepted.key)
    await scenario.drain()
    assert (sorted(scenario.statuses()), scenario.status()) == (["cancelled", "completed"], "completed")
    assert await scenario.state() is OrderState.CLOSED


async def test_only_order_task_offered_again_after_results_is_held(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await hand_over_and_report(scenario)
    scenario.force("requested", scenario.task)
    await scenario.recheck()
    assert await scenario.state() is OrderState.HELD
    assert await scenario.is_told(ConditionId.ORDERS_HELD)
    await scenario.reject_order("nothing is left to do")
    await expect_ended(scenario, "completed")


async def test_line_put_back_in_open_order_is_held(make_scenario: MakeScenario) -> None:
    """One that we had refused, and one that the partner had withdrawn; a second withdrawal is told once more."""
    scenario = make_scenario(3, spoil=0)
    await scenario.process_all()
    (refused,), (withdrawn, _) = scenario.bad_and_good()
    line = next(line.key for line in await scenario.lines() if line.task_id == withdrawn)
    for _ in range(2):
        scenario.force("cancelled", withdrawn)
        await scenario.reconcile()
        scenario.force("requested", withdrawn)
        await scenario.reconcile(drain=False)
        assert LineState.HELD in await scenario.line_states()
        await scenario.accept_line(line)
    assert scenario.world.lis.cancel_count(line) == 2
    scenario.force("requested", refused)
    await scenario.reconcile(drain=False)
    assert sorted(await scenario.line_states()) == [LineState.ACCEPTED, LineState.ACCEPTED, LineState.HELD]
    assert await scenario.is_told(ConditionId.LINES_HELD)
    await scenario.reject_line(next(each.key for each in await scenario.lines() if each.task_id == refused), "still wrong")
    assert (scenario.status(refused), "still wrong" in scenario.outputs(refused)) == ("cancelled", True)


# --- the looks after the end


async def test_line_added_after_the_end_is_held(make_scenario: MakeScenario) -> None:
    """The look some minutes after the end, of which there is one."""
    scenario = make_scenario(1)
    await hand_over_and_report(scenario)
    assert (await scenario.order_record()).recheck_at is not None
    late = scenario.world.add_late_line(scenario.task)
    await scenario.recheck()
    line = (await scenario.lines())[1]
    assert (line.task_id, line.state, await scenario.state()) == (late, LineState.HELD, OrderState.HANDED_OVER)
    await scenario.reject_line(line.key)
    assert (scenario.status(late), await scenario.state()) == ("cancelled", OrderState.CLOSED)
    await scenario.recheck()
    assert (await scenario.order_record()).recheck_at is None


@pytest.mark.slow
async def test_line_that_was_set_aside_is_held_once_it_is_requested(make_scenario: MakeScenario) -> None:
    """It came, and somebody put it on hold, before the order ended: it is no line yet, and is looked for while it is open."""
    scenario = make_scenario(1)
    await scenario.process_all()
    late = scenario.world.add_late_line(scenario.task)
    scenario.force("on-hold", late)
    await scenario.finish()
    closed = await scenario.order_record()
    assert (closed.state, scenario.status()) == (OrderState.CLOSED, "completed")
    ages = []
    for _ in range(12):
        due = (await scenario.order_record()).recheck_at
        assert due is not None
        ages.append(due - closed.changed_at)
        scenario.world.clock.time = due
        await scenario.process_all()
    assert ages[:4] == [timedelta(minutes=minutes) for minutes in (5, 10, 20, 40)]
    assert ages[-1] - ages[-2] == timedelta(days=1)
    scenario.force("requested", late)
    await scenario.recheck(24 * 3600)
    line = (await scenario.lines())[1]
    assert (line.task_id, line.state, await scenario.state()) == (late, LineState.HELD, OrderState.HANDED_OVER)


@pytest.mark.slow
async def test_line_that_was_set_aside_and_ended_is_looked_for_no_more(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await hand_over_and_report(scenario)
    late = scenario.world.add_late_line(scenario.task)
    for status, is_looked_for in (("draft", True), ("cancelled", False)):
        scenario.force(status, late)
        await scenario.recheck()
        assert ((await scenario.order_record()).recheck_at is not None) is is_looked_for


@parametrize_first("status, is_looked_at_later", [(500, True), (403, False), (410, False)])
async def test_ended_order_that_cannot_be_read_stops_nobody(
    make_scenario: MakeScenario, status: int, is_looked_at_later: bool
) -> None:
    scenario = make_scenario(1)
    await hand_over_and_report(scenario)
    change_answers(scenario, is_read_of(f"task/{scenario.task}"), answer_with(status))
    second = scenario.world.place_order(pick_template(scenario.world, 2), relabel=True)
    await scenario.recheck()
    record = await scenario.order_record()
    assert (record.state, record.recheck_at is not None) == (OrderState.CLOSED, is_looked_at_later)
    assert (await scenario.world.stored_order(second))[0].state is OrderState.HANDED_OVER


# --- a slow index, which gave the bad line first


def hide_lines(scenario: Scenario, *hidden: str) -> Callable[[], None]:
    """A slow index: the search does not give these lines yet."""
    original = scenario.agent.exchange.line_tasks

    async def slow(order_task: Any) -> Any:
        return tuple(task for task in await original(order_task) if task["id"] not in hidden)

    scenario.agent.exchange.line_tasks = slow  # type: ignore[method-assign]
    return lambda: setattr(scenario.agent.exchange, "line_tasks", original)


async def find_bad_line_first(scenario: Scenario, *, ends: bool) -> tuple[str, list[str]]:
    """The bad line comes first, the good ones before the order-level Task is ended, or after; the bad one and the good ones."""
    (bad,), good = scenario.bad_and_good()
    show = hide_lines(scenario, *good)
    await (scenario.process_all() if ends else scenario.assess())
    show()
    await scenario.drain(0, 0, 0)
    return bad, good


async def test_good_lines_found_before_the_end_are_handed_over(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(3, spoil=0)
    bad, good = await find_bad_line_first(scenario, ends=False)
    assert (scenario.handed_over, scenario.status(bad)) == ([2], "cancelled")
    await scenario.finish()
    assert [scenario.status(task) for task in (*good, scenario.task)] == ["completed"] * 3
    assert await scenario.state() is OrderState.CLOSED


@pytest.mark.slow
async def test_good_lines_of_an_order_taken_whole_are_rejected_with_the_bad_one(make_scenario: MakeScenario) -> None:
    """Found before the order ends: nobody has offered it again, so that its bad line still counts."""
    scenario = make_scenario(3, spoil=0, on_line_error="cancel_order")
    _, good = await find_bad_line_first(scenario, ends=False)
    assert (scenario.handed_over, [scenario.status(task) for task in good]) == ([], ["cancelled"] * 2)


@pytest.mark.slow
async def test_order_offered_again_without_its_bad_line_is_done_where_orders_are_taken_whole(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2, spoil=0, on_line_error="cancel_order")
    await scenario.process_all()
    _, good = scenario.bad_and_good()
    assert scenario.statuses() == ["cancelled"] * 2
    scenario.force("requested", *good, scenario.task)
    await scenario.recheck()
    assert scenario.handed_over == [1]


@pytest.mark.parametrize("is_refused", [False, True])
async def test_good_lines_found_after_the_end_are_held(make_scenario: MakeScenario, is_refused: bool) -> None:
    """The order was closed as cancelled a second after its bad line came first: that is told, and can be put right."""
    scenario = make_scenario(3, spoil=0)
    _, good = await find_bad_line_first(scenario, ends=True)
    await scenario.recheck()
    record = await scenario.order_record()
    assert (record.state, scenario.handed_over) == (OrderState.HELD, [])
    assert all(f"task/{task}" in str(record.reason) for task in good)
    if is_refused:
        await scenario.drain(301)
        await scenario.reject_order("please order it anew")
        await expect_ended(scenario, "cancelled")
    else:
        scenario.force("requested", scenario.task)
        await scenario.drain(301)
        assert scenario.handed_over == [2]


# --- two orders about the same ProcedureRequests


@pytest.mark.parametrize("is_reported", [True, False])
async def test_second_order_about_the_same_requests_is_held(make_scenario: MakeScenario, is_reported: bool) -> None:
    """A line with a result is never withdrawn, so that nobody is told to wait for it."""
    scenario = make_scenario(2)
    await scenario.process_all()
    if is_reported:
        await scenario.finish()
    scenario.task = scenario.world.order_again(scenario.task)
    await scenario.process_all()
    record = await scenario.order_record()
    assert (record.state, len(scenario.handed_over)) == (OrderState.HELD, 1)
    assert ("new ProcedureRequest" if is_reported else "procedurerequest/") in str(record.reason)
    assert not (is_reported and "withdrawn" in str(record.reason))
    assert await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_two_orders_about_the_same_requests_at_once_are_done_once(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    again = scenario.world.order_again(scenario.task)
    await scenario.process_all()
    states = {(await scenario.world.stored_order(task))[0].state for task in (scenario.task, again)}
    assert (states, len(scenario.handed_over)) == ({OrderState.HANDED_OVER, OrderState.HELD}, 1)


@pytest.mark.slow
async def test_withdrawn_order_offered_anew_is_done(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    scenario.end()
    await scenario.reconcile()
    scenario.task = scenario.world.order_again(scenario.task)
    await scenario.process_all()
    assert await scenario.state() is OrderState.HANDED_OVER

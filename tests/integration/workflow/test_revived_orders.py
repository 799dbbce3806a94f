"""What comes back to life: it is processed, or held with an alert, and never left alone in silence."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import LineState, OrderState
from lab_agent.workflow import operator_jobs, operator_orders
from lab_agent.workflow.reopening import OFFERED_AGAIN_WITHOUT_LINES
from tests.harness.jobs import claim_jobs
from tests.integration.workflow.conftest import Scenario, pick_template
from tests.integration.workflow.service_answers import answer_with, change_answers, is_read_of
from tests.integration.workflow.test_concurrency import place_late_line
from tests.integration.workflow.test_held_orders import later

MakeScenario = Callable[..., Scenario]


def request_again(scenario: Scenario, *tasks: str) -> None:
    for task in tasks:
        scenario.world.force_task(task, status="requested")


async def recheck(scenario: Scenario) -> None:
    """Time enough for the poll to believe its search, and for everything that follows."""
    scenario.world.clock.advance(301)
    await scenario.agent.poll.run()
    await scenario.world.drain(scenario.agent)


async def hand_over_and_report(scenario: Scenario) -> None:
    await scenario.process_all()
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def held_lines(scenario: Scenario) -> list[LineState]:
    return [line.state for line in await scenario.lines()]


async def test_refused_order_offered_again_unchanged_is_refused_again(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1, spoil=0)
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.CLOSED
    request_again(scenario, *scenario.line_tasks, scenario.task)
    await recheck(scenario)
    assert [scenario.status(), *scenario.statuses()] == ["cancelled"] * 2
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert len(scenario.outputs(scenario.line_tasks[0])) == 1


async def test_refused_order_mended_and_offered_again_is_done(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1, spoil=0)
    await scenario.process_all()
    scenario.world.mend_item(scenario.line_tasks[0], pick_template(scenario.world, 1))
    (line_task,) = scenario.line_tasks
    theirs = {"type": {"text": "note"}, "valueString": "theirs"}
    scenario.world.update_task(line_task, output=[theirs, *scenario.world.get_task(line_task)["output"]])
    request_again(scenario, line_task, scenario.task)
    await recheck(scenario)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert [scenario.status(), *scenario.statuses()] == ["completed"] * 2
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert scenario.outputs(line_task) == ["theirs"], "the refusal that is no longer true is gone"


async def test_withdrawn_before_handover_and_put_back_is_done(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.assess()
    for task in (*scenario.line_tasks, scenario.task):
        scenario.world.end_task(task)
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    request_again(scenario, *scenario.line_tasks, scenario.task)
    await recheck(scenario)
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [2]
    scenario.world.force_task(scenario.line_tasks[0], status="cancelled")
    await scenario.agent.reconcile.run()
    assert await held_lines(scenario) == [LineState.WITHDRAWN, LineState.ACCEPTED], "what the partner ends then is seen"


async def test_unsubmitted_order_dismissed_and_offered_again_is_done(make_scenario: MakeScenario) -> None:
    """The laboratory system refused it, an operator dismissed that, and the partner offers it again."""
    scenario = make_scenario(1)
    await scenario.assess()
    (job,) = await claim_jobs(scenario.agent.runner, [JobKind.SUBMIT_ORDER], 1)
    now = scenario.world.clock.now()
    dead = job.job.dead_letter(now, "the adapter is not set up")
    await scenario.world.store.run(lambda uow: (uow.jobs.save(dead), uow.commit()))
    await operator_jobs.dismiss_job(scenario.world.store, job.job.id, by="eve", note="not performed here yet", now=now)
    await scenario.world.drain(scenario.agent)
    assert [scenario.status(), *scenario.statuses()] == ["cancelled"] * 2
    request_again(scenario, *scenario.line_tasks, scenario.task)
    await recheck(scenario)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert len(scenario.world.lis.submitted) == 1


async def test_order_task_set_by_a_person_is_looked_at_again(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    await scenario.report_all()
    scenario.world.update_task(scenario.task, status="on-hold")
    await scenario.world.drain(scenario.agent)
    (job,) = await scenario.jobs()
    scenario.world.force_task(scenario.task, status="completed")
    now = scenario.world.clock.now()
    await operator_jobs.mark_job_done(scenario.world.store, job.id, by="eve", note="set by hand", now=now)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    request_again(scenario, scenario.task)
    await recheck(scenario)
    assert (await scenario.order_record()).state is OrderState.HELD


async def test_acknowledged_order_put_back_as_it_was_is_held(make_scenario: MakeScenario) -> None:
    """It was cancelled by mistake, and the laboratory system was told; it is put back with the status that we had set."""
    scenario = make_scenario(2, acknowledge_status="accepted")
    await scenario.process_all()
    for task in (*scenario.line_tasks, scenario.task):
        scenario.world.force_task(task, status="cancelled")
    await scenario.agent.reconcile.run()
    await scenario.world.drain(scenario.agent)
    assert len(scenario.world.lis.cancelled) == 1
    for task in (*scenario.line_tasks, scenario.task):
        scenario.world.force_task(task, status="accepted")
    await recheck(scenario)
    record = await scenario.order_record()
    assert record.state is OrderState.HELD
    assert await scenario.is_told(ConditionId.ORDERS_HELD)


@pytest.mark.parametrize("in_time", [True, False])
async def test_order_requested_before_its_lines_waits_for_them(make_scenario: MakeScenario, in_time: bool) -> None:
    """A partner puts the Tasks back one by one: nobody is called for that, unless it stays so."""
    scenario = make_scenario(1, spoil=0)
    await scenario.process_all()
    request_again(scenario, scenario.task)
    await recheck(scenario)
    record = await scenario.order_record()
    assert (record.state, record.reason) == (OrderState.SEEN, OFFERED_AGAIN_WITHOUT_LINES.text)
    if not in_time:
        await later(scenario, scenario.world.settings.worker.unreadable_after)
        assert (await scenario.order_record()).state is OrderState.HELD
    assert await scenario.is_told(ConditionId.ORDERS_HELD) is not in_time
    assert scenario.status() == "requested"
    scenario.world.mend_item(scenario.line_tasks[0], pick_template(scenario.world, 1))
    request_again(scenario, *scenario.line_tasks)
    await later(scenario, 60 if in_time else 301)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


@pytest.mark.parametrize("with_results", [False, True])
async def test_order_put_back_after_handover_holds_its_lines(make_scenario: MakeScenario, with_results: bool) -> None:
    """The laboratory was told to cancel it, or has reported it: it is not handed over twice, and a person decides."""
    scenario = make_scenario(2)
    await scenario.process_all()
    if with_results:
        await scenario.report_all()
    else:
        for task in (*scenario.line_tasks, scenario.task):
            scenario.world.end_task(task)
        await scenario.agent.reconcile.run()
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    request_again(scenario, *scenario.line_tasks, scenario.task)
    await recheck(scenario)
    assert await held_lines(scenario) == [LineState.HELD] * 2
    assert await scenario.is_told(ConditionId.LINES_HELD)
    assert len(scenario.world.lis.submitted) == 1
    accepted, refused = await scenario.lines()
    now = scenario.world.clock.now()
    await operator_orders.accept_line(scenario.world.store, accepted.key, by="eve", now=now)
    await operator_orders.reject_line(scenario.world.store, refused.key, "order it anew", by="eve", now=now)
    await scenario.world.end_line(scenario.world.store, accepted.key)
    await scenario.world.drain(scenario.agent)
    assert sorted(scenario.statuses()) == ["cancelled", "completed"]
    assert scenario.status() == "completed"
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def test_only_order_task_offered_again_after_results_is_held(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await hand_over_and_report(scenario)
    request_again(scenario, scenario.task)
    await recheck(scenario)
    record = await scenario.order_record()
    assert record.state is OrderState.HELD
    assert await scenario.is_told(ConditionId.ORDERS_HELD)
    now = scenario.world.clock.now()
    service = scenario.world.settings.exchange.base_url
    await operator_orders.reject_order(scenario.world.store, service, record.key, "nothing is left to do", by="eve", now=now)
    await scenario.world.drain(scenario.agent)
    assert [scenario.status(), *scenario.statuses()] == ["completed"] * 2
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def test_line_put_back_in_open_order_is_held(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    scenario.world.end_task(scenario.line_tasks[0])
    await scenario.agent.reconcile.run()
    await scenario.world.drain(scenario.agent)
    request_again(scenario, scenario.line_tasks[0])
    await scenario.agent.reconcile.run()
    assert await held_lines(scenario) == [LineState.HELD, LineState.ACCEPTED]
    assert await scenario.is_told(ConditionId.LINES_HELD)


async def test_refused_line_put_back_in_open_order_is_held(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2, spoil=0)
    await scenario.process_all()
    refused = next(line for line in await scenario.lines() if line.state is LineState.REJECTED)
    request_again(scenario, refused.task_id)
    await scenario.agent.reconcile.run()
    assert sorted(await held_lines(scenario)) == [LineState.ACCEPTED, LineState.HELD]
    held = next(line for line in await scenario.lines() if line.state is LineState.HELD)
    await operator_orders.reject_line(scenario.world.store, held.key, "still wrong", by="eve", now=scenario.world.clock.now())
    await scenario.world.drain(scenario.agent)
    assert scenario.status(refused.task_id) == "cancelled"
    assert "still wrong" in scenario.outputs(refused.task_id)


async def test_line_withdrawn_put_back_and_withdrawn_again_is_told_twice(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    task = scenario.line_tasks[0]
    for _ in range(2):
        scenario.world.force_task(task, status="cancelled")
        await scenario.agent.reconcile.run()
        await scenario.world.drain(scenario.agent)
        request_again(scenario, task)
        await scenario.agent.reconcile.run()
        line = (await scenario.lines())[0]
        await operator_orders.accept_line(scenario.world.store, line.key, by="eve", now=scenario.world.clock.now())
    assert scenario.world.lis.cancel_count((await scenario.lines())[0].key) == 2


async def test_line_added_after_the_end_is_held(make_scenario: MakeScenario) -> None:
    """The look some minutes after the end."""
    scenario = make_scenario(1)
    await hand_over_and_report(scenario)
    late = await place_late_line(scenario)
    await recheck(scenario)
    line = (await scenario.lines())[1]
    assert (line.task_id, line.state) == (late, LineState.HELD)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    await operator_orders.reject_line(scenario.world.store, line.key, "order it anew", by="eve", now=scenario.world.clock.now())
    await scenario.world.drain(scenario.agent)
    assert scenario.status(late) == "cancelled"
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def test_ended_order_is_looked_at_once(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await hand_over_and_report(scenario)
    assert (await scenario.order_record()).recheck_at is not None
    await recheck(scenario)
    assert (await scenario.order_record()).recheck_at is None


async def test_line_that_was_set_aside_is_held_once_it_is_requested(make_scenario: MakeScenario) -> None:
    """It came, and somebody put it on hold, before the order ended: it is no line yet, and is looked for while it is open."""
    scenario = make_scenario(1)
    await scenario.process_all()
    late = await place_late_line(scenario)
    scenario.world.force_task(late, status="on-hold")
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    closed = await scenario.order_record()
    assert (closed.state, scenario.status()) == (OrderState.CLOSED, "completed")
    ages = []
    for _ in range(12):
        due = (await scenario.order_record()).recheck_at
        assert due is not None
        ages.append(due - closed.changed_at)
        scenario.world.clock.time = due
        await scenario.agent.poll.run()
        await scenario.world.drain(scenario.agent)
    assert ages[:4] == [timedelta(minutes=minutes) for minutes in (5, 10, 20, 40)]
    assert ages[-1] - ages[-2] == timedelta(days=1)
    request_again(scenario, late)
    scenario.world.clock.advance(24 * 3600)
    await scenario.agent.poll.run()
    await scenario.world.drain(scenario.agent)
    line = (await scenario.lines())[1]
    assert (line.task_id, line.state) == (late, LineState.HELD)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


async def test_line_that_was_set_aside_and_ended_is_looked_for_no_more(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await hand_over_and_report(scenario)
    late = await place_late_line(scenario)
    scenario.world.force_task(late, status="draft")
    await recheck(scenario)
    assert (await scenario.order_record()).recheck_at is not None
    scenario.world.force_task(late, status="cancelled")
    await recheck(scenario)
    assert (await scenario.order_record()).recheck_at is None


@pytest.mark.parametrize(("status", "is_looked_at_later"), [(500, True), (403, False), (410, False)])
async def test_ended_order_that_cannot_be_read_stops_nobody(
    make_scenario: MakeScenario, status: int, is_looked_at_later: bool
) -> None:
    scenario = make_scenario(1)
    await hand_over_and_report(scenario)
    change_answers(scenario, is_read_of(f"task/{scenario.task}"), answer_with(status))
    second = scenario.world.place_order(pick_template(scenario.world, 2), relabel=True)
    await recheck(scenario)
    record = await scenario.order_record()
    assert (record.state, record.recheck_at is not None) == (OrderState.CLOSED, is_looked_at_later)
    assert (await scenario.world.stored_order(second))[0].state is OrderState.HANDED_OVER


def hide_lines(scenario: Scenario, *hidden: str) -> Callable[[], None]:
    """A slow index: the search does not give these lines yet."""
    original = scenario.agent.exchange.line_tasks

    async def slow(order_task: Any) -> Any:
        return tuple(task for task in await original(order_task) if task["id"] not in hidden)

    scenario.agent.exchange.line_tasks = slow  # type: ignore[method-assign]
    return lambda: setattr(scenario.agent.exchange, "line_tasks", original)


def split_by_fault(scenario: Scenario) -> tuple[list[str], list[str]]:
    bad = [str(task["id"]) for task in scenario.world.line_tasks(scenario.task) if scenario.world.item_of(task) == "999.999"]
    return bad, [task for task in scenario.line_tasks if task not in bad]


async def test_good_lines_found_before_the_end_are_handed_over(make_scenario: MakeScenario) -> None:
    """The bad line came first from a slow index; the good ones come before the order-level Task is ended."""
    scenario = make_scenario(3, spoil=0)
    bad, good = split_by_fault(scenario)
    show = hide_lines(scenario, *good)
    await scenario.assess()
    show()
    for _ in range(3):
        await scenario.world.drain(scenario.agent)
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [2]
    assert scenario.status(bad[0]) == "cancelled"
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert [scenario.status(task) for task in good] == ["completed"] * 2
    assert scenario.status() == "completed"
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def test_good_lines_found_after_the_end_are_held_then_done(make_scenario: MakeScenario) -> None:
    """The order was closed as cancelled a second after its bad line came first: that is told, and can be put right."""
    scenario = make_scenario(3, spoil=0)
    _, good = split_by_fault(scenario)
    show = hide_lines(scenario, *good)
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.CLOSED
    show()
    await recheck(scenario)
    record = await scenario.order_record()
    assert record.state is OrderState.HELD
    assert all(f"task/{task}" in str(record.reason) for task in good)
    assert scenario.world.lis.submitted == []
    request_again(scenario, scenario.task)
    await later(scenario, 301)
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [2]


async def test_order_offered_again_without_its_bad_line_is_done_where_orders_are_taken_whole(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2, spoil=0, on_line_error="cancel_order")
    await scenario.process_all()
    _, good = split_by_fault(scenario)
    assert scenario.statuses() == ["cancelled"] * 2
    request_again(scenario, *good, scenario.task)
    await recheck(scenario)
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [1]


async def test_lines_of_an_invalid_order_that_come_late_are_rejected_where_orders_are_taken_whole(
    make_scenario: MakeScenario,
) -> None:
    """Found before the order ends: nobody has offered it again, so that its bad line still counts."""
    scenario = make_scenario(3, spoil=0, on_line_error="cancel_order")
    _, good = split_by_fault(scenario)
    show = hide_lines(scenario, *good)
    await scenario.assess()
    show()
    for _ in range(3):
        await scenario.world.drain(scenario.agent)
    assert scenario.world.lis.submitted == []
    assert [scenario.status(task) for task in good] == ["cancelled"] * 2


async def test_good_lines_found_after_the_end_can_be_refused(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(3, spoil=0)
    _, good = split_by_fault(scenario)
    show = hide_lines(scenario, *good)
    await scenario.process_all()
    show()
    await recheck(scenario)
    await later(scenario, 301)
    service, now = scenario.world.settings.exchange.base_url, scenario.world.clock.now()
    key = (await scenario.order_record()).key
    await operator_orders.reject_order(scenario.world.store, service, key, "please order it anew", by="eve", now=now)
    await scenario.world.drain(scenario.agent)
    assert [scenario.status(task) for task in good] == ["cancelled"] * 2
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def test_second_order_about_the_same_requests_is_held(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    first = scenario.task
    scenario.task = scenario.world.order_again(first)
    await scenario.process_all()
    record = await scenario.order_record()
    assert record.state is OrderState.HELD
    assert "procedurerequest/" in str(record.reason)
    assert len(scenario.world.lis.submitted) == 1
    assert await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_two_orders_about_the_same_requests_at_once_are_done_once(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    again = scenario.world.order_again(scenario.task)
    await scenario.process_all()
    states = {(await scenario.world.stored_order(task))[0].state for task in (scenario.task, again)}
    assert states == {OrderState.HANDED_OVER, OrderState.HELD}
    assert len(scenario.world.lis.submitted) == 1


async def test_withdrawn_order_offered_anew_is_done(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    for task in (*scenario.line_tasks, scenario.task):
        scenario.world.end_task(task)
    await scenario.agent.reconcile.run()
    await scenario.world.drain(scenario.agent)
    scenario.task = scenario.world.order_again(scenario.task)
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


async def test_order_ended_while_it_waits_frees_its_requests(make_scenario: MakeScenario) -> None:
    """Put on hold right before the handover, then cancelled: new Tasks about the same requests are worked on."""
    scenario = make_scenario(2)
    await scenario.assess()
    scenario.world.update_task(scenario.task, status="on-hold")
    await scenario.world.drain(scenario.agent)
    assert await held_lines(scenario) == [LineState.REQUESTED] * 2
    for task in (*scenario.line_tasks, scenario.task):
        scenario.world.end_task(task)
    await later(scenario, 301)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert await held_lines(scenario) == [LineState.WITHDRAWN] * 2
    assert scenario.world.lis.cancelled == []
    scenario.task = scenario.world.order_again(scenario.task)
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


async def test_second_order_about_reported_requests_says_what_can_be_done(make_scenario: MakeScenario) -> None:
    """A line with a result is never withdrawn, so that nobody is told to wait for it."""
    scenario = make_scenario(1)
    await hand_over_and_report(scenario)
    scenario.task = scenario.world.order_again(scenario.task)
    await scenario.process_all()
    record = await scenario.order_record()
    assert (record.state, "new ProcedureRequest" in str(record.reason)) == (OrderState.HELD, True)
    assert "withdrawn" not in str(record.reason)

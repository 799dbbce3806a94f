"""Task updates: read, change only our own fields, write the whole back; never overwrite anybody else's decision."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from fhir.resources.STU3.task import Task

from lab_agent.orders import job_actions
from lab_agent.orders.order_decision import OTHER_LINE_REJECTED
from lab_agent.queue import jobs
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.state_machines import JobState, LineState, OrderState
from tests.harness.orders import templates
from tests.harness.proof import FIGURES, SHARE
from tests.harness.sent_bodies import record_writes
from tests.harness.world import World
from tests.integration.workflow.conftest import MakeScenario, Scenario


async def test_rejected_line_is_cancelled_with_reason_others_proceed(make_scenario: MakeScenario) -> None:
    """A rejected line is cancelled with its reason, and the rest of the order proceeds."""
    scenario = make_scenario(3, spoil=1)
    await scenario.process_all()
    await scenario.finish()
    ((invalid,), _) = scenario.bad_and_good()
    assert "999.999" in scenario.outputs(invalid)[0]
    assert (sorted(scenario.statuses()), scenario.status()) == (["cancelled", "completed", "completed"], "completed")


async def test_only_tasks_of_an_order_are_written(make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepted, refused and ended: the ProcedureRequests and all else stay as they were ordered."""
    writes = record_writes(monkeypatch)
    scenario = make_scenario(3, spoil=1, acknowledge_status="accepted")
    await scenario.process_all()
    await scenario.finish()
    assert scenario.status() == "completed"
    assert len(writes) > 3
    assert set(writes) == {"PUT task"}


async def test_cancelled_tasks_on_the_service_are_valid_stu3(make_scenario: MakeScenario) -> None:
    """A validating server must not refuse the refusal: STU3 requires the type of every output. The intent is the partner's."""
    scenario = make_scenario(2, spoil=1)
    await scenario.process_all()
    assert "cancelled" in scenario.statuses()
    for task in scenario.tasks:
        Task.model_validate({"intent": "order", **scenario.world.get_task(task)})


async def test_cancel_order_policy_rejects_good_lines_with_reason(make_scenario: MakeScenario) -> None:
    """The policy cancel_order rejects the good lines, with a reason of their own."""
    scenario = make_scenario(3, spoil=0, on_line_error="cancel_order")
    await scenario.process_all()
    assert {scenario.status(), *scenario.statuses()} == {"cancelled"}
    assert sorted(OTHER_LINE_REJECTED in scenario.outputs(task) for task in scenario.line_tasks) == [False, True, True]
    assert scenario.handed_over == []


async def test_acknowledgement_then_end_set_on_every_task(make_scenario: MakeScenario) -> None:
    """The acknowledgement is set on every Task, and then its end; one that comes late moves no ended Task."""
    scenario = make_scenario(2, acknowledge_status="in-progress")
    await scenario.process_all()
    assert {scenario.status(), *scenario.statuses()} == {"in-progress"}
    await scenario.finish()
    assert scenario.world.status_history(scenario.task)[-2:] == ["in-progress", "completed"]
    assert await scenario.state() is OrderState.CLOSED
    (line, _), now = await scenario.lines(), scenario.world.clock.now()
    await scenario.write(lambda uow: uow.jobs.add(jobs.update_line_task(line, "accepted", now)))
    await scenario.agent.run_jobs(JobKind.UPDATE_LINE_TASK)
    assert scenario.statuses() == ["completed"] * 2
    assert (await scenario.jobs(open_only=False))[-1].state is JobState.OBSOLETE


async def test_status_we_never_sent_is_not_overwritten(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    scenario.world.update_task(scenario.line_tasks[0], status="on-hold")
    await scenario.finish()
    job = await scenario.dead_letter()
    assert (scenario.statuses(), "on-hold" in str(job.reason)) == (["on-hold"], True)
    scenario.world.update_task(scenario.line_tasks[0], status="requested")
    await job_actions.retry_job(scenario.world.store, job.id, by="eve", now=scenario.world.clock.now())
    await scenario.drain()
    assert (scenario.statuses(), await scenario.state()) == (["completed"], OrderState.CLOSED)


def before_updates(scenario: Scenario, change: Callable[[str], object]) -> None:
    """Let the partner be faster than each of our updates."""
    exchange: Any = scenario.agent.exchange
    update = exchange.update

    async def partner_is_faster(kind: str, key: str, *args: object, **options: object) -> object:
        change(key)
        return await update(kind, key, *args, **options)

    exchange.update = partner_is_faster


async def test_three_conflicts_reschedule_the_job(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    await scenario.report_all()
    (task,), tried = scenario.line_tasks, list[str]()

    def edit(key: str) -> None:
        tried.append(key)
        if len(tried) <= 4:
            scenario.world.edit_task(task)

    before_updates(scenario, edit)
    await scenario.agent.run_jobs(JobKind.UPDATE_LINE_TASK)
    (job,) = await scenario.jobs()
    assert (len(tried), job.state) == (3, JobState.DUE)
    await scenario.drain()
    notes = [note["text"] for note in scenario.world.get_task(task)["note"]]
    assert (scenario.statuses(), notes, len(notes)) == (["completed"], scenario.world.edits[task], 4)


async def test_reason_reaches_a_task_that_the_partner_cancelled_at_the_same_moment(make_scenario: MakeScenario) -> None:
    """Their cancellation comes between our read and our update: our status was recorded as sent, so the reason follows."""
    scenario = make_scenario(2, spoil=0)
    await scenario.assess()
    ((rejected,), _), cancelled = scenario.bad_and_good(), list[bool]()
    before_updates(scenario, lambda key: cancelled.append(key == rejected and scenario.world.end_task(key)))
    await scenario.drain()
    assert (sum(cancelled), scenario.status(rejected)) == (1, "cancelled")
    assert "999.999" in scenario.outputs(rejected)[0]


async def conflicts(wanted: int) -> None:
    """Orders of every kind, until the partner has been faster than our update so many times."""
    rng, met, seed = Random(5), 0, 0
    while met < wanted:
        seed += 1
        world = World(("conflict", seed), acknowledge_status=rng.choice([None, "accepted"]))
        template = rng.choice(templates(world.clock.now().replace(minute=0, second=0)))
        scenario = Scenario(world, world.agent(), world.place_order(template, spoil=rng.choice([None, 0])))

        def edit(key: str, world: World = world) -> None:
            nonlocal met
            for _ in range(rng.choice([0, 1, 1, 2])):
                world.edit_task(key)
                met += 1

        before_updates(scenario, edit)
        await scenario.process_all()
        await scenario.report_all()
        for _ in range(30):
            await scenario.drain()
            if await scenario.state() is OrderState.CLOSED:
                break
            world.clock.advance(60)
        assert_right(scenario, await scenario.line_states())


def assert_right(scenario: Scenario, states: list[LineState]) -> None:
    """Every Task is at its right end, and carries every change of the partner's."""
    ends = {LineState.COMPLETED: "completed", LineState.REJECTED: "cancelled"}
    assert sorted(scenario.statuses()) == sorted(ends[state] for state in states)
    assert scenario.status() == ("completed" if LineState.COMPLETED in states else "cancelled")
    for task in scenario.tasks:
        assert [note["text"] for note in scenario.world.get_task(task).get("note", ())] == scenario.world.edits.get(task, [])


async def test_partner_edits_survive_conflicts() -> None:
    await conflicts(25)


@pytest.mark.proof
async def test_partner_edits_survive_five_hundred_conflicts() -> None:
    await conflicts(int(500 * SHARE))
    FIGURES.add(conflicting_edits=int(500 * SHARE))

"""Task statuses: read, change only our own fields, put the whole back; never over anybody else's decision."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

import pytest

from lab_agent.domain import jobs
from lab_agent.domain.records import JobKind
from lab_agent.domain.state_machines import JobState, LineState, OrderState
from lab_agent.workflow import operator_jobs
from lab_agent.workflow.decision import OTHER_LINE_REJECTED
from tests.harness.orders import templates
from tests.harness.world import World
from tests.integration.workflow.conftest import Scenario

MakeScene = Callable[..., Scenario]
SHARE = float(os.environ.get("LAB_PROOF_SHARE", "1"))


async def test_rejected_line_is_cancelled_with_reason_others_proceed(make_scenario: MakeScene) -> None:
    """A rejected line is cancelled with its reason, and the rest of the order proceeds."""
    here = make_scenario(3, spoil=1)
    await here.process_all()
    await here.report_all()
    await here.world.drain(here.agent)
    spoilt = next(task for task in here.world.line_tasks(here.task) if here.world.item_of(task) == "999.999")
    assert "999.999 is not in the nomenclature" in here.outputs(str(spoilt["id"]))[0]
    assert sorted(here.statuses()) == ["cancelled", "completed", "completed"]
    assert here.status() == "completed"


async def test_cancel_order_policy_rejects_good_lines_with_reason(make_scenario: MakeScene) -> None:
    """The policy cancel_order rejects the good lines, with a reason of their own."""
    here = make_scenario(3, spoil=0, on_line_error="cancel_order")
    await here.process_all()
    assert here.statuses() == ["cancelled"] * 3
    assert here.status() == "cancelled"
    assert sorted(OTHER_LINE_REJECTED in here.outputs(task) for task in here.line_tasks) == [False, True, True]
    assert here.world.lis.submitted == []


async def test_acknowledgement_then_end_set_on_every_task(make_scenario: MakeScene) -> None:
    """The acknowledgement is set on every Task, and then its end."""
    here = make_scenario(2, acknowledge_status="in-progress")
    await here.process_all()
    assert {here.status(), *here.statuses()} == {"in-progress"}
    await here.report_all()
    await here.world.drain(here.agent)
    assert here.world.status_history(here.task)[-2:] == ["in-progress", "completed"]
    assert (await here.order_record()).state is OrderState.CLOSED


async def test_status_we_never_sent_is_not_overwritten(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.process_all()
    here.world.update_task(here.line_tasks[0], status="on-hold")
    await here.report_all()
    await here.world.drain(here.agent)
    assert here.statuses() == ["on-hold"]
    (parked,) = await here.jobs()
    assert parked.state is JobState.DEAD_LETTER
    assert "on-hold" in str(parked.reason)
    here.world.update_task(here.line_tasks[0], status="requested")
    await operator_jobs.retry_job(here.world.store, parked.id, by="eve", now=here.world.clock.now())
    await here.world.drain(here.agent)
    assert here.statuses() == ["completed"]
    assert (await here.order_record()).state is OrderState.CLOSED


async def test_late_acknowledgement_moves_no_ended_task(make_scenario: MakeScene) -> None:
    """An operator retries a dead-lettered acknowledgement after the line has ended."""
    here = make_scenario(1)
    await here.process_all()
    await here.report_all()
    await here.world.drain(here.agent)
    (line,) = await here.lines()

    def add(uow: object) -> None:
        uow.jobs.add(jobs.update_line_task(line, "accepted", here.world.clock.now()))  # type: ignore[attr-defined]
        uow.commit()  # type: ignore[attr-defined]

    await here.world.store.run(add)
    await here.agent.run_jobs(JobKind.UPDATE_LINE_TASK)
    assert here.statuses() == ["completed"]
    assert (await here.jobs(open_only=False))[-1].state is JobState.OBSOLETE


async def test_partner_outputs_are_kept_beside_ours(make_scenario: MakeScene) -> None:
    here = make_scenario(1, spoil=0)
    await here.assess()
    here.world.update_task(here.line_tasks[0], output=[{"valueString": "theirs"}])
    await here.world.drain(here.agent)
    assert here.outputs(here.line_tasks[0])[0] == "theirs"
    assert len(here.outputs(here.line_tasks[0])) == 2


async def test_three_conflicts_reschedule_the_job(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.process_all()
    await here.report_all()
    update, times = here.agent.exchange.update, 0

    async def partner_is_faster(*args: object, **options: object) -> object:
        nonlocal times
        times += 1
        if times <= 4:
            here.world.edit_task(here.line_tasks[0])
        return await update(*args, **options)  # type: ignore[arg-type]

    here.agent.exchange.update = partner_is_faster  # type: ignore[method-assign, assignment]
    await here.agent.run_jobs(JobKind.UPDATE_LINE_TASK)
    (job,) = await here.jobs()
    assert (times, job.state) == (3, JobState.DUE)
    await here.world.drain(here.agent)
    assert here.statuses() == ["completed"]
    notes = [note["text"] for note in here.world.get_task(here.line_tasks[0])["note"]]
    assert notes == here.world.edits[here.line_tasks[0]]
    assert len(notes) == 4


async def conflicts(wanted: int) -> None:
    """Orders of every kind, until the partner has been faster than our update so many times."""
    rng, met, seed = Random(5), 0, 0
    while met < wanted:
        seed += 1
        world = World(("conflict", seed), acknowledge_status=rng.choice([None, "accepted"]))
        template = rng.choice(templates(world.clock.now().replace(minute=0, second=0)))
        here = Scenario(world, world.agent(), world.place_order(template, spoil=rng.choice([None, 0])))
        update = here.agent.exchange.update

        async def partner_is_faster(kind: str, key: str, *args: object, update=update, world=world, **options: object) -> object:  # type: ignore[no-untyped-def]
            nonlocal met
            for _ in range(rng.choice([0, 1, 1, 2])):
                world.edit_task(key)
                met += 1
            return await update(kind, key, *args, **options)

        here.agent.exchange.update = partner_is_faster  # type: ignore[method-assign]
        await here.process_all()
        await here.report_all()
        for _ in range(30):
            await world.drain(here.agent)
            if (await here.order_record()).state is OrderState.CLOSED:
                break
            world.clock.advance(60)
        assert_right(here, [line.state for line in await here.lines()])


def assert_right(here: Scenario, states: list[LineState]) -> None:
    """Every Task is at its right end, and carries every change of the partner's."""
    ends = {LineState.COMPLETED: "completed", LineState.REJECTED: "cancelled"}
    assert sorted(here.statuses()) == sorted(ends[state] for state in states)
    assert here.status() == ("completed" if LineState.COMPLETED in states else "cancelled")
    for task in (here.task, *here.line_tasks):
        assert [note["text"] for note in here.world.get_task(task).get("note", ())] == here.world.edits.get(task, [])


async def test_partner_edits_survive_conflicts() -> None:
    await conflicts(25)


@pytest.mark.proof
async def test_partner_edits_survive_five_hundred_conflicts() -> None:
    await conflicts(int(500 * SHARE))

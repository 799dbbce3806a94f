"""Withdrawal by the partner, of a line and of a whole order, at every place of its way: the laboratory is told once or never."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab_agent.domain.journal import JobKind
from lab_agent.domain.lifecycle import JobState, LineState, OrderState
from lab_agent.errors import LisRefusal
from tests.steps.conftest import Scenario

MakeScene = Callable[..., Scenario]


def withdraw_whole(here: Scenario) -> None:
    for task in (*here.line_tasks, here.task):
        here.world.end_task(task)


async def settle(here: Scenario) -> None:
    for _ in range(3):
        await here.agent.reconcile.run()
        await here.world.drain(here.agent)


async def test_before_it_was_seen_nothing_happens(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    withdraw_whole(here)
    assert await here.agent.poll.run() == 0


async def test_a_whole_order_before_it_was_judged(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    await here.agent.poll.run()
    withdraw_whole(here)
    await here.world.drain(here.agent)
    assert (await here.order_record()).state is OrderState.CLOSED
    assert here.world.lis.submitted == here.world.lis.cancelled == []


async def test_every_line_before_it_was_judged_ends_the_order_task_too(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    await here.agent.poll.run()
    for task in here.line_tasks:
        here.world.end_task(task)
    await here.world.drain(here.agent)
    assert here.status() == "cancelled"
    assert (await here.order_record()).state is OrderState.CLOSED
    assert all(here.outputs(task) == [] for task in here.line_tasks), "the lines are the partner's"


async def test_one_line_before_it_was_judged_goes_nowhere(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    await here.agent.poll.run()
    here.world.end_task(here.line_tasks[0])
    await here.world.drain(here.agent)
    assert [len(order.lines) for order in here.world.lis.submitted] == [1]
    assert here.world.lis.cancelled == []


async def test_one_line_between_judgement_and_handover_is_not_handed_over(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    await here.assess()
    here.world.end_task(here.line_tasks[0])
    await here.agent.reconcile.run()
    await settle(here)
    assert [len(order.lines) for order in here.world.lis.submitted] == [1]
    assert here.world.lis.cancelled == []


async def test_every_line_one_by_one_between_judgement_and_handover(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    await here.assess()
    for task in here.line_tasks:
        here.world.end_task(task)
        await here.agent.reconcile.run()
    await here.world.drain(here.agent)
    assert (await here.order_record()).state is OrderState.CLOSED
    assert here.status() == "cancelled"
    assert here.world.lis.submitted == here.world.lis.cancelled == []


async def test_a_whole_order_between_judgement_and_handover_closes_without_another_round(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    await here.assess()
    withdraw_whole(here)
    await here.agent.reconcile.run()
    await here.world.drain(here.agent)
    assert (await here.order_record()).state is OrderState.CLOSED
    assert here.world.lis.submitted == here.world.lis.cancelled == []


@pytest.mark.parametrize("whole", [True, False])
async def test_while_the_handover_is_under_way(make_scenario: MakeScene, whole: bool) -> None:
    """The claim is held and the order was read for the handover: the laboratory gets it, and is told right after."""
    here = make_scenario(2)
    await here.assess()
    (job,) = await here.agent.runner.claim([JobKind.SUBMIT_ORDER], 1)
    lis = here.agent.adapters._lis
    submit = lis.submit

    async def partner_is_faster(order: object) -> object:
        if whole:
            withdraw_whole(here)
        else:
            here.world.end_task(here.line_tasks[0])
        await here.world.agent("other").reconcile.run()
        return await submit(order)  # type: ignore[arg-type]

    lis.submit = partner_is_faster  # type: ignore[method-assign, assignment]
    await here.agent.runner.run(job)
    await settle(here)
    assert len(here.world.lis.submitted) == 1
    withdrawn = [line.key for line in await here.lines() if line.state is LineState.WITHDRAWN]
    assert len(withdrawn) == (2 if whole else 1)
    assert [here.world.lis.cancel_count(line) for line in withdrawn] == [1] * len(withdrawn)
    assert (await here.order_record()).state is (OrderState.CLOSED if whole else OrderState.HANDED_OVER)


async def test_after_a_handover_that_never_arrived(make_scenario: MakeScene) -> None:
    """The worker died before it sent; meanwhile all was withdrawn; the laboratory never had it, and never gets it."""
    here = make_scenario(2)
    await here.assess()
    await here.agent.runner.claim([JobKind.SUBMIT_ORDER], 1)
    for task in here.line_tasks:
        here.world.end_task(task)
    await here.agent.reconcile.run()
    here.world.clock.advance(here.world.settings.worker.lease + 1)
    await settle(here)
    assert (await here.order_record()).state is OrderState.CLOSED
    assert here.world.lis.submitted == here.world.lis.cancelled == []


@pytest.mark.parametrize("whole", [True, False])
async def test_after_the_handover_the_laboratory_is_told_once(make_scenario: MakeScene, whole: bool) -> None:
    here = make_scenario(3)
    await here.process_all()
    if whole:
        withdraw_whole(here)
    else:
        here.world.end_task(here.line_tasks[1])
    await settle(here)
    told = [line for _, lines in here.world.lis.cancelled for line in lines]
    assert len(told) == len(set(told)) == (3 if whole else 1)
    assert (await here.order_record()).state is (OrderState.CLOSED if whole else OrderState.HANDED_OVER)
    await here.report_all()
    await here.world.drain(here.agent)
    assert here.status() == ("cancelled" if whole else "completed")
    assert here.statuses().count("cancelled") == (3 if whole else 1)


async def test_of_the_order_task_alone_withdraws_every_line(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    await here.process_all()
    here.world.end_task(here.task)
    await settle(here)
    assert [line.state for line in await here.lines()] == [LineState.WITHDRAWN] * 2
    assert len(here.world.lis.cancelled) == 1
    assert here.statuses() == ["requested"] * 2, "line Tasks that the partner left open are the partner's"


async def test_of_a_line_whose_result_is_on_its_way_keeps_the_result(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.process_all()
    await here.report_all()
    here.world.end_task(here.line_tasks[0])
    await here.world.drain(here.agent)
    assert here.statuses() == ["cancelled"], "never out of a terminal status"
    assert (await here.lines())[0].state is LineState.COMPLETED
    assert (await here.order_record()).state is OrderState.CLOSED
    assert any(event.action == "task_unchanged" for event in await here.events())


async def test_of_a_held_order_closes_it_and_its_alert(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    here.world.catalogues.available = False
    await here.assess()
    assert (await here.order_record()).state is OrderState.HELD
    withdraw_whole(here)
    here.world.clock.advance(here.world.settings.worker.hold_retry + 1)
    await here.world.drain(here.agent)
    assert (await here.order_record()).state is OrderState.CLOSED
    assert not await here.is_alert_open(f"order.{(await here.order_record()).key}.held")


async def test_what_the_laboratory_cannot_cancel_is_told_in_the_timeline(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.process_all()

    async def refuses(*_: object) -> None:
        raise LisRefusal("already measured")

    here.agent.adapters._lis.cancel = refuses  # type: ignore[method-assign]
    withdraw_whole(here)
    await settle(here)
    assert any("already measured" in event.text for event in await here.events())
    assert (await here.order_record()).state is OrderState.CLOSED
    assert not [e for e in await here.jobs() if e.state is JobState.DEAD_LETTER]

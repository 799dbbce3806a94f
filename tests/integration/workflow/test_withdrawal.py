"""Withdrawal by the partner, of a line and of a whole order, at every place of its way: the laboratory is told once or never."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab_agent.domain.records import JobKind
from lab_agent.domain.state_machines import JobState, LineState, OrderState
from lab_agent.errors import LisRejected
from tests.integration.workflow.conftest import Scenario

MakeScene = Callable[..., Scenario]


def withdraw_whole(here: Scenario) -> None:
    for task in (*here.line_tasks, here.task):
        here.world.end_task(task)


async def settle(here: Scenario) -> None:
    for _ in range(3):
        await here.agent.reconcile.run()
        await here.world.drain(here.agent)


async def test_withdrawal_before_polling_does_nothing(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    withdraw_whole(here)
    assert await here.agent.poll.run() == 0


async def test_whole_order_withdrawn_before_assessment(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    await here.agent.poll.run()
    withdraw_whole(here)
    await here.world.drain(here.agent)
    assert (await here.order_record()).state is OrderState.CLOSED
    assert here.world.lis.submitted == here.world.lis.cancelled == []


async def test_all_lines_withdrawn_before_assessment_ends_order_task(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    await here.agent.poll.run()
    for task in here.line_tasks:
        here.world.end_task(task)
    await here.world.drain(here.agent)
    assert here.status() == "cancelled"
    assert (await here.order_record()).state is OrderState.CLOSED
    assert all(here.outputs(task) == [] for task in here.line_tasks), "the lines are the partner's"


async def test_line_withdrawn_before_assessment_is_not_submitted(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    await here.agent.poll.run()
    here.world.end_task(here.line_tasks[0])
    await here.world.drain(here.agent)
    assert [len(order.lines) for order in here.world.lis.submitted] == [1]
    assert here.world.lis.cancelled == []


async def test_line_withdrawn_before_submit_is_not_submitted(make_scenario: MakeScene) -> None:
    """A line withdrawn between assessment and submit is not submitted."""
    here = make_scenario(2)
    await here.assess()
    here.world.end_task(here.line_tasks[0])
    await here.agent.reconcile.run()
    await settle(here)
    assert [len(order.lines) for order in here.world.lis.submitted] == [1]
    assert here.world.lis.cancelled == []


async def test_all_lines_withdrawn_singly_before_submit(make_scenario: MakeScene) -> None:
    """Every line is withdrawn one by one between assessment and submit."""
    here = make_scenario(2)
    await here.assess()
    for task in here.line_tasks:
        here.world.end_task(task)
        await here.agent.reconcile.run()
    await here.world.drain(here.agent)
    assert (await here.order_record()).state is OrderState.CLOSED
    assert here.status() == "cancelled"
    assert here.world.lis.submitted == here.world.lis.cancelled == []


async def test_whole_order_withdrawn_before_submit_closes_at_once(make_scenario: MakeScene) -> None:
    """An order withdrawn between assessment and submit closes without another fetch."""
    here = make_scenario(2)
    await here.assess()
    withdraw_whole(here)
    await here.agent.reconcile.run()
    await here.world.drain(here.agent)
    assert (await here.order_record()).state is OrderState.CLOSED
    assert here.world.lis.submitted == here.world.lis.cancelled == []


@pytest.mark.parametrize("whole", [True, False])
async def test_withdrawal_during_submit_is_sent_afterwards(make_scenario: MakeScene, whole: bool) -> None:
    """The order was read for the submit under a lease: the laboratory gets it, and is told right after."""
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


async def test_withdrawal_after_undelivered_submit_submits_nothing(make_scenario: MakeScene) -> None:
    """The worker died before it sent, then all was withdrawn: the laboratory never gets the order."""
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
async def test_withdrawal_after_submit_is_sent_once(make_scenario: MakeScene, whole: bool) -> None:
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


async def test_order_task_withdrawal_withdraws_every_line(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    await here.process_all()
    here.world.end_task(here.task)
    await settle(here)
    assert [line.state for line in await here.lines()] == [LineState.WITHDRAWN] * 2
    assert len(here.world.lis.cancelled) == 1
    assert here.statuses() == ["requested"] * 2, "line Tasks that the partner left open are the partner's"


async def test_withdrawal_with_result_pending_keeps_the_result(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.process_all()
    await here.report_all()
    here.world.end_task(here.line_tasks[0])
    await here.world.drain(here.agent)
    assert here.statuses() == ["cancelled"], "never out of a terminal status"
    assert (await here.lines())[0].state is LineState.COMPLETED
    assert (await here.order_record()).state is OrderState.CLOSED
    assert any(event.action == "task_unchanged" for event in await here.events())


async def test_withdrawal_of_held_order_closes_its_alert(make_scenario: MakeScene) -> None:
    """The withdrawal of a held order closes the order and its alert."""
    here = make_scenario(1)
    here.world.catalogues.available = False
    await here.assess()
    assert (await here.order_record()).state is OrderState.HELD
    withdraw_whole(here)
    here.world.clock.advance(here.world.settings.worker.hold_retry + 1)
    await here.world.drain(here.agent)
    assert (await here.order_record()).state is OrderState.CLOSED
    assert not await here.is_alert_open(f"order.{(await here.order_record()).key}.held")


async def test_uncancellable_withdrawal_is_recorded_in_timeline(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.process_all()

    async def refuses(*_: object) -> None:
        raise LisRejected("already measured")

    here.agent.adapters._lis.cancel = refuses  # type: ignore[method-assign]
    withdraw_whole(here)
    await settle(here)
    assert any("already measured" in event.text for event in await here.events())
    assert (await here.order_record()).state is OrderState.CLOSED
    assert not [e for e in await here.jobs() if e.state is JobState.DEAD_LETTER]

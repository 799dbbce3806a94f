"""What a person may decide about jobs, and what follows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import JobState, LineState, OrderState
from lab_agent.errors import InvalidTransitionError, LisRejected
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.workflow import operator_jobs
from tests.harness.fault_injection import FaultyLis
from tests.integration.workflow.conftest import Scenario

MakeScenario = Callable[..., Scenario]


async def test_dismissed_submit_cancels_order_with_note(make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order that shall not be submitted is cancelled with the operator's note."""
    scenario = make_scenario(2)

    async def refuse(*_: object) -> None:
        raise LisRejected("no such department")

    monkeypatch.setattr(FaultyLis, "prepare", refuse)
    await scenario.process_all()
    (submit,) = [each for each in await scenario.jobs() if each.kind is JobKind.SUBMIT_ORDER]
    assert submit.state is JobState.DEAD_LETTER
    now = scenario.world.clock.now()
    await operator_jobs.dismiss_job(scenario.world.store, submit.id, by="eve", note="not done here", now=now)
    await scenario.world.drain(scenario.agent)
    assert [line.state for line in await scenario.lines()] == [LineState.CANCELLED] * 2
    assert {tuple(scenario.outputs(task)) for task in scenario.line_tasks} == {("not done here",)}
    assert scenario.status() == "cancelled"
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def test_fetch_order_job_cannot_be_dismissed(make_scenario: MakeScenario) -> None:
    """An order is not left without an assessment."""
    scenario = make_scenario(1)
    await scenario.agent.poll.run()
    (fetch,) = await scenario.jobs()
    with pytest.raises(InvalidTransitionError):
        await operator_jobs.dismiss_job(scenario.world.store, fetch.id, by="eve", note="no", now=scenario.world.clock.now())


async def test_bulk_retry_skips_doubtful_submit(make_scenario: MakeScenario) -> None:
    """An order whose handover is in doubt is not submitted again along with the other retries."""
    scenario = make_scenario(1)
    await scenario.assess()
    (submit,) = [each for each in await scenario.jobs() if each.kind is JobKind.SUBMIT_ORDER]

    def leave_in_doubt(uow: UnitOfWork) -> None:
        now, lease = scenario.world.clock.now(), timedelta(seconds=5)
        (claimed,) = uow.jobs.claim({frozenset({JobKind.SUBMIT_ORDER}): 1}, owner="x", now=now, lease=lease)
        uow.jobs.save(claimed.needs_review(now, "nobody can tell"))
        uow.commit()

    await scenario.world.store.run(leave_in_doubt)
    with pytest.raises(InvalidTransitionError, match=f"outbox done {submit.id}"):
        await operator_jobs.retry_order(
            scenario.world.store, scenario.world.order_key_of(scenario.task), by="eve", now=scenario.world.clock.now()
        )
    assert scenario.world.lis.submitted == []

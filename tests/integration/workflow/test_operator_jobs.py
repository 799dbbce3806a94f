"""The desk: what a person may decide, and what follows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from lab_agent.domain.records import JobKind
from lab_agent.domain.state_machines import JobState, LineState, OrderState
from lab_agent.errors import InvalidTransitionError, LisRejected
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.workflow import operator_jobs
from tests.harness.fault_injection import FaultyLis
from tests.integration.workflow.conftest import Scenario

MakeScene = Callable[..., Scenario]


async def test_dismissed_submit_cancels_order_with_note(make_scenario: MakeScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order that shall not be submitted is cancelled with the operator's note."""
    here = make_scenario(2)

    async def refuse(*_: object) -> None:
        raise LisRejected("no such department")

    monkeypatch.setattr(FaultyLis, "prepare", refuse)
    await here.process_all()
    (handover,) = [each for each in await here.jobs() if each.kind is JobKind.SUBMIT_ORDER]
    assert handover.state is JobState.DEAD_LETTER
    now = here.world.clock.now()
    await operator_jobs.dismiss_job(here.world.store, handover.id, by="eve", note="not done here", now=now)
    await here.world.drain(here.agent)
    assert [line.state for line in await here.lines()] == [LineState.CANCELLED] * 2
    assert {tuple(here.outputs(task)) for task in here.line_tasks} == {("not done here",)}
    assert here.status() == "cancelled"
    assert (await here.order_record()).state is OrderState.CLOSED


async def test_fetch_order_job_cannot_be_dismissed(make_scenario: MakeScene) -> None:
    """An order is not left without an assessment."""
    here = make_scenario(1)
    await here.agent.poll.run()
    (look,) = await here.jobs()
    with pytest.raises(InvalidTransitionError):
        await operator_jobs.dismiss_job(here.world.store, look.id, by="eve", note="no", now=here.world.clock.now())


async def test_bulk_retry_skips_doubtful_submit(make_scenario: MakeScene) -> None:
    """An order whose handover is in doubt is not submitted again along with the other retries."""
    here = make_scenario(1)
    await here.assess()
    (handover,) = [each for each in await here.jobs() if each.kind is JobKind.SUBMIT_ORDER]

    def doubt(uow: UnitOfWork) -> None:
        now, lease = here.world.clock.now(), timedelta(seconds=5)
        (claimed,) = uow.jobs.claim({JobKind.SUBMIT_ORDER}, owner="x", now=now, lease=lease, limit=1)
        uow.jobs.save(claimed.needs_review(now, "nobody can tell"))
        uow.commit()

    await here.world.store.run(doubt)
    with pytest.raises(InvalidTransitionError, match=f"outbox done {handover.id}"):
        await operator_jobs.retry_order(
            here.world.store, here.world.order_key_of(here.task), by="eve", now=here.world.clock.now()
        )
    assert here.world.lis.submitted == []

"""The desk: what a person may decide, and what follows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from lab_agent.domain.journal import EffectKind
from lab_agent.domain.lifecycle import EffectState, LineState, OrderState
from lab_agent.errors import IllegalMoveError, LisRefusal
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps import desk
from tests.simulation.seams import LivingLis
from tests.steps.conftest import Scene

MakeScene = Callable[..., Scene]


async def test_an_order_that_shall_not_be_handed_over_is_cancelled_with_the_note(
    scene: MakeScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = scene(2)

    async def refuse(*_: object) -> None:
        raise LisRefusal("no such department")

    monkeypatch.setattr(LivingLis, "prepare", refuse)
    await here.arrive()
    (handover,) = [each for each in await here.effects() if each.kind is EffectKind.HANDOVER]
    assert handover.state is EffectState.PARKED
    now = here.world.clock.now()
    await desk.dismiss_effect(here.world.store, handover.id, by="eve", note="not done here", now=now)
    await here.world.drain(here.agent)
    assert [line.state for line in await here.lines()] == [LineState.CANCELLED] * 2
    assert {tuple(here.outputs(task)) for task in here.line_tasks} == {("not done here",)}
    assert here.status() == "cancelled"
    assert (await here.record()).state is OrderState.CLOSED


async def test_an_order_is_not_left_unjudged(scene: MakeScene) -> None:
    here = scene(1)
    await here.agent.poll.run()
    (look,) = await here.effects()
    with pytest.raises(IllegalMoveError):
        await desk.dismiss_effect(here.world.store, look.id, by="eve", note="no", now=here.world.clock.now())


async def test_a_doubtful_handover_is_not_repeated_along_with_the_rest(scene: MakeScene) -> None:
    here = scene(1)
    await here.judge()
    (handover,) = [each for each in await here.effects() if each.kind is EffectKind.HANDOVER]

    def doubt(uow: UnitOfWork) -> None:
        now, lease = here.world.clock.now(), timedelta(seconds=5)
        (claimed,) = uow.effects.claim({EffectKind.HANDOVER}, owner="x", now=now, lease=lease, limit=1)
        uow.effects.save(claimed.for_review(now, "nobody can tell"))
        uow.commit()

    await here.world.store.run(doubt)
    with pytest.raises(IllegalMoveError, match=f"outbox done {handover.id}"):
        await desk.retry_order(here.world.store, here.world.key(here.task), by="eve", now=here.world.clock.now())
    assert here.world.lis.submitted == []

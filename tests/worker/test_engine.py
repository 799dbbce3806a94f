"""The engine: what follows upon each failure, and who may write."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from lab_agent.domain.journal import Effect, EffectKind
from lab_agent.domain.lifecycle import EffectState
from lab_agent.errors import (
    Failure,
    IllegalMoveError,
    LabAgentError,
    OutcomeUnknown,
    PermanentFailure,
    ServiceUnavailable,
    StoreUnreachableError,
    TemporaryFailure,
)
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps.handler import Claim, Conclusion
from tests.worker.conftest import LEASE, Bench


def raising(failure: BaseException, *, begun: bool = False) -> object:
    async def deed(claim: Claim) -> Conclusion:
        if begun:
            await claim.begin()
        raise failure

    return deed


async def test_what_is_done_is_done_once(bench: Bench) -> None:
    await bench.add()
    assert await bench.turn() == 1
    assert await bench.turn() == 0
    assert bench.handler.asked == ["do e"]
    assert bench.tried == [("line_task", "done")]


@pytest.mark.parametrize(
    ("failure", "begun", "state", "wait"),
    [
        (TemporaryFailure("busy"), False, EffectState.DUE, 2),
        (TemporaryFailure("busy", retry_after=77), False, EffectState.DUE, 77),
        (TemporaryFailure("busy"), True, EffectState.DUE, 2),
        (OutcomeUnknown("silence"), True, EffectState.UNKNOWN, 2),
        (PermanentFailure("no"), True, EffectState.PARKED, 0),
    ],
)
async def test_what_follows_upon_a_failure(bench: Bench, failure: Failure, begun: bool, state: EffectState, wait: int) -> None:
    await bench.add()
    bench.handler.deed = raising(failure, begun=begun)  # type: ignore[assignment]
    await bench.turn()
    effect = await bench.effect()
    assert (effect.state, effect.reason) == (state, str(failure))
    assert effect.due_at == bench.clock.now() + timedelta(seconds=wait)
    assert effect.begun is (begun and state is not EffectState.DUE), "nothing was felt outside: the next try starts afresh"


async def test_an_unknown_outcome_is_looked_at_before_it_is_done_again(bench: Bench) -> None:
    await bench.add()
    bench.handler.deed = raising(OutcomeUnknown("silence"), begun=True)  # type: ignore[assignment]
    await bench.turn()
    bench.clock.advance(3)
    bench.handler.deed = raising(TemporaryFailure("cannot look"), begun=False)  # type: ignore[assignment]
    await bench.turn()
    assert (await bench.effect()).state is EffectState.UNKNOWN, "a look that failed tells nothing"
    bench.clock.advance(10)
    bench.handler.deed = None
    await bench.turn()
    assert bench.handler.asked == ["do e", "look e", "look e"]
    assert (await bench.effect()).state is EffectState.DONE


@pytest.mark.parametrize(("begun", "state"), [(False, EffectState.PARKED), (True, EffectState.REVIEW)])
async def test_a_bug_parks_its_effect_and_the_good_ones_go_on(bench: Bench, begun: bool, state: EffectState) -> None:
    await bench.add("bad")
    await bench.add("good")

    async def deed(claim: Claim) -> Conclusion:
        if claim.effect.once == "bad":
            if begun:
                await claim.begin()
            raise ZeroDivisionError
        return lambda _, effect: effect.done(effect.changed_at)

    bench.handler.deed = deed
    await bench.turn()
    assert (await bench.effect(1)).state is state
    assert "internal error ZeroDivisionError" in str((await bench.effect(1)).reason)
    assert (await bench.effect(2)).state is EffectState.DONE


async def test_a_conclusion_that_makes_an_illegal_move_writes_nothing_of_itself(bench: Bench) -> None:
    await bench.add()

    def conclusion(uow: UnitOfWork, effect: Effect) -> Effect:
        uow.book.note("half", "written")
        raise IllegalMoveError("no such move")

    async def deed(_: Claim) -> Conclusion:
        return conclusion

    bench.handler.deed = deed
    await bench.turn()
    effect = await bench.effect()
    assert effect.state is EffectState.PARKED
    assert "no such move" in str(effect.reason)
    assert await bench.store.run(lambda uow: uow.book.noted("half")) is None


async def test_what_an_owner_concludes_too_late_is_dropped(bench: Bench) -> None:
    await bench.add()
    (effect,) = await bench.engine.claim([EffectKind.LINE_TASK], 1)
    bench.clock.advance(LEASE.total_seconds() + 1)
    other = bench.another("two")
    assert await bench.turn(other) == 1

    async def deed(_: Claim) -> Conclusion:
        def conclusion(uow: UnitOfWork, late: Effect) -> Effect:
            uow.book.note("late", "written")
            return late.parked(bench.clock.now(), "late")

        return conclusion

    bench.handler.deed = deed
    await bench.engine.work(effect)
    assert (await bench.effect()).state is EffectState.DONE
    assert await bench.store.run(lambda uow: uow.book.noted("late")) is None


async def test_an_effect_that_was_never_begun_needs_no_look_after_its_worker_died(bench: Bench) -> None:
    await bench.add()
    await bench.engine.claim([EffectKind.LINE_TASK], 1)
    bench.clock.advance(LEASE.total_seconds() + 1)
    await bench.turn(bench.another("two"))
    assert bench.handler.asked == ["do e"]


async def test_an_effect_that_was_begun_is_looked_at_after_its_worker_died(bench: Bench) -> None:
    await bench.add()
    died = asyncio.Event()

    async def deed(claim: Claim) -> Conclusion:
        await claim.begin()
        died.set()
        await asyncio.Event().wait()
        raise AssertionError

    bench.handler.deed = deed
    (effect,) = await bench.engine.claim([EffectKind.LINE_TASK], 1)
    work = asyncio.create_task(bench.engine.work(effect))
    await asyncio.wait_for(died.wait(), 5)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    bench.handler.deed = None
    bench.clock.advance(LEASE.total_seconds() + 1)
    await bench.turn(bench.another("two"))
    assert bench.handler.asked == ["do e", "look e"]


async def test_one_lane_is_worked_on_in_its_order(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        await bench.add(name, lane="one")
    while await bench.turn():
        pass
    assert bench.handler.asked == ["do a", "do b", "do c"]


async def test_a_parked_effect_lets_its_lane_go_on(bench: Bench) -> None:
    await bench.add("a", lane="one")
    await bench.add("b", lane="one")
    bench.handler.deed = raising(PermanentFailure("no"))  # type: ignore[assignment]
    await bench.turn()
    bench.handler.deed = None
    await bench.turn()
    assert (await bench.effect(2)).state is EffectState.DONE


async def test_a_service_that_is_away_is_told_of_once_however_much_waits(bench: Bench) -> None:
    for number in range(5):
        await bench.add(f"e{number}")
    bench.handler.deed = raising(ServiceUnavailable("nobody there"))  # type: ignore[assignment]
    await bench.turn()
    closed = await bench.write(lambda uow: [uow.book.close_alert("exchange.away", now=bench.clock.now()) for _ in range(2)])
    assert closed == [True, False]


async def test_a_store_that_is_away_leaves_the_effect_to_its_lease(bench: Bench) -> None:
    await bench.add()
    (effect,) = await bench.engine.claim([EffectKind.LINE_TASK], 1)
    run, bench.store.run = bench.store.run, _away  # type: ignore[method-assign]
    await bench.engine.work(effect)
    bench.store.run = run  # type: ignore[method-assign]
    assert (await bench.effect()).state is EffectState.IN_FLIGHT
    bench.clock.advance(LEASE.total_seconds() + 1)
    await bench.turn()
    assert (await bench.effect()).state is EffectState.DONE


async def _away(_: object) -> None:
    raise StoreUnreachableError


async def test_two_workers_share_what_is_due_and_none_is_done_twice(bench: Bench) -> None:
    for number in range(40):
        await bench.add(f"e{number}")
    other = bench.another("two")

    async def all_of(engine: object) -> None:
        while effects := await engine.claim([EffectKind.LINE_TASK], 3):  # type: ignore[attr-defined]
            await asyncio.gather(*(engine.work(effect) for effect in effects))  # type: ignore[attr-defined]

    await asyncio.gather(all_of(bench.engine), all_of(other))
    assert sorted(bench.handler.asked) == sorted(f"do e{number}" for number in range(40))


def test_every_failure_is_of_our_own_tree() -> None:
    assert issubclass(Failure, LabAgentError)

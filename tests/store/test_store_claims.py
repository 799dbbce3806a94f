"""The outbox: claims, leases, lanes and fences."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from lab_agent.domain.journal import EffectKind
from lab_agent.domain.lifecycle import EffectState
from lab_agent.errors import LeaseLostError

SECOND = timedelta(seconds=1)
LEASE = timedelta(minutes=1)


async def test_an_effect_comes_back_as_it_went_in(do, make):
    payload = {"value": Decimal("1.20"), "long": Decimal("0.123456789012345678901234567890"), "list": [1, "ё", None, True]}
    new = make.effect("a", payload=payload, order="R1", kind=EffectKind.DELIVER)
    assert await do(lambda uow: uow.effects.add(new)) is True
    (effect,) = await do(lambda uow: uow.effects.of_order("R1"))
    assert effect.payload == payload
    assert [str(effect.payload[name]) for name in ("value", "long")] == ["1.20", "0.123456789012345678901234567890"]
    assert (effect.once, effect.kind, effect.state, effect.begun) == ("a", EffectKind.DELIVER, EffectState.DUE, False)
    assert (effect.due_at, effect.attempts, effect.fence, effect.owner) == (make.now, 0, 0, None)


async def test_once_is_once(do, make):
    assert await do(lambda uow: (uow.effects.add(make.effect("a")), uow.effects.add(make.effect("a")))) == (True, False)
    assert await do(lambda uow: uow.effects.add(make.effect("a"))) is False
    assert len(await do.claim()) == 1


async def test_a_claim_is_a_lease(do, make):
    await do(lambda uow: uow.effects.add(make.effect("a")))
    (mine,) = await do.claim(owner="me")
    assert (mine.state, mine.owner, mine.fence, mine.attempts) == (EffectState.IN_FLIGHT, "me", 1, 1)
    assert mine.lease_until == make.now + LEASE
    assert await do(lambda uow: uow.effects.get(mine.id)) == mine
    assert await do.claim(owner="other") == ()


async def test_what_was_done_is_not_claimed_again(do, make):
    await do(lambda uow: uow.effects.add(make.effect("a", order="R1")))
    (mine,) = await do.claim()
    await do(lambda uow: uow.effects.save(mine.done(make.now)))
    assert await do.claim(now=make.now + timedelta(days=1)) == ()
    assert await do(lambda uow: uow.effects.of_order("R1")) == ()
    (done,) = await do(lambda uow: uow.effects.of_order("R1", open_only=False))
    assert done.state is EffectState.DONE


async def test_only_due_ones_of_the_kinds_asked_for(do, make):
    await do(lambda uow: uow.effects.add(make.effect("later", due_at=make.now + SECOND)))
    await do(lambda uow: uow.effects.add(make.effect("look", kind=EffectKind.LOOK)))
    assert await do.claim(kinds=[EffectKind.LINE_TASK]) == ()
    assert await do.claim(kinds=[]) == ()
    assert await do.claim(limit=0) == ()
    assert [each.once for each in await do.claim(now=make.now + SECOND)] == ["look", "later"]


async def test_longest_due_first_and_no_more_than_asked_for(do, make):
    for minutes in (1, 5, 3, 4, 2):
        due_at = make.now - timedelta(minutes=minutes)
        await do(lambda uow, due_at=due_at, name=str(minutes): uow.effects.add(make.effect(name, due_at=due_at)))
    assert [each.once for each in await do.claim(limit=2)] == ["5", "4"]
    assert [each.once for each in await do.claim(limit=9)] == ["3", "2", "1"]


async def test_a_lane_is_done_in_order(do, make):
    for once in ("a", "b", "c"):
        await do(lambda uow, once=once: uow.effects.add(make.effect(once, lane="same")))
    await do(lambda uow: uow.effects.add(make.effect("other", lane="other")))
    first, other = await do.claim()
    assert (first.once, other.once) == ("a", "other")
    assert await do.claim() == ()
    await do(lambda uow: uow.effects.save(first.done(make.now)))
    (second,) = await do.claim()
    assert second.once == "b"


@pytest.mark.parametrize(("ending", "goes_on"), [("parked", True), ("obsolete", True), ("for_review", False), ("again", False)])
async def test_what_holds_up_a_lane(do, make, ending, goes_on):
    for once in ("a", "b"):
        await do(lambda uow, once=once: uow.effects.add(make.effect(once, lane="same")))
    (first,) = await do.claim()
    later = make.now + timedelta(hours=1)
    ended = first.again(make.now, later, "r") if ending == "again" else getattr(first, ending)(make.now, "reason")
    await do(lambda uow: uow.effects.save(ended))
    assert [each.once for each in await do.claim()] == (["b"] if goes_on else [])


async def test_one_that_comes_back_waits_for_the_one_in_flight(do, make):
    for once in ("a", "b"):
        await do(lambda uow, once=once: uow.effects.add(make.effect(once, lane="same")))
    (first,) = await do.claim()
    parked = first.parked(make.now, "no right")
    await do(lambda uow: uow.effects.save(parked))
    (second,) = await do.claim()
    await do(lambda uow: uow.effects.save(replace(parked, state=EffectState.DUE)))
    assert await do.claim() == ()
    await do(lambda uow: uow.effects.save(second.done(make.now)))
    assert [each.once for each in await do.claim()] == ["a"]


async def test_a_lapsed_lease_makes_it_unknown_never_due(do, make):
    await do(lambda uow: uow.effects.add(make.effect("a")))
    (lost,) = await do.claim(owner="dead")
    assert await do.claim(owner="new", now=make.now + LEASE - SECOND) == ()
    (found,) = await do.claim(owner="new", now=make.now + LEASE)
    assert (found.state, found.owner, found.fence, found.attempts) == (EffectState.UNKNOWN, "new", 3, 2)
    for late in (lost.done(make.now), lost.beginning(make.now)):
        with pytest.raises(LeaseLostError):
            await do(lambda uow, late=late: uow.effects.save(late))
    with pytest.raises(LeaseLostError):
        await do(lambda uow: uow.effects.prolong(lost, now=make.now, lease=LEASE))
    assert await do(lambda uow: uow.effects.get(found.id)) == found


async def test_lapsing_does_not_need_the_kind_to_be_asked_for(do, make):
    await do(lambda uow: uow.effects.add(make.effect("a")))
    (lost,) = await do.claim()
    assert await do.claim(kinds=[EffectKind.LOOK], now=make.now + LEASE) == ()
    assert (await do(lambda uow: uow.effects.get(lost.id))).state is EffectState.UNKNOWN


async def test_an_unknown_one_is_claimed_when_its_time_has_come(do, make):
    await do(lambda uow: uow.effects.add(make.effect("a")))
    (mine,) = await do.claim()
    await do(lambda uow: uow.effects.save(mine.unknown(make.now, make.now + SECOND, "no answer")))
    assert await do.claim() == ()
    (again,) = await do.claim(now=make.now + SECOND)
    assert (again.state, again.fence) == (EffectState.UNKNOWN, 2)
    assert await do.claim(now=make.now + SECOND) == ()


async def test_an_unknown_one_whose_looker_died_is_claimed_again(do, make):
    await do(lambda uow: uow.effects.add(make.effect("a")))
    (mine,) = await do.claim()
    await do(lambda uow: uow.effects.save(mine.unknown(make.now, make.now, "no answer")))
    (looker,) = await do.claim(owner="looker")
    (next_one,) = await do.claim(owner="next", now=make.now + LEASE)
    assert (next_one.owner, next_one.fence) == ("next", looker.fence + 1)


async def test_the_heartbeat_keeps_the_lease(do, make):
    await do(lambda uow: uow.effects.add(make.effect("a")))
    (mine,) = await do.claim()
    later = make.now + LEASE - SECOND
    await do(lambda uow: uow.effects.prolong(mine, now=later, lease=LEASE))
    assert await do.claim(now=make.now + LEASE) == ()
    await do(lambda uow: uow.effects.save(mine.done(later)))
    with pytest.raises(LeaseLostError):
        await do(lambda uow: uow.effects.prolong(mine, now=later, lease=LEASE))


async def test_beginning_is_kept(do, make):
    await do(lambda uow: uow.effects.add(make.effect("a")))
    (mine,) = await do.claim()
    begun = mine.beginning(make.now)
    await do(lambda uow: uow.effects.save(begun))
    assert await do(lambda uow: uow.effects.get(mine.id)) == begun


async def test_waking_ends_the_waiting_of_one_kind(do, make):
    far = make.now + timedelta(days=1)
    await do(lambda uow: uow.effects.add(make.effect("a", due_at=far)))
    await do(lambda uow: uow.effects.add(make.effect("b", due_at=far, kind=EffectKind.HANDOVER)))
    await do(lambda uow: uow.effects.add(make.effect("now")))
    assert await do(lambda uow: uow.effects.wake(EffectKind.LINE_TASK, now=make.now)) == 1
    assert sorted(each.once for each in await do.claim()) == ["a", "now"]


async def test_what_asks_for_a_person(do, make):
    for name in ("a", "b", "c", "d"):
        await do(lambda uow, name=name: uow.effects.add(make.effect(name)))
    assert await do(lambda uow: uow.effects.asking()) == ()
    first, second, third, _ = await do.claim(limit=4)
    for left in (second.for_review(make.now, "who knows"), first.parked(make.now, "no right"), third.done(make.now)):
        await do(lambda uow, left=left: uow.effects.save(left))
    found = await do(lambda uow: uow.effects.asking())
    assert [(effect.once, effect.state.value) for effect in found] == [("a", "parked"), ("b", "review")]


async def test_an_effect_that_is_not_there(do, make):
    await do(lambda uow: uow.effects.add(make.effect("a")))
    (mine,) = await do.claim()
    assert await do(lambda uow: uow.effects.get(4711)) is None
    with pytest.raises(LeaseLostError):
        await do(lambda uow: uow.effects.save(replace(mine, id=4711)))

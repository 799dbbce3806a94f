"""Groups, outages, the pace of the poll and the schedule."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lab_agent.domain.journal import EffectKind
from lab_agent.errors import LisUnavailable, PermanentFailure, ServiceUnavailable, SignInNeeded, StoreUnreachableError
from lab_agent.steps.handler import Claim, Conclusion
from lab_agent.worker.groups import GROUPS, OUTWARD, Group, make_groups
from lab_agent.worker.outages import EXCHANGE, SIGN_IN, Outages, part_of_exchange
from lab_agent.worker.polling import PollPace
from lab_agent.worker.ticks import Ticks
from tests.doubles import service_answers, service_is_silent
from tests.worker.conftest import Bench


async def until(so: object, within: float = 5.0) -> None:
    async with asyncio.timeout(within):
        while not so():  # type: ignore[operator]  # noqa: ASYNC110 - waits for what nothing announces
            await asyncio.sleep(0.002)


def test_every_kind_of_effect_belongs_to_exactly_one_group() -> None:
    assert sorted(kind for kinds in GROUPS.values() for kind in kinds) == sorted(EffectKind)


async def test_observing_runs_no_group_that_is_felt_outside(bench: Bench) -> None:
    members = make_groups(bench.engine, bench.outages, width=2, observe=True).members
    assert not OUTWARD & members.keys()
    felt = {EffectKind.HANDOVER, EffectKind.LIS_CANCEL, EffectKind.DELIVER, EffectKind.LINE_TASK, EffectKind.ORDER_TASK}
    assert not felt & {kind for name in members for kind in GROUPS[name]}


async def test_looks_go_on_side_by_side_up_to_the_width(bench: Bench) -> None:
    for number in range(7):
        await bench.add(f"look{number}", kind=EffectKind.LOOK)
    inside, most, gate = 0, 0, asyncio.Event()

    async def deed(_: Claim) -> Conclusion:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await gate.wait()
        inside -= 1
        return lambda _, effect: effect.done(effect.changed_at)

    bench.handler.deed = deed
    group = Group(GROUPS["orders"], bench.engine, bench.outages, width=3)
    loop = asyncio.create_task(group.run())
    await until(lambda: inside == 3)
    gate.set()
    await until(lambda: len(bench.handler.asked) == 7 and not inside)
    group.stop()
    await asyncio.wait_for(loop, 5)
    assert most == 3


async def test_a_slow_neighbour_stalls_only_its_own_group(bench: Bench) -> None:
    await bench.add("slow", kind=EffectKind.HANDOVER)
    await bench.add("quick", kind=EffectKind.LINE_TASK)
    gate = asyncio.Event()

    async def deed(claim: Claim) -> Conclusion:
        if claim.effect.once == "slow":
            await gate.wait()
        return lambda _, effect: effect.done(effect.changed_at)

    bench.handler.deed = deed
    groups = make_groups(bench.engine, bench.outages, width=1, observe=False)
    loops = [asyncio.create_task(group.run()) for group in groups.members.values()]
    await until(lambda: ("line_task", "done") in bench.tried)
    assert ("handover", "done") not in bench.tried
    gate.set()
    await until(lambda: ("handover", "done") in bench.tried)
    groups.stop()
    await asyncio.wait_for(asyncio.gather(*loops), 5)


async def test_stopping_finishes_what_is_under_way_and_begins_nothing_new(bench: Bench) -> None:
    await bench.add("first")
    await bench.add("second")
    started, gate = asyncio.Event(), asyncio.Event()

    async def deed(_: Claim) -> Conclusion:
        started.set()
        await gate.wait()
        return lambda _, effect: effect.done(effect.changed_at)

    bench.handler.deed = deed
    group = Group(GROUPS["tasks"], bench.engine, bench.outages, width=1)
    loop = asyncio.create_task(group.run())
    await asyncio.wait_for(started.wait(), 5)
    group.stop()
    gate.set()
    await asyncio.wait_for(loop, 5)
    assert bench.tried == [("line_task", "done")]


async def test_an_outage_is_told_once_at_its_start_and_once_at_its_end(bench: Bench) -> None:
    outages = Outages(bench.store, bench.clock, service_answers)
    for _ in range(3):
        await outages.notice(ServiceUnavailable("nobody there"))
    assert outages.explains(ServiceUnavailable("again"))
    assert await outages.end(EXCHANGE, SIGN_IN)
    assert not await outages.end(EXCHANGE, SIGN_IN)
    assert not outages.explains(ServiceUnavailable("again"))


async def test_an_alert_that_an_earlier_process_left_open_is_closed(bench: Bench) -> None:
    await Outages(bench.store, bench.clock, service_answers).notice(SignInNeeded("sign in"))
    fresh = Outages(bench.store, bench.clock, service_answers)
    assert not await fresh.end(SIGN_IN), "this process knew of none"
    assert not await bench.write(lambda uow: uow.book.close_alert(SIGN_IN, now=bench.clock.now()))


async def test_one_kind_of_work_that_fails_has_an_outage_of_its_own(bench: Bench) -> None:
    outages = Outages(bench.store, bench.clock, service_answers)
    await outages.notice(ServiceUnavailable("503"), "line_task")
    assert outages.explains(ServiceUnavailable("503"), "line_task")
    assert not outages.explains(ServiceUnavailable("503"), "deliver")
    assert not await outages.end(EXCHANGE), "a good poll says nothing about Task updates"
    assert outages.explains(ServiceUnavailable("503"), "line_task")
    assert await outages.end(part_of_exchange("line_task"))
    assert not outages.explains(ServiceUnavailable("503"), "line_task")


async def test_a_service_that_answers_nothing_is_one_outage_whatever_failed(bench: Bench) -> None:
    outages = Outages(bench.store, bench.clock, service_is_silent)
    for kind in ("line_task", "deliver", "look"):
        await outages.notice(ServiceUnavailable("nobody there"), kind)
    assert await outages.end(EXCHANGE)
    assert not outages.explains(ServiceUnavailable("nobody there"), "deliver")


async def test_an_outage_of_the_store_explains_its_failures(bench: Bench) -> None:
    outages = Outages(bench.store, bench.clock, service_answers)
    await outages.notice(StoreUnreachableError())
    assert outages.explains(StoreUnreachableError())
    assert outages.store_is_away
    outages.store_back()
    assert not outages.store_is_away
    assert not outages.explains(StoreUnreachableError())


async def test_an_alert_that_could_not_be_written_is_written_later(bench: Bench) -> None:
    class Full:
        broken = True

        async def run(self, work: Any) -> Any:
            if self.broken:
                raise StoreUnreachableError
            return await bench.store.run(work)

    store = Full()
    outages = Outages(store, bench.clock, service_answers)
    with pytest.raises(StoreUnreachableError):
        await outages.begin("some.thing", "broken")
    await outages.notice(StoreUnreachableError())
    store.broken = False
    await outages.begin("some.thing", "broken")
    assert not outages.store_is_away, "something was written"
    assert await bench.write(lambda uow: uow.book.close_alert("some.thing", now=bench.clock.now()))


async def test_what_is_no_outage_opens_none(bench: Bench) -> None:
    outages = Outages(bench.store, bench.clock, service_answers)
    await outages.notice(PermanentFailure("no"))
    await outages.notice(LisUnavailable("told by collection"))
    assert not outages.explains(PermanentFailure("no"))
    assert not outages.explains(LisUnavailable("told by collection"))


def test_the_poll_slows_down_while_nothing_comes_and_is_quick_again_after_a_find() -> None:
    pace = PollPace(10, 100)
    waits = [10.0]
    for _ in range(10):
        waits.append(pace.after(waits[-1], 0))
    assert waits[:4] == [10, 15, 22.5, 33.75]
    assert waits[-1] == 100
    assert pace.after(100, 1) == 10


@pytest.mark.parametrize("shortest", [10.0, 200.0])
def test_the_poll_never_waits_less_than_its_shortest(shortest: float) -> None:
    assert PollPace(shortest, 100).after(0, 0) >= shortest


async def test_a_tick_that_fails_is_told_and_comes_again(bench: Bench) -> None:
    ticks, times = Ticks(bench.outages), 0

    async def tick() -> None:
        nonlocal times
        times += 1
        if times == 1:
            raise ZeroDivisionError
        if times == 2:
            raise ServiceUnavailable("nobody there")

    ticks.every(0.01, "tick", tick)
    ticks.start()
    await until(lambda: times >= 3)
    ticks.stop()
    assert bench.outages.explains(ServiceUnavailable("still"))

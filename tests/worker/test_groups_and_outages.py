"""Groups, outages, the pace of the poll and the schedule."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lab_agent.domain.journal import JobKind
from lab_agent.errors import AuthenticationRequired, LisUnavailable, PermanentFailure, ServiceUnavailable, StoreUnreachableError
from lab_agent.steps.handler import Completion, Lease
from lab_agent.worker.groups import JOB_QUEUES, OUTBOUND_QUEUES, WorkerLoop, build_worker_loops
from lab_agent.worker.outages import EXCHANGE_OUTAGE, SIGN_IN_OUTAGE, OutageTracker, exchange_part_outage
from lab_agent.worker.polling import PollInterval
from lab_agent.worker.ticks import Scheduler
from tests.doubles import service_reachable, service_unreachable
from tests.worker.conftest import WorkerBench


async def until(so: object, within: float = 5.0) -> None:
    async with asyncio.timeout(within):
        while not so():  # type: ignore[operator]  # noqa: ASYNC110 - waits for what nothing announces
            await asyncio.sleep(0.002)


def test_every_kind_of_effect_belongs_to_exactly_one_group() -> None:
    assert sorted(kind for kinds in JOB_QUEUES.values() for kind in kinds) == sorted(JobKind)


async def test_observing_runs_no_group_that_is_felt_outside(bench: WorkerBench) -> None:
    members = build_worker_loops(bench.runner, bench.outages, concurrency=2, observe=True).loops
    assert not OUTBOUND_QUEUES & members.keys()
    felt = {
        JobKind.SUBMIT_ORDER,
        JobKind.CANCEL_AT_LIS,
        JobKind.DELIVER_REPORT,
        JobKind.UPDATE_LINE_TASK,
        JobKind.UPDATE_ORDER_TASK,
    }
    assert not felt & {kind for name in members for kind in JOB_QUEUES[name]}


async def test_looks_go_on_side_by_side_up_to_the_width(bench: WorkerBench) -> None:
    for number in range(7):
        await bench.add_job(f"look{number}", kind=JobKind.FETCH_ORDER)
    inside, most, gate = 0, 0, asyncio.Event()

    async def deed(_: Lease) -> Completion:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await gate.wait()
        inside -= 1
        return lambda _, job: job.complete(job.changed_at)

    bench.handler.behaviour = deed
    group = WorkerLoop(JOB_QUEUES["orders"], bench.runner, bench.outages, concurrency=3)
    loop = asyncio.create_task(group.run())
    await until(lambda: inside == 3)
    gate.set()
    await until(lambda: len(bench.handler.calls) == 7 and not inside)
    group.stop()
    await asyncio.wait_for(loop, 5)
    assert most == 3


async def test_a_slow_neighbour_stalls_only_its_own_group(bench: WorkerBench) -> None:
    await bench.add_job("slow", kind=JobKind.SUBMIT_ORDER)
    await bench.add_job("quick", kind=JobKind.UPDATE_LINE_TASK)
    gate = asyncio.Event()

    async def deed(lease: Lease) -> Completion:
        if lease.job.dedup_key == "slow":
            await gate.wait()
        return lambda _, job: job.complete(job.changed_at)

    bench.handler.behaviour = deed
    groups = build_worker_loops(bench.runner, bench.outages, concurrency=1, observe=False)
    loops = [asyncio.create_task(group.run()) for group in groups.loops.values()]
    await until(lambda: ("update_line_task", "done") in bench.attempts)
    assert ("submit_order", "done") not in bench.attempts
    gate.set()
    await until(lambda: ("submit_order", "done") in bench.attempts)
    groups.stop()
    await asyncio.wait_for(asyncio.gather(*loops), 5)


async def test_stopping_finishes_what_is_under_way_and_begins_nothing_new(bench: WorkerBench) -> None:
    await bench.add_job("first")
    await bench.add_job("second")
    started, gate = asyncio.Event(), asyncio.Event()

    async def deed(_: Lease) -> Completion:
        started.set()
        await gate.wait()
        return lambda _, job: job.complete(job.changed_at)

    bench.handler.behaviour = deed
    group = WorkerLoop(JOB_QUEUES["tasks"], bench.runner, bench.outages, concurrency=1)
    loop = asyncio.create_task(group.run())
    await asyncio.wait_for(started.wait(), 5)
    group.stop()
    gate.set()
    await asyncio.wait_for(loop, 5)
    assert bench.attempts == [("update_line_task", "done")]


async def test_an_outage_is_told_once_at_its_start_and_once_at_its_end(bench: WorkerBench) -> None:
    outages = OutageTracker(bench.store, bench.clock, service_reachable)
    for _ in range(3):
        await outages.record_failure(ServiceUnavailable("nobody there"))
    assert outages.is_known(ServiceUnavailable("again"))
    assert await outages.end(EXCHANGE_OUTAGE, SIGN_IN_OUTAGE)
    assert not await outages.end(EXCHANGE_OUTAGE, SIGN_IN_OUTAGE)
    assert not outages.is_known(ServiceUnavailable("again"))


async def test_an_alert_that_an_earlier_process_left_open_is_closed(bench: WorkerBench) -> None:
    await OutageTracker(bench.store, bench.clock, service_reachable).record_failure(AuthenticationRequired("sign in"))
    fresh = OutageTracker(bench.store, bench.clock, service_reachable)
    assert not await fresh.end(SIGN_IN_OUTAGE), "this process knew of none"
    assert not await bench.write(lambda uow: uow.alerts.close(SIGN_IN_OUTAGE, now=bench.clock.now()))


async def test_one_kind_of_work_that_fails_has_an_outage_of_its_own(bench: WorkerBench) -> None:
    outages = OutageTracker(bench.store, bench.clock, service_reachable)
    await outages.record_failure(ServiceUnavailable("503"), "update_line_task")
    assert outages.is_known(ServiceUnavailable("503"), "update_line_task")
    assert not outages.is_known(ServiceUnavailable("503"), "deliver_report")
    assert not await outages.end(EXCHANGE_OUTAGE), "a good poll says nothing about Task updates"
    assert outages.is_known(ServiceUnavailable("503"), "update_line_task")
    assert await outages.end(exchange_part_outage("update_line_task"))
    assert not outages.is_known(ServiceUnavailable("503"), "update_line_task")


async def test_a_service_that_answers_nothing_is_one_outage_whatever_failed(bench: WorkerBench) -> None:
    outages = OutageTracker(bench.store, bench.clock, service_unreachable)
    for kind in ("update_line_task", "deliver", "look"):
        await outages.record_failure(ServiceUnavailable("nobody there"), kind)
    assert await outages.end(EXCHANGE_OUTAGE)
    assert not outages.is_known(ServiceUnavailable("nobody there"), "deliver_report")


async def test_an_outage_of_the_store_explains_its_failures(bench: WorkerBench) -> None:
    outages = OutageTracker(bench.store, bench.clock, service_reachable)
    await outages.record_failure(StoreUnreachableError())
    assert outages.is_known(StoreUnreachableError())
    assert outages.is_store_down
    outages.store_recovered()
    assert not outages.is_store_down
    assert not outages.is_known(StoreUnreachableError())


async def test_an_alert_that_could_not_be_written_is_written_later(bench: WorkerBench) -> None:
    class Full:
        broken = True

        async def run(self, work: Any) -> Any:
            if self.broken:
                raise StoreUnreachableError
            return await bench.store.run(work)

    store = Full()
    outages = OutageTracker(store, bench.clock, service_reachable)
    with pytest.raises(StoreUnreachableError):
        await outages.begin("some.thing", "broken")
    await outages.record_failure(StoreUnreachableError())
    store.broken = False
    await outages.begin("some.thing", "broken")
    assert not outages.is_store_down, "something was written"
    assert await bench.write(lambda uow: uow.alerts.close("some.thing", now=bench.clock.now()))


async def test_what_is_no_outage_opens_none(bench: WorkerBench) -> None:
    outages = OutageTracker(bench.store, bench.clock, service_reachable)
    await outages.record_failure(PermanentFailure("no"))
    await outages.record_failure(LisUnavailable("told by collection"))
    assert not outages.is_known(PermanentFailure("no"))
    assert not outages.is_known(LisUnavailable("told by collection"))


def test_the_poll_slows_down_while_nothing_comes_and_is_quick_again_after_a_find() -> None:
    pace = PollInterval(10, 100)
    waits = [10.0]
    for _ in range(10):
        waits.append(pace.next_wait(waits[-1], 0))
    assert waits[:4] == [10, 15, 22.5, 33.75]
    assert waits[-1] == 100
    assert pace.next_wait(100, 1) == 10


@pytest.mark.parametrize("shortest", [10.0, 200.0])
def test_the_poll_never_waits_less_than_its_shortest(shortest: float) -> None:
    assert PollInterval(shortest, 100).next_wait(0, 0) >= shortest


async def test_a_tick_that_fails_is_told_and_comes_again(bench: WorkerBench) -> None:
    ticks, times = Scheduler(bench.outages), 0

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
    assert bench.outages.is_known(ServiceUnavailable("still"))

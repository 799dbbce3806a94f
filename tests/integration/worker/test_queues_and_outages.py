"""Queues, outages, the interval of the poll and the schedule."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, select
from structlog.testing import capture_logs

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.job_records import JobKind
from lab_agent.errors import (
    AuthenticationRequired,
    CryptoError,
    ForeignOrigin,
    LabAgentError,
    LisUnavailable,
    PermanentFailure,
    ServiceUnavailable,
    StoreError,
    StoreUnreachableError,
)
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.store.events import SqlAlertRepository
from lab_agent.store.tables import alerts
from lab_agent.worker.job_queues import JOB_QUEUES, OUTBOUND_QUEUES, list_queues
from lab_agent.worker.outages import EXCHANGE_OUTAGE, SIGN_IN_OUTAGE, OutageTracker, exchange_part_outage
from lab_agent.worker.schedule import PollInterval, Scheduler
from tests.fakes.exchange_service import service_reachable, service_unreachable
from tests.harness.clock import wait_until
from tests.integration.worker.conftest import WorkerBench


def test_every_job_kind_belongs_to_one_queue() -> None:
    assert sorted(kind for kinds in JOB_QUEUES.values() for kind in kinds) == sorted(JobKind)


def test_observe_mode_runs_no_outward_queue() -> None:
    members = list_queues(observe=True)
    assert not OUTBOUND_QUEUES & members.keys()
    felt = {
        JobKind.SUBMIT_ORDER,
        JobKind.CANCEL_AT_LIS,
        JobKind.DELIVER_REPORT,
        JobKind.UPDATE_LINE_TASK,
        JobKind.UPDATE_ORDER_TASK,
    }
    assert not felt & {kind for kinds in members.values() for kind in kinds}


async def test_outage_is_reported_once_at_start_and_end(bench: WorkerBench) -> None:
    outages = OutageTracker(bench.store, bench.clock, service_reachable)
    for _ in range(3):
        await outages.record_failure(ServiceUnavailable("nobody there"))
    assert outages.is_known(ServiceUnavailable("again"))
    assert await outages.end(EXCHANGE_OUTAGE, SIGN_IN_OUTAGE)
    assert not await outages.end(EXCHANGE_OUTAGE, SIGN_IN_OUTAGE)
    assert not outages.is_known(ServiceUnavailable("again"))


async def test_alert_left_open_by_earlier_process_is_closed(bench: WorkerBench) -> None:
    await OutageTracker(bench.store, bench.clock, service_reachable).record_failure(AuthenticationRequired("sign in"))
    fresh = OutageTracker(bench.store, bench.clock, service_reachable)
    assert not await fresh.end(SIGN_IN_OUTAGE), "this process knew of none"
    assert not await bench.write(lambda uow: uow.alerts.close(SIGN_IN_OUTAGE, now=bench.clock.now()))


async def test_failing_job_kind_has_its_own_outage(bench: WorkerBench) -> None:
    outages = OutageTracker(bench.store, bench.clock, service_reachable)
    await outages.record_failure(ServiceUnavailable("503"), "update_line_task")
    assert outages.is_known(ServiceUnavailable("503"), "update_line_task")
    assert not outages.is_known(ServiceUnavailable("503"), "deliver_report")
    assert not await outages.end(EXCHANGE_OUTAGE), "a good poll proves nothing about Task updates"
    assert outages.is_known(ServiceUnavailable("503"), "update_line_task")
    assert await outages.end(exchange_part_outage("update_line_task"))
    assert not outages.is_known(ServiceUnavailable("503"), "update_line_task")


async def test_unresponsive_exchange_is_one_outage(bench: WorkerBench) -> None:
    outages = OutageTracker(bench.store, bench.clock, service_unreachable)
    for kind in ("update_line_task", "deliver_report", "fetch_order"):
        await outages.record_failure(ServiceUnavailable("nobody there"), kind)
    assert await outages.end(EXCHANGE_OUTAGE)
    assert not outages.is_known(ServiceUnavailable("nobody there"), "deliver_report")


async def test_store_outage_explains_its_failures(bench: WorkerBench) -> None:
    outages = OutageTracker(bench.store, bench.clock, service_reachable)
    await outages.record_failure(StoreUnreachableError())
    assert outages.is_known(StoreUnreachableError())
    assert outages.is_store_down
    bench.store.health.recovered()
    assert not outages.is_store_down
    assert not outages.is_known(StoreUnreachableError())


async def test_unwritten_alert_is_written_later(bench: WorkerBench) -> None:
    class Full:
        broken = True
        health = bench.store.health

        async def run(self, work: Any) -> Any:
            if self.broken:
                raise StoreUnreachableError
            return await bench.store.run(work)

    store = Full()
    outages = OutageTracker(store, bench.clock, service_reachable)
    with pytest.raises(StoreUnreachableError):
        await outages.begin(AlertKey(ConditionId.DISK_LOW), "broken")
    store.broken = False
    await outages.begin(AlertKey(ConditionId.DISK_LOW), "broken")
    assert await bench.write(lambda uow: uow.alerts.close(AlertKey(ConditionId.DISK_LOW), now=bench.clock.now()))


async def test_ordinary_failures_open_no_outage(bench: WorkerBench) -> None:
    """A failure that is no outage opens none."""
    outages = OutageTracker(bench.store, bench.clock, service_reachable)
    await outages.record_failure(PermanentFailure("no"))
    await outages.record_failure(LisUnavailable("told by collection"))
    assert not outages.is_known(PermanentFailure("no"))
    assert not outages.is_known(LisUnavailable("told by collection"))


def test_poll_interval_grows_when_idle_and_resets() -> None:
    """The poll slows down while nothing comes and is quick again after a find."""
    pace = PollInterval(10, 100)
    waits = [10.0]
    for _ in range(10):
        waits.append(pace.next_wait(waits[-1], 0))
    assert waits[:4] == [10, 15, 22.5, 33.75]
    assert waits[-1] == 100
    assert pace.next_wait(100, 1) == 10


@pytest.mark.parametrize("shortest", [10.0, 200.0])
def test_poll_interval_has_a_minimum(shortest: float) -> None:
    assert PollInterval(shortest, 100).next_wait(0, 0) >= shortest


async def test_failing_scheduled_task_is_reported_and_repeats(bench: WorkerBench) -> None:
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
    await wait_until(lambda: times >= 3)
    ticks.stop()
    assert bench.outages.is_known(ServiceUnavailable("still"))


FAULTS = [
    ValueError("s3cret"),
    KeyError("x"),
    RecursionError(),
    CryptoError(),
    StoreError("no such table"),
    ForeignOrigin("away"),
]


@pytest.mark.parametrize("part", ["poll", "look", "restore", "collect", "reconcile", "retention"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: type(each).__name__)
async def test_unexpected_error_of_task_is_told_and_waits(bench: WorkerBench, fault: Exception, part: str) -> None:
    ticks, times, is_broken = Scheduler(bench.outages), 0, True
    waits: list[float] = []
    ticks.postpone = lambda name, seconds: waits.append(seconds)  # type: ignore[method-assign]

    async def tick() -> None:
        nonlocal times
        times += 1
        if is_broken:
            raise fault

    ticks.every(0.01, part, tick)
    ticks.start()
    await wait_until(lambda: times >= 9)
    assert waits[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    (told,) = await bench.store.run(lambda uow: uow.alerts.all_open())
    assert str(told.key) == f"agent.{'part_fails' if part in {'reconcile', 'retention'} else 'cannot_work'}/{part}"
    assert (told.detail or "").startswith(str(fault) if isinstance(fault, LabAgentError) else type(fault).__name__)
    assert "s3cret" not in told.detail
    is_broken, times = False, 0
    await wait_until(lambda: times >= 2)
    ticks.stop()
    assert await bench.store.run(lambda uow: uow.alerts.all_open()) == ()


async def test_task_with_longer_interval_keeps_it(bench: WorkerBench) -> None:
    ticks, times = Scheduler(bench.outages), 0
    waits: list[float] = []
    ticks.postpone = lambda name, seconds: waits.append(seconds)  # type: ignore[method-assign]

    async def tick() -> None:
        nonlocal times
        times += 1
        raise ValueError

    ticks.every(3600, "retention", tick)
    ticks.start()
    await wait_until(lambda: times >= 1)
    ticks.stop()
    assert waits == []


def count_alerts(uow: UnitOfWork) -> int:
    if isinstance(uow.alerts, SqlAlertRepository):
        return uow.alerts._session.connection(for_writing=False).scalar(select(func.count()).select_from(alerts)) or 0
    return len(uow.alerts._data.alerts)  # type: ignore[attr-defined]


async def test_outage_that_begins_again_soon_is_the_same(bench: WorkerBench) -> None:
    """A service that answers every other minute: one alert, not one a minute."""
    for minute in range(5):
        await bench.outages.begin(EXCHANGE_OUTAGE, f"down at {minute}")
        bench.clock.advance(60)
        await bench.outages.end(EXCHANGE_OUTAGE)
        assert not await bench.write(lambda uow: uow.alerts.close(EXCHANGE_OUTAGE, now=bench.clock.now())), "it is closed"
        bench.clock.advance(60)
    assert await bench.store.run(count_alerts) == 1
    bench.clock.advance(600)
    await bench.outages.begin(EXCHANGE_OUTAGE, "down")
    assert await bench.store.run(count_alerts) == 2


async def test_restart_keeps_the_beginning_of_an_outage_and_is_no_new_one(bench: WorkerBench) -> None:
    began = bench.clock.now()
    await OutageTracker(bench.store, bench.clock, service_reachable).begin(EXCHANGE_OUTAGE, "502")
    bench.clock.advance(hours=2)
    with capture_logs() as lines:
        await OutageTracker(bench.store, bench.clock, service_reachable).begin(EXCHANGE_OUTAGE, "503")
    (alert,) = await bench.store.run_read_only(lambda uow: uow.alerts.all_open())
    assert (alert.since, alert.detail) == (began, "503")
    assert [(each["action"], each["log_level"]) for each in lines] == [("outage_resumed", "info")]


async def test_outage_that_cannot_be_written_is_logged(bench: WorkerBench) -> None:
    async def broken(work: Any) -> Any:
        raise StoreUnreachableError

    outages = OutageTracker(bench.store, bench.clock, service_reachable)
    with capture_logs() as lines, pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.store, "run", broken)
        with pytest.raises(StoreUnreachableError):
            await outages.begin(EXCHANGE_OUTAGE, "502")
    assert [each["action"] for each in lines] == ["outage_started"]

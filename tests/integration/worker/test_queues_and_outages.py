"""Queues, outages, the interval of the poll and the schedule."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select
from structlog.testing import capture_logs

from lab_agent.operations.schedule import PollInterval, Scheduler
from lab_agent.queue.job_queues import JOB_QUEUES, list_queues
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.outages import EXCHANGE_OUTAGE, SIGN_IN_OUTAGE, OutageTracker, exchange_part_outage
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import (
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
from lab_agent.store.tables import alerts
from tests.fakes.exchange_service import service_reachable, service_unreachable
from tests.harness.clock import wait_until
from tests.integration.worker.conftest import WorkerBench


def test_every_job_kind_belongs_to_one_queue() -> None:
    """Observe mode runs none whose jobs anybody would feel."""
    assert sorted(kind for kinds in JOB_QUEUES.values() for kind in kinds) == sorted(JobKind)
    felt = {JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS, JobKind.DELIVER_REPORT}
    felt |= {JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK}
    assert not felt & {kind for kinds in list_queues(observe=True).values() for kind in kinds}


# --- outages


@pytest.fixture
def outages(bench: WorkerBench) -> OutageTracker:
    return OutageTracker(bench.store, bench.clock, service_reachable)


async def test_outage_is_told_once_at_start_and_end(bench: WorkerBench, outages: OutageTracker) -> None:
    """Also what an earlier process has left open ends; what is no outage, or told by others, opens none."""
    for _ in range(3):
        await outages.record_failure(ServiceUnavailable("nobody there"))
    assert outages.is_known(ServiceUnavailable("again"))
    assert await outages.end(EXCHANGE_OUTAGE, SIGN_IN_OUTAGE)
    assert not await outages.end(EXCHANGE_OUTAGE, SIGN_IN_OUTAGE)
    assert not outages.is_known(ServiceUnavailable("again"))
    await outages.record_failure(AuthenticationRequired("sign in"))
    fresh = OutageTracker(bench.store, bench.clock, service_reachable)
    assert not await fresh.end(SIGN_IN_OUTAGE), "this process knew of none"
    assert await bench.open_alerts() == {}
    for failure in (PermanentFailure("no"), LisUnavailable("told by collection")):
        await outages.record_failure(failure)
        assert not outages.is_known(failure)


async def test_failing_job_kind_has_its_own_outage(bench: WorkerBench, outages: OutageTracker) -> None:
    """Unless the service answers nothing at all, which is one outage."""
    failure = ServiceUnavailable("503")
    await outages.record_failure(failure, "update_line_task")
    assert not outages.is_known(failure, "deliver_report")
    assert not await outages.end(EXCHANGE_OUTAGE), "a good poll proves nothing about Task updates"
    assert outages.is_known(failure, "update_line_task")
    assert await outages.end(exchange_part_outage("update_line_task"))
    assert not outages.is_known(failure, "update_line_task")
    whole = OutageTracker(bench.store, bench.clock, service_unreachable)
    for kind in ("update_line_task", "deliver_report", "fetch_order"):
        await whole.record_failure(failure, kind)
    assert set(await bench.open_alerts()) == {EXCHANGE_OUTAGE}
    assert await whole.end(EXCHANGE_OUTAGE)
    assert not whole.is_known(failure, "deliver_report")


async def test_store_outage_explains_its_failures(bench: WorkerBench, outages: OutageTracker) -> None:
    await outages.record_failure(StoreUnreachableError())
    assert outages.is_known(StoreUnreachableError())
    assert outages.is_store_down
    bench.store.health.recovered()
    assert not outages.is_store_down
    assert not outages.is_known(StoreUnreachableError())


async def test_outage_that_cannot_be_written_is_logged_and_written_later(bench: WorkerBench, outages: OutageTracker) -> None:
    key = AlertKey(ConditionId.DISK_LOW)
    with capture_logs() as lines, bench.refusing(), pytest.raises(StoreUnreachableError):
        await outages.begin(key, "broken")
    assert [each["action"] for each in lines] == ["outage_started"]
    await outages.begin(key, "broken")
    assert set(await bench.open_alerts()) == {key}


async def test_outage_that_begins_again_soon_is_the_same(bench: WorkerBench) -> None:
    """A service that answers every other minute: one alert, not one a minute."""

    async def count() -> int:
        return await bench.store.read(lambda connection: connection.scalar(select(func.count()).select_from(alerts)) or 0)

    for minute in range(5):
        await bench.outages.begin(EXCHANGE_OUTAGE, f"down at {minute}")
        bench.clock.advance(60)
        await bench.outages.end(EXCHANGE_OUTAGE)
        assert await bench.open_alerts() == {}
        bench.clock.advance(60)
    assert await count() == 1
    bench.clock.advance(600)
    await bench.outages.begin(EXCHANGE_OUTAGE, "down")
    assert await count() == 2


async def test_restart_keeps_the_beginning_of_an_outage_and_is_no_new_one(bench: WorkerBench) -> None:
    began = bench.clock.now()
    await OutageTracker(bench.store, bench.clock, service_reachable).begin(EXCHANGE_OUTAGE, "502")
    bench.clock.advance(hours=2)
    with capture_logs() as lines:
        await OutageTracker(bench.store, bench.clock, service_reachable).begin(EXCHANGE_OUTAGE, "503")
    (alert,) = (await bench.open_alerts()).values()
    assert (alert.since, alert.detail) == (began, "503")
    assert [(each["action"], each["log_level"]) for each in lines] == [("outage_resumed", "info")]


# --- the schedule


def test_poll_interval_grows_when_idle_and_resets() -> None:
    pace = PollInterval(10, 100)
    waits = [10.0]
    for _ in range(10):
        waits.append(pace.next_wait(waits[-1], 0))
    assert waits[:4] == [10, 15, 22.5, 33.75]
    assert (waits[-1], pace.next_wait(100, 1)) == (100, 10)
    assert [PollInterval(shortest, 100).next_wait(0, 0) >= shortest for shortest in (10.0, 200.0)] == [True, True]


class Task:
    """A scheduled task that raises `fault`, and counts its runs."""

    def __init__(self, bench: WorkerBench, name: str, fault: Exception | None, interval: float = 0.01) -> None:
        self.fault, self.runs, self.waits = fault, 0, list[float]()
        self.schedule = Scheduler(bench.outages)
        self.schedule.postpone = lambda name, seconds: self.waits.append(seconds)  # type: ignore[method-assign]
        self.schedule.every(interval, name, self._run)

    async def _run(self) -> None:
        self.runs += 1
        if self.fault is not None:
            raise self.fault


async def test_failing_scheduled_task_is_reported_and_repeats(bench: WorkerBench) -> None:
    """One of a longer interval than the wait after a failure keeps it."""
    task, rare = Task(bench, "tick", ServiceUnavailable("nobody there")), Task(bench, "retention", ValueError(), 3600)
    for each in (task, rare):
        each.schedule.start()
    await wait_until(lambda: task.runs >= 2 and rare.runs >= 1)
    for each in (task, rare):
        each.schedule.stop()
    assert bench.outages.is_known(ServiceUnavailable("still"))
    assert rare.waits == []


FAULTS = [ValueError("s3cret"), KeyError("x"), RecursionError(), CryptoError(), StoreError("no table"), ForeignOrigin("away")]
PARTS = ["poll", "look", "restore", "collect", "reconcile", "retention"]


@pytest.mark.parametrize(
    ("fault", "part"),
    [pytest.param(fault, part, id=f"{type(fault).__name__}-{part}") for fault, part in zip(FAULTS, PARTS, strict=True)],
)
async def test_unexpected_error_of_task_is_told_and_waits(bench: WorkerBench, fault: Exception, part: str) -> None:
    task = Task(bench, part, fault)
    task.schedule.start()
    await wait_until(lambda: task.runs >= 9)
    assert task.waits[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    ((key, told),) = (await bench.open_alerts()).items()
    assert str(key) == f"agent.{'part_fails' if part in {'reconcile', 'retention'} else 'cannot_work'}/{part}"
    assert (told.detail or "").startswith(str(fault) if isinstance(fault, LabAgentError) else type(fault).__name__)
    assert "s3cret" not in (told.detail or "")
    task.fault, task.runs = None, 0
    await wait_until(lambda: task.runs >= 2)
    task.schedule.stop()
    assert await bench.open_alerts() == {}

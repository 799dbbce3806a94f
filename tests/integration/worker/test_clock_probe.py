"""The alert that our clock and the service's differ, and the orders that were held because of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.records import Alert
from lab_agent.domain.workers import WorkerRecord
from lab_agent.errors import ServiceUnavailable
from lab_agent.monitoring.exchange_probes import ClockProbe
from lab_agent.monitoring.hosts import LivingHosts
from lab_agent.monitoring.monitor import Monitor
from lab_agent.ports.exchange import ServiceClock
from tests.integration.worker.conftest import WorkerBench

DIFFERS = AlertKey(ConditionId.CLOCK_DIFFERS)


@dataclass
class ServiceWithClock:
    known: ServiceClock | None = None

    def service_clock(self) -> ServiceClock | None:
        return self.known

    def measure(self, bench: WorkerBench, *, is_confirmed: bool = True, **offset: float) -> None:
        now = bench.clock.now()
        self.known = ServiceClock(offset=timedelta(**offset), is_confirmed=is_confirmed, since=now, measured_at=now)


async def open_alerts(bench: WorkerBench) -> dict[AlertKey, Alert]:
    return {each.key: each for each in await bench.store.run_read_only(lambda uow: uow.alerts.all_open())}


def make_monitor(bench: WorkerBench, service: ServiceWithClock, host: str = "") -> Monitor:
    probe = ClockProbe(cast("Any", service), bench.store, bench.clock, timedelta(minutes=2), host)
    return Monitor(bench.store, bench.clock, (probe,))


async def test_alert_names_both_clocks_and_ends_when_they_agree(bench: WorkerBench) -> None:
    service = ServiceWithClock()
    monitor = make_monitor(bench, service)
    began = bench.clock.now()
    service.measure(bench, days=1)
    await monitor.run()
    alert = (await open_alerts(bench))[DIFFERS]
    assert alert.since == began
    assert alert.detail == "ours 2026-03-02 12:00:00 UTC, the service's 2026-03-03 12:00:00 UTC"
    service.measure(bench, seconds=100)
    await monitor.run()
    assert DIFFERS not in await open_alerts(bench)


async def test_what_is_not_confirmed_neither_opens_nor_ends(bench: WorkerBench) -> None:
    service = ServiceWithClock()
    monitor = make_monitor(bench, service)
    service.measure(bench, is_confirmed=False, days=1)
    await monitor.run()
    assert DIFFERS not in await open_alerts(bench)
    service.measure(bench, days=1)
    await monitor.run()
    service.measure(bench, is_confirmed=False)
    await monitor.run()
    assert DIFFERS in await open_alerts(bench)


async def test_held_orders_are_counted(bench: WorkerBench) -> None:
    now = bench.clock.now()

    def hold(uow: Any) -> None:
        uow.alerts.open(
            Alert(condition=ConditionId.ORDERS_HELD, subject="order.clocks-differ", detail="", since=now, opened_at=now, count=7)
        )
        uow.commit()

    await bench.store.run(hold)
    service = ServiceWithClock()
    service.measure(bench, hours=-1)
    await make_monitor(bench, service).run()
    assert (await open_alerts(bench))[DIFFERS].count == 7


async def test_probe_without_an_answer_cannot_tell(bench: WorkerBench) -> None:
    probe = ClockProbe(cast("Any", ServiceWithClock()), bench.store, bench.clock, timedelta(minutes=2))
    with pytest.raises(ServiceUnavailable):
        await probe.look()


async def test_worker_on_another_machine_ends_only_its_own_alert(bench: WorkerBench) -> None:
    wrong, right = ServiceWithClock(), ServiceWithClock()
    wrong.measure(bench, days=1)
    right.measure(bench, seconds=0)
    now = bench.clock.now()
    row = WorkerRecord(name="w1", host="one", pid=1, version="1", mode="normal", started_at=now, beat_at=now - timedelta(days=1))
    await bench.write(lambda uow: uow.workers.save(row))
    await make_monitor(bench, wrong, "one").run()
    await make_monitor(bench, right, "two").run()
    alert = (await open_alerts(bench))[AlertKey(ConditionId.CLOCK_DIFFERS, "one")]
    assert alert.detail.startswith("on one ours ")
    await bench.write(lambda uow: uow.workers.save(replace(row, stopped_at=now)))
    await make_monitor(bench, right, "two").run()
    assert await open_alerts(bench) == {}


async def test_alert_of_a_worker_that_was_killed_ends(bench: WorkerBench) -> None:
    """Its row stays for weeks, with a heartbeat that changes no more; a clock that is wrong says nothing about its age."""
    right, steady = ServiceWithClock(), [0.0]
    right.measure(bench, seconds=0)
    now = bench.clock.now()
    row = WorkerRecord(name="w1", host="one", pid=1, version="1", mode="normal", started_at=now, beat_at=now - timedelta(days=1))
    alert = Alert(condition=ConditionId.CLOCK_DIFFERS, subject="one", since=now, opened_at=now)
    await bench.write(lambda uow: (uow.workers.save(row), uow.alerts.open(alert)))
    living = LivingHosts(timedelta(minutes=1), lambda: steady[0])
    probe = ClockProbe(cast("Any", right), bench.store, bench.clock, timedelta(minutes=2), "two", living)
    monitor = Monitor(bench.store, bench.clock, (probe,))

    async def look_after(seconds: float) -> bool:
        steady[0] += seconds
        await monitor.run()
        return alert.key in await open_alerts(bench)

    assert await look_after(0)
    await bench.write(lambda uow: uow.workers.save(replace(row, beat_at=row.beat_at + timedelta(seconds=50))))
    assert await look_after(59)
    assert await look_after(59), "it has written a heartbeat meanwhile"
    assert not await look_after(2)

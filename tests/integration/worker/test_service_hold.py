"""A service that answers nothing gets one request at a time; one that is broken in part does not stop the rest (law 9)."""

from __future__ import annotations

from typing import Any

import pytest

from lab_agent.queue.outages import EXCHANGE_OUTAGE
from lab_sandbox.faults.plan import FaultPlan, FaultRule
from tests.harness.order_ends import SIGN_IN, OrderRun, TimedPoll
from tests.harness.world import World

_POLL = "GET /fhir/Task?*status=requested*"
_HOUR = 3600.0


class Service:
    """A world whose service fails as a test says, with an agent that polls it by the world's clock."""

    def __init__(self) -> None:
        self.world = World("hold", oauth=SIGN_IN)
        self.run, self.agent = OrderRun(self.world), self.world.agent()
        self.poll = TimedPoll(self.world, self.agent)
        assert self.agent.runner.outages.hold is not None
        self.hold = self.agent.runner.outages.hold

    def fail(self, *faults: dict[str, Any]) -> None:
        self.world.service.faults.activate(FaultPlan(faults=tuple(FaultRule(kind="status", **each) for each in faults)))

    def requests(self) -> int:
        return sum(each["fired"] for each in self.world.service.faults.state()["faults"])

    async def is_outage_told(self) -> bool:
        return EXCHANGE_OUTAGE in {each.key for each in await self.world.store.run_read_only(lambda uow: uow.alerts.all_open())}


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    """With orders that are seen, and read no further yet."""
    monkeypatch.setattr("lab_agent.exchange.requests.backoff_delay", lambda *_: 0.0)
    found = Service()
    found.run.place(4)
    await found.agent.poll.run()
    return found


async def work(service: Service, seconds: float) -> None:
    await service.poll.work(service.run, seconds=seconds)


async def test_waits_grow_to_a_minute_and_end_with_the_first_answer(service: Service) -> None:
    service.fail({"status": 503, "route": "/fhir/*"})
    await work(service, 10 * 60)
    assert service.hold.is_active
    assert service.poll.waits[-8:] == [60.0] * 8
    before = service.requests()
    await work(service, 10 * 60)
    assert service.requests() - before == 10
    service.fail()
    await work(service, 60)
    assert not service.hold.is_active
    await work(service, 300)
    assert await service.run.are_closed()


@pytest.mark.slow
@pytest.mark.parametrize("broken", [{"route": _POLL}, {"route": "POST /fhir/*"}, {"route": "GET /fhir/Patient/*"}])
async def test_what_is_broken_in_part_is_not_held(service: Service, broken: dict[str, Any]) -> None:
    service.fail({"status": 500, **broken})
    await service.poll.work(service.run, seconds=300, reporting=False)  # so that they stay open
    assert not service.hold.is_active


@pytest.mark.slow
async def test_orders_go_on_while_the_search_for_new_ones_is_broken(service: Service) -> None:
    """Also beside a Task that breaks it: what the service cannot write is in that search, and is asked for by itself."""
    bad, *others = service.world.placed
    service.fail({"status": 500, "route": _POLL}, {"status": 500, "route": f"GET /fhir/Task/{bad}"})
    await work(service, _HOUR)
    assert await service.is_outage_told()
    service.world.placed = others
    assert await service.run.are_closed()

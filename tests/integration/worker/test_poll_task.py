"""The poll as a task of the worker: one order that cannot be read is named, and stops no other."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from lab_agent.conditions.model import AlertKey
from lab_agent.conditions.table import CONDITIONS
from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient
from lab_agent.http_client import HttpClient, HttpOptions
from lab_agent.metrics import Metrics
from lab_agent.worker.outages import CUT_OFF_OUTAGE, EXCHANGE_OUTAGE, LINKS_OUTAGE, OutageTracker
from lab_agent.worker.schedule import UNREADABLE_TASKS_ALERT, PollInterval, PollTask
from lab_agent.workflow.polling import OrderPoller
from tests.fakes.exchange_service import service_reachable
from tests.fakes.memory_store import MemoryStore
from tests.harness.clock import VirtualClock
from tests.harness.settings import make_settings


class ScriptedService:
    """A service that answers the poll with `body`, and signs everybody in."""

    def __init__(self) -> None:
        self.body = b""

    async def answer(self, request: httpx.Request) -> httpx.Response:
        if "token" in request.url.path:
            return httpx.Response(200, json={"access_token": "t", "expires_in": 3600})
        return httpx.Response(200, content=self.body)


class Poll:
    """A poll task over a store in memory."""

    def __init__(self, service: ScriptedService) -> None:
        self.service, self.store, self.clock = service, MemoryStore(), VirtualClock()
        settings = make_settings().exchange
        http = HttpClient(HttpOptions(), transport=httpx.MockTransport(service.answer))
        exchange = ExchangeClient(settings, http, Authenticator(settings.oauth, http, self.store, self.clock, "me"))
        self.waits: list[float] = []
        self.task = PollTask(
            poll=OrderPoller(exchange, self.store, self.clock, settings.base_url),
            outages=OutageTracker(self.store, self.clock, service_reachable),
            store=self.store,
            clock=self.clock,
            metrics=Metrics(),
            interval=PollInterval(10, 100),
            reschedule=self.waits.append,
        )

    def open_alerts(self) -> dict[AlertKey, str]:
        return {alert.key: alert.detail for alert in self.store._data.alerts if alert.closed_at is None}

    def orders(self) -> set[str]:
        return {order.task_id for order in self.store._data.orders.values()}


@pytest.fixture
def poll() -> Poll:
    return Poll(ScriptedService())


def task(number: int, note: str = '"fine"') -> str:
    code = {"coding": [{"system": "http://service.test:8480/terminology/task_type", "code": "OrderProcessingTask"}]}
    return (
        f'{{"resourceType": "Task", "id": "t{number}", "status": "requested", "code": {json.dumps(code)}, '
        f'"meta": {{"versionId": "1"}}, "description": {note}}}'
    )


def page(*tasks: str, onward: str | None = None) -> bytes:
    link: list[Any] = [] if onward is None else [{"relation": "next", "url": onward}]
    entries = ", ".join(f'{{"resource": {each}}}' for each in tasks)
    return f'{{"resourceType": "Bundle", "entry": [{entries}], "link": {json.dumps(link)}}}'.encode("utf-8", "surrogatepass")


UNBALANCED = ['"ends in a quote\\"', '"\\', "1]", "1}", "[1", '{"a": 1', '"open', '{"a": "}']


@pytest.mark.parametrize("note", UNBALANCED)
async def test_poison_task_at_the_end_is_named_and_others_seen(poll: Poll, note: str) -> None:
    poll.service.body = page(task(1), task(2, note))
    await poll.task.run()
    assert poll.orders() == {"t1"}
    assert set(poll.open_alerts()) == {UNREADABLE_TASKS_ALERT}


async def test_links_after_unreadable_entry_are_not_lost_in_silence(poll: Poll) -> None:
    poll.service.body = page(task(1), task(2, "1]"), onward="?page[]=2")
    await poll.task.run()
    assert set(poll.open_alerts()) == {EXCHANGE_OUTAGE}


@pytest.mark.parametrize("note", ['"\\ud83d"', "NaN", "1" * 100_000, "[" * 9_000 + "]" * 9_000, '"\x01"', *UNBALANCED])
async def test_poison_task_is_named_and_others_seen(poll: Poll, note: str) -> None:
    poll.service.body = page(task(1), task(2, note), task(3))
    for _ in range(2):
        await poll.task.run()
    assert poll.orders() == {"t1", "t3"}
    alerts = poll.open_alerts()
    assert set(alerts) == {UNREADABLE_TASKS_ALERT}
    assert "Task t2" in alerts[UNREADABLE_TASKS_ALERT]
    poll.service.body = page(task(1), task(2), task(3))
    await poll.task.run()
    assert poll.orders() == {"t1", "t2", "t3"}
    assert poll.open_alerts() == {}


async def test_foreign_next_link_is_told_with_its_mend(poll: Poll) -> None:
    poll.service.body = page(task(1), onward="http://internal:8080/fhir/task?page=2")
    await poll.task.run()
    assert poll.orders() == {"t1"}
    alerts = poll.open_alerts()
    assert set(alerts) == {LINKS_OUTAGE}
    assert "http://internal:8080" in alerts[LINKS_OUTAGE]
    assert "`exchange.base_url`" in CONDITIONS[LINKS_OUTAGE.condition].mend
    poll.service.body = page(task(1))
    await poll.task.run()
    assert poll.open_alerts() == {}


async def test_next_link_to_own_page_keeps_orders_and_is_told(poll: Poll) -> None:
    poll.service.body = page(task(1), onward="?page=2")
    await poll.task.run()
    assert poll.orders() == {"t1"}
    alerts = poll.open_alerts()
    assert set(alerts) == {CUT_OFF_OUTAGE}
    assert "circle" in alerts[CUT_OFF_OUTAGE]
    assert "exchange.paths" not in CONDITIONS[CUT_OFF_OUTAGE.condition].mend
    poll.service.body = page(task(1))
    await poll.task.run()
    assert poll.open_alerts() == {}

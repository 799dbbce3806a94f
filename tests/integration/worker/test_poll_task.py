"""The poll as a task of the worker: one order that cannot be read is named, and stops no other.

What the client reads of an answer is tried in `tests/integration/exchange` and `tests/unit/fhir/test_elements.py`.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient
from lab_agent.operations.schedule import UNREADABLE_TASKS_ALERT, PollInterval, PollTask
from lab_agent.orders.polling import OrderPoller
from lab_agent.orders.records import OrderRecord
from lab_agent.queue.outages import CUT_OFF_OUTAGE, EXCHANGE_OUTAGE, LINKS_OUTAGE, POLL_OUTAGE, OutageTracker
from lab_agent.shared.conditions.model import AlertKey
from lab_agent.shared.http_client import HttpClient, HttpOptions
from lab_agent.shared.metrics import Metrics
from lab_agent.store.event_records import Alert
from tests.fakes.exchange_service import service_reachable
from tests.harness.clock import VirtualClock
from tests.harness.databases import InlineStore
from tests.harness.settings import make_settings


class ScriptedService:
    """A service that answers the poll with `body`, and signs everybody in."""

    def __init__(self) -> None:
        self.body = b""
        self.others: dict[str, bytes] = {}
        """Answers by the last segment of the path, or by `page`."""
        self.polls = 0

    async def answer(self, request: httpx.Request) -> httpx.Response:
        if "token" in request.url.path:
            return httpx.Response(200, json={"access_token": "t", "expires_in": 3600})
        self.polls += 1
        asked = request.url.params.get("page") or request.url.path.rpartition("/")[2]
        return httpx.Response(200, content=self.others.get(asked, self.body))


class Poll:
    """A poll task, and what is stored after it."""

    def __init__(self, service: ScriptedService, **options: int) -> None:
        self.service, self.store, self.clock = service, InlineStore(), VirtualClock()
        settings = make_settings().exchange
        http = HttpClient(HttpOptions(**options), transport=httpx.MockTransport(service.answer))
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
        return {each.key: each.detail or "" for each in self.store.records(Alert) if each.closed_at is None}

    def orders(self) -> set[str]:
        return {order.task_id for order in self.store.records(OrderRecord)}


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


def bundle(**fields: Any) -> bytes:
    return json.dumps({"resourceType": "Bundle", "entry": [{"resource": json.loads(task(1))}], **fields}).encode()


def changed(**fields: Any) -> dict[str, Any]:
    return {**json.loads(task(2)), **fields}


async def test_answer_that_is_too_large_is_told_and_holds_nothing_back() -> None:
    """It is read once, and no further than the limit; the service answers, so everything else goes on."""
    poll = Poll(ScriptedService(), max_response=64 * 1024)
    poll.service.body = page(*([task(1, '"' + "x" * 9_000 + '"')] * 8))
    await poll.task.run()
    assert set(poll.open_alerts()) == {POLL_OUTAGE}
    assert poll.service.polls == 1
    assert await poll.task.poll.exchange.answers()
    poll.service.body = page(task(1))
    await poll.task.run()
    assert (poll.orders(), poll.open_alerts()) == ({"t1"}, {})


UNBALANCED = ['"ends in a quote\\"', '"\\', "1]", "1}", "[1", '{"a": 1', '"open', '{"a": "}']
POISON = ['"\\ud83d"', "NaN", "1" * 100_000, "[" * 9_000 + "]" * 9_000, '"\x01"', *UNBALANCED]


@pytest.mark.parametrize("note", POISON, ids=range(len(POISON)))
async def test_poison_task_is_named_and_others_seen(poll: Poll, note: str) -> None:
    """In the midst of a page, and at its end."""
    if note in UNBALANCED:
        poll.service.body = page(task(1), task(2, note))
        await poll.task.run()
        assert (poll.orders(), set(poll.open_alerts())) == ({"t1"}, {UNREADABLE_TASKS_ALERT})
    poll.service.body = page(task(1), task(2, note), task(3))
    for _ in range(2):
        await poll.task.run()
    assert poll.orders() == {"t1", "t3"}
    alerts = poll.open_alerts()
    assert (set(alerts), "Task t2" in alerts[UNREADABLE_TASKS_ALERT]) == ({UNREADABLE_TASKS_ALERT}, True)
    poll.service.body = page(task(1), task(2), task(3))
    await poll.task.run()
    assert (poll.orders(), poll.open_alerts()) == ({"t1", "t2", "t3"}, {})


NEXT = {"relation": "next", "url": "?page=2"}


@pytest.mark.parametrize(
    ("body", "alert", "word"),
    [
        (page(task(1), onward="http://internal:8080/fhir/task?page=2"), LINKS_OUTAGE, "http://internal:8080"),
        (page(task(1), onward="?page=circle"), CUT_OFF_OUTAGE, "circle"),
        *((bundle(link=link), CUT_OFF_OUTAGE, "") for link in ("?page=2", [{"url": "?page=2"}], [7], {**NEXT, "url": {"x": 1}})),
        *((bundle(link=link), CUT_OFF_OUTAGE, "") for link in ({"next": "?page=2"}, [NEXT, {**NEXT, "url": "?page=3"}])),
    ],
    ids=range(8),
)
async def test_link_that_leads_nowhere_is_told(poll: Poll, body: bytes, alert: AlertKey, word: str) -> None:
    """What stands on the page before it is kept. Short pages are read in another way than long ones."""
    for padding in (b"", b" " * 20_000):
        poll.service.body = body + padding
        await poll.task.run()
        alerts = poll.open_alerts()
        assert (poll.orders(), set(alerts), word in alerts[alert]) == ({"t1"}, {alert}, True)
        poll.service.body = page(task(1))
        await poll.task.run()
        assert poll.open_alerts() == {}


async def test_links_after_unreadable_entry_are_not_lost_in_silence(poll: Poll) -> None:
    poll.service.body = page(task(1), task(2, "1]"), onward="?page[]=2")
    await poll.task.run()
    assert set(poll.open_alerts()) == {EXCHANGE_OUTAGE}


CAPITALS = {"coding": {"code": "ORDERPROCESSINGTASK"}}
IN_OTHER_TYPES: list[tuple[dict[str, Any], str]] = [
    *(({"link": link}, "t2") for link in ([NEXT], NEXT, [[NEXT]], [None, {}, NEXT], [NEXT, NEXT])),
    *(({"link": {**NEXT, **other}}, "t2") for other in ({"relation": "NEXT"}, {"relation": ["next"]}, {"url": [" ?page=2 "]})),
    ({"entry": {"resource": changed()}}, "t2"),
    ({"entry": [{"resource": [changed()]}]}, "t2"),
    ({"entry": [{"resource": changed(), "search": [{"mode": "MATCH"}]}]}, "t2"),
    ({"entry": {"resource": changed(id=7)}}, "7"),
    ({"entry": {"resource": changed(id=[" t2 "])}}, "t2"),
    ({"entry": {"resource": changed(resourceType="TASK", status="Requested", code=CAPITALS)}}, "t2"),
    (
        {"entry": {"resource": changed(resourceType=["Task"], status=["requested"], code=[CAPITALS], meta=[{"versionId": 1}])}},
        "t2",
    ),
]


@pytest.mark.parametrize("padding", [0, 20_000])
@pytest.mark.parametrize(("fields", "found"), IN_OTHER_TYPES, ids=range(len(IN_OTHER_TYPES)))
async def test_page_in_other_types_is_read(poll: Poll, fields: dict[str, Any], found: str, padding: int) -> None:
    poll.service.body = bundle(**fields, text="x" * padding)
    poll.service.others["2"] = page(task(2))
    await poll.task.run()
    assert (poll.orders() - {"t1"}, poll.open_alerts()) == ({found}, {})


MEANINGLESS: list[Any] = [
    *("t2", 7, [[], 7], {"resource": "t2"}, {"resource": [changed(), changed(id="t3")]}),
    *(
        {"resource": changed(**each)}
        for each in ({"id": None}, {"id": {"value": "t2"}}, {"resourceType": None}, {"resourceType": 7})
    ),
]


@pytest.mark.parametrize("padding", [0, 20_000])
@pytest.mark.parametrize("entry", MEANINGLESS, ids=range(len(MEANINGLESS)))
async def test_entry_that_means_nothing_is_told(poll: Poll, entry: Any, padding: int) -> None:
    good = {"resource": json.loads(task(1))}
    poll.service.body = bundle(entry=[good, *entry] if isinstance(entry, list) else [good, entry], text="x" * padding)
    await poll.task.run()
    assert (poll.orders(), set(poll.open_alerts())) == ({"t1"}, {UNREADABLE_TASKS_ALERT})


@pytest.mark.parametrize(
    ("read", "seen", "told"),
    [
        (changed(), {"t2"}, None),
        (changed(status="completed"), set(), None),
        *((changed(id="other"), set(), shown) for shown in ("t2", "..", "?")),
    ],
)
async def test_contested_task_in_poll_is_read(poll: Poll, read: dict[str, Any], seen: set[str], told: str | None) -> None:
    """Two copies, and nothing says which is newer. What cannot be read is told by its id, unless that may be a name."""
    name = "Anna Sample" if told == "?" else told or "t2"
    copies = [{"resource": changed(id=name, meta={}, status=status)} for status in ("requested", "completed")]
    poll.service.body = bundle(entry=[{"resource": json.loads(task(1))}, *copies])
    poll.service.others[name] = json.dumps(read).encode()
    await poll.task.run()
    assert poll.orders() == {"t1"} | seen
    assert poll.open_alerts() == ({} if told is None else {UNREADABLE_TASKS_ALERT: f"Task {told}"})

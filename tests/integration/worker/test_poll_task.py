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
from lab_agent.worker.outages import CUT_OFF_OUTAGE, EXCHANGE_OUTAGE, LINKS_OUTAGE, POLL_OUTAGE, OutageTracker
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
    """A poll task over a store in memory."""

    def __init__(self, service: ScriptedService, **options: int) -> None:
        self.service, self.store, self.clock = service, MemoryStore(), VirtualClock()
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


@pytest.mark.parametrize(
    "body",
    [
        page(*([task(1, '"' + "x" * 9_000 + '"')] * 8)),
        page(*[task(number, "[" + "1," * 1_000 + "1]") for number in range(1_300)]),
    ],
    ids=["bytes", "values"],
)
async def test_answer_that_is_too_large_is_told_and_holds_nothing_back(body: bytes) -> None:
    """It is read once, and no further than the limit; the service answers, so everything else goes on."""
    poll = Poll(ScriptedService(), max_response=64 * 1024 if len(body) < 100_000 else 32 * 1024 * 1024)
    poll.service.body = body
    await poll.task.run()
    assert set(poll.open_alerts()) == {POLL_OUTAGE}
    assert "exchange.page_size" in CONDITIONS[POLL_OUTAGE.condition].mend
    assert poll.service.polls == 1
    assert await poll.task.poll.exchange.answers()
    poll.service.body = page(task(1))
    await poll.task.run()
    assert (poll.orders(), poll.open_alerts()) == ({"t1"}, {})


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


def bundle(**fields: Any) -> bytes:
    return json.dumps({"resourceType": "Bundle", "entry": [{"resource": json.loads(task(1))}], **fields}).encode()


NEXT = {"relation": "next", "url": "?page=2"}


@pytest.mark.parametrize(
    "link",
    [
        [NEXT],
        NEXT,
        [[NEXT]],
        [None, {}, NEXT],
        [NEXT, NEXT],
        {**NEXT, "relation": "NEXT"},
        {**NEXT, "relation": ["next"]},
        {**NEXT, "url": [" ?page=2 "]},
    ],
)
@pytest.mark.parametrize("padding", [0, 20_000])
async def test_link_in_another_type_is_followed(poll: Poll, link: Any, padding: int) -> None:
    """Short pages are read in another way than long ones."""
    poll.service.body = bundle(link=link, text="x" * padding)
    poll.service.others["2"] = page(task(2))
    await poll.task.run()
    assert (poll.orders(), poll.open_alerts()) == ({"t1", "t2"}, {})


@pytest.mark.parametrize(
    "link",
    ["?page=2", {"next": "?page=2"}, [{"url": "?page=2"}], [NEXT, {**NEXT, "url": "?page=3"}], [7], {**NEXT, "url": {"x": 1}}],
)
@pytest.mark.parametrize("padding", [0, 20_000])
async def test_link_that_means_nothing_is_told(poll: Poll, link: Any, padding: int) -> None:
    poll.service.body = bundle(link=link, text="x" * padding)
    await poll.task.run()
    assert poll.orders() == {"t1"}
    assert set(poll.open_alerts()) == {CUT_OFF_OUTAGE}


def changed(**fields: Any) -> dict[str, Any]:
    return {**json.loads(task(2)), **fields}


CAPITALS = {"coding": {"code": "ORDERPROCESSINGTASK"}}


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"resource": changed()}, "t2"),
        ([{"resource": [changed()]}], "t2"),
        ([{"resource": changed(), "search": [{"mode": "MATCH"}]}], "t2"),
        ({"resource": changed(id=7)}, "7"),
        ({"resource": changed(id=[" t2 "])}, "t2"),
        ({"resource": changed(resourceType="TASK", status="Requested", code=CAPITALS)}, "t2"),
        ({"resource": changed(resourceType=["Task"], status=["requested"], code=[CAPITALS], meta=[{"versionId": 1}])}, "t2"),
    ],
)
@pytest.mark.parametrize("padding", [0, 20_000])
async def test_entry_in_another_type_is_read(poll: Poll, entry: Any, found: str, padding: int) -> None:
    poll.service.body = bundle(entry=entry, text="x" * padding)
    await poll.task.run()
    assert (poll.orders(), poll.open_alerts()) == ({found}, {})


@pytest.mark.parametrize(
    "entry",
    [
        "t2",
        7,
        [[], 7],
        {"resource": "t2"},
        {"resource": [changed(), changed(id="t3")]},
        {"resource": changed(id=None)},
        {"resource": changed(id={"value": "t2"})},
        {"resource": changed(resourceType=None)},
        {"resource": changed(resourceType=7)},
    ],
)
@pytest.mark.parametrize("padding", [0, 20_000])
async def test_entry_that_means_nothing_is_told(poll: Poll, entry: Any, padding: int) -> None:
    good = {"resource": json.loads(task(1))}
    poll.service.body = bundle(entry=[good, *entry] if isinstance(entry, list) else [good, entry], text="x" * padding)
    await poll.task.run()
    assert poll.orders() == {"t1"}
    assert set(poll.open_alerts()) == {UNREADABLE_TASKS_ALERT}


@pytest.mark.parametrize(
    ("text", "told"), [("<!doctype html><p>sign in", "HTML page"), ("<html>", "HTML page"), ("<Bundle/>", "XML"), ("", "nothing")]
)
async def test_poll_answered_with_a_page_says_so(poll: Poll, text: str, told: str) -> None:
    poll.service.body = text.encode()
    await poll.task.run()
    assert told in poll.open_alerts()[EXCHANGE_OUTAGE]


@pytest.mark.parametrize(
    ("first", "second", "read", "seen"),
    [
        (changed(meta={"versionId": "2"}, status="completed"), changed(meta={"versionId": "1"}), None, False),
        (changed(meta={"versionId": "10"}), changed(meta={"versionId": "9"}, status="completed"), None, True),
        (
            changed(meta={"lastUpdated": "2026-03-01T12:00:00Z"}),
            changed(meta={"lastUpdated": "2026-03-01T11:00:00Z"}, status="completed"),
            None,
            True,
        ),
        (changed(meta={}), changed(meta={}, status="completed"), changed(), True),
        (changed(meta={}), changed(meta={}, status="completed"), changed(status="completed"), False),
    ],
)
async def test_task_twice_in_poll_is_its_newest_copy(poll: Poll, first: Any, second: Any, read: Any, seen: bool) -> None:
    poll.service.body = bundle(entry=[{"resource": first}, {"resource": second}])
    if read is not None:
        poll.service.others["t2"] = json.dumps(read).encode()
    await poll.task.run()
    assert poll.orders() == ({"t2"} if seen else set())
    assert poll.open_alerts() == {}


@pytest.mark.parametrize(("task_id", "shown"), [("t2", "t2"), ("..", ".."), ("Anna Sample", "?")])
async def test_contested_task_that_cannot_be_read_is_told(poll: Poll, task_id: str, shown: str) -> None:
    """By its id, unless that may be a name."""
    copies = [{"resource": changed(id=task_id, meta={}, status=status)} for status in ("requested", "completed")]
    poll.service.body = bundle(entry=[{"resource": json.loads(task(1))}, *copies])
    poll.service.others[task_id] = b'{"resourceType": "Task", "id": "other"}'
    await poll.task.run()
    assert poll.orders() == {"t1"}
    assert poll.open_alerts() == {UNREADABLE_TASKS_ALERT: f"Task {shown}"}

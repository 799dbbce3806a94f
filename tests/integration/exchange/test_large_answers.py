"""Answers of hostile size over HTTP: the real client reads them or says why not, and other work goes on meanwhile."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient, http_options
from lab_agent.shared import errors, exact_json
from lab_agent.shared.http_client import HttpClient
from lab_agent.shared.ids import ResourceId
from tests.harness.canned_server import Canned, canned_server
from tests.harness.clock import VirtualClock
from tests.harness.loop_lag import loop_lag
from tests.integration.exchange.conftest import FakeTokenStore, bundle, exchange_settings, oauth_settings, task

TASKS = 20_000
MOST_CPU_IN_ONE_STEP = 0.25
"""Seconds of the loop's own thread. A page of 30 MB read at once takes twice as long."""
MEBIBYTE = 1024 * 1024
MOST_READ_BY_LOOP = 32 * 1024
"""Bytes of JSON that the loop itself reads: whatever is in them, it takes well below 100 ms."""
SMALL = b'{"resourceType": "Specimen", "id": "small", "meta": {"versionId": "1"}}'


@dataclass
class Service:
    """Answers by path and query; everything else is a small Specimen."""

    base: str
    canned: dict[str, Canned]

    def answer(self, address: str, body: bytes) -> None:
        self.canned[f"/{address}"] = Canned(200, body)


@pytest.fixture
def service() -> Iterator[Service]:
    answers: dict[str, Canned] = {}
    with canned_server(answers, Canned(200, SMALL)) as port:
        yield Service(f"http://127.0.0.1:{port}/", answers)


@asynccontextmanager
async def connected(service: Service) -> AsyncIterator[ExchangeClient]:
    settings = exchange_settings(base_url=service.base, oauth=oauth_settings(grant="basic"))
    async with HttpClient(http_options(settings)) as http:
        client = ExchangeClient(settings, http, Authenticator(settings.oauth, http, FakeTokenStore(), VirtualClock(), "me"))
        await client.read("Specimen", ResourceId("small"))  # the connection, and the certificates
        yield client


def page(*tasks: dict[str, Any]) -> bytes:
    return json.dumps(bundle(*tasks)).encode()


SEARCH = "fhir/task?status=requested&code=OrderProcessingTask"


@pytest.mark.slow
async def test_page_of_30_mb_leaves_loop_free(service: Service) -> None:
    service.answer(SEARCH, page(*(task(number, description="x" * 1280) for number in range(TASKS))))
    async with connected(service) as client, loop_lag() as lag:
        search = asyncio.create_task(client.requested_order_tasks())
        others = 0
        while not search.done():
            await client.read("Specimen", ResourceId("small"))
            others += 1
        rows = search.result()
    assert {row["id"] for row in rows} == {f"t{number}" for number in range(TASKS)}
    assert lag.cpu_seconds < MOST_CPU_IN_ONE_STEP
    assert others > 3


async def test_poll_keeps_only_what_names_tasks(service: Service) -> None:
    """A poll may list thousands: what it holds of each does not grow with the resource."""
    service.answer(SEARCH, page(task(1, description="x" * 2_000_000), task(2, description="")))
    async with connected(service) as client:
        first, second = await client.requested_order_tasks()
    assert (first.keys(), len(str(first))) == (second.keys(), len(str(second)))


async def test_entry_of_too_many_values_spoils_only_itself(service: Service) -> None:
    huge = {**task(2), "input": [{"valueInteger": number} for number in range(200_000)]}
    service.answer(SEARCH, page(task(1), huge, task(3)))
    async with connected(service) as client:
        assert [row["id"] for row in await client.requested_order_tasks()] == ["t1", "t3"]
        assert client.unreadable_order_tasks() == ("t2",)


async def test_page_of_empty_values_is_refused(service: Service) -> None:
    """Two bytes of JSON may take a hundred of memory: a page is bounded by its values, too."""
    service.answer(SEARCH, b'{"resourceType": "Bundle", "entry": [' + b"{}," * 2_500_000 + b"{}]}")
    async with connected(service) as client, loop_lag() as lag:
        with pytest.raises(errors.ServiceUnavailable):
            await client.requested_order_tasks()
    assert lag.cpu_seconds < MOST_CPU_IN_ONE_STEP


def filled(head: bytes, item: bytes, tail: bytes, size: int) -> bytes:
    """A body just below this size, full of one item."""
    return head + b",".join([item] * ((size - 1 - len(head) - len(tail)) // (len(item) + 1))) + tail


@pytest.fixture
def loop_parses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the JSON that is read in the thread of the event loop."""
    loop, sizes, loads = threading.get_ident(), list[int](), exact_json.loads

    def watched(data: bytes | str) -> Any:
        if threading.get_ident() == loop:
            sizes.append(len(data))
        return loads(data)

    monkeypatch.setattr(exact_json, "loads", watched)
    return sizes


@pytest.mark.parametrize("size", [64 * 1024, pytest.param(MEBIBYTE, marks=pytest.mark.slow)])
async def test_answer_of_any_size_is_read_beside_loop(service: Service, loop_parses: list[int], size: int) -> None:
    for item in (b"{}", b"[]", b'{"resource":{"resourceType":"Task","id":"1","v":1.5}}'):
        for tail in (b"]}", b",NaN]}"):
            service.answer(SEARCH, filled(b'{"resourceType":"Bundle","entry":[', item, tail, size))
            async with connected(service) as client, loop_lag() as lag:
                await client.requested_order_tasks()
            assert lag.cpu_seconds < MOST_CPU_IN_ONE_STEP, (item, tail)
    service.answer("fhir/specimen/s", filled(b'{"resourceType":"Specimen","id":"s","x":[', b"{}", b"]}", size))
    async with connected(service) as client:
        with pytest.raises(errors.InvalidResponse):  # it has no version, or too many values
            await client.read("Specimen", ResourceId("s"))
    assert max(loop_parses) < MOST_READ_BY_LOOP


async def test_resource_below_a_mebibyte_has_limit_on_values(service: Service) -> None:
    """But what is no FHIR is a document, whatever is in it."""
    head = b'{"resourceType":"Specimen","id":"s","meta":{"versionId":"1"},"x":['
    service.answer("fhir/specimen/s", filled(head, b"{}", b"]}", MEBIBYTE))
    content = filled(b"[", b"{}", b"]", MEBIBYTE)
    service.answer("fhir/Binary/d", content)
    async with connected(service) as client:
        with pytest.raises(errors.InvalidResponse, match="100000 JSON values"):
            await client.read("Specimen", ResourceId("s"))
        assert await client.read_document(ResourceId("d"), "application/json") == content


async def test_page_whose_entry_is_no_array_is_empty(service: Service) -> None:
    async with connected(service) as client:
        for entry in ("null", "{}", '"x"'):
            for size in (1, 2 * MEBIBYTE):
                service.answer(SEARCH, f'{{"resourceType": "Bundle", "text": "{"x" * size}", "entry": {entry}}}'.encode())
                assert await client.requested_order_tasks() == (), (entry, size)

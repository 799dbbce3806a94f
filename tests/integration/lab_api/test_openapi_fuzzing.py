"""Whatever is asked, the answer is one that the OpenAPI document knows: never a 500, and every refusal an OperationOutcome."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Coroutine, Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from lab_agent.catalogue_service.label_allocation import LabelAllocator
from lab_agent.crypto import Cipher
from lab_agent.store.unit_of_work import SqlStore
from lab_api.app import create_app
from lab_api.response_cache import CurrentCatalogue
from tests.harness.databases import create_database
from tests.harness.proof import FIGURES, SHARE
from tests.integration.lab_api.parts import KEY, NOON, POOL, bearer, caller, make_settings, sample

QUIET: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
TOKENS = ("exchange-token", "tied-token", "wrong")
AT_ONCE = 4
"""Requests for each example of the proof: making an example costs ten times as much as asking."""


class Runner:
    """One application and one loop for all examples."""

    def __init__(self, url: str) -> None:
        def now() -> datetime:
            return NOON

        current = CurrentCatalogue(sample(), now)
        self.store = SqlStore(url, Cipher(KEY))
        app = create_app(make_settings(prefix="", rate=1e6, burst=10**6), current, LabelAllocator(self.store, (POOL,), None, now))
        self.items = sorted(sample().contract("C-100").items)
        self.client = caller(app, "", base="http://lab.test")
        self.loop = asyncio.Runner()
        schema: Any = schemathesis.openapi.from_dict(json.loads(json.dumps(app.openapi())))
        self.operations = [found.ok() for found in schema.get_all_operations()]

    def __call__(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run(work)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    made = Runner(create_database(tmp_path_factory.mktemp("fuzzing") / "lab.db"))
    yield made
    made(made.client.aclose())
    made(made.store.close())
    made.loop.close()


def sensible(draw: Any, body: Any, items: list[str]) -> Any:
    """The same body about what is there, so that not every example ends at an unknown contract."""
    if not isinstance(body, dict):
        return body
    lines = body.get("analyticsrequests")
    if isinstance(lines, list):
        lines = [{**line, "id": draw(st.sampled_from(items))} if isinstance(line, dict) else line for line in lines]
    return {**body, "contract": draw(st.sampled_from(["C-100", "C-200"])), "analyticsrequests": lines}


@st.composite
def cases(draw: st.DrawFn, runner: Runner) -> Any:
    operation = draw(st.sampled_from(runner.operations))
    return draw(operation.as_strategy(generation_mode=draw(st.sampled_from(list(GenerationMode)))))


def make_sensible(draw: Any, case: Any, items: list[str]) -> None:
    case.body = sensible(draw, case.body, items)
    if case.operation.method.upper() == "GET":
        case.query = {"contract": draw(st.sampled_from(["C-100", "C-200", "C-300"]))}


def send_some(runner: Runner, data: st.DataObject, count: int) -> None:
    """Some requests of one case: from one of them on they are about what is there."""
    case, begin = data.draw(cases(runner)), data.draw(st.integers(0, count))
    for number in range(count):
        if number >= begin:
            make_sensible(data.draw, case, runner.items)
        send(runner, case, data.draw(st.sampled_from(TOKENS)))


def check_outcome(answer: httpx.Response) -> None:
    if answer.status_code >= 400:
        assert answer.json()["resourceType"] == "OperationOutcome"
        assert all(issue["diagnostics"] for issue in answer.json()["issue"])


def send(runner: Runner, case: Any, token: str) -> None:
    asked: Any = requests.Request(**case.as_transport_kwargs(base_url="http://lab.test")).prepare()
    headers = {name: value for name, value in asked.headers.items() if name.lower() not in {"content-length", "authorization"}}
    answer = runner(runner.client.request(asked.method, asked.url, content=asked.body, headers={**headers, **bearer(token)}))
    assert answer.status_code < 500, answer.text
    check_outcome(answer)
    case.validate_response(answer, checks=CHECKS)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=150, **QUIET)
def test_any_request_gets_documented_response(runner: Runner, data: st.DataObject) -> None:
    send_some(runner, data, 1)


@pytest.mark.proof
@pytest.mark.timeout(3600)  # minutes of work: the limit of an ordinary test would end it half way
@given(data=st.data())
@settings(max_examples=max(100, int(20_000 * SHARE)) // AT_ONCE, **QUIET)
def test_twenty_thousand_requests_get_documented_responses(runner: Runner, data: st.DataObject) -> None:
    send_some(runner, data, AT_ONCE)
    FIGURES.add(requests=AT_ONCE)


# --- baskets that are nearly right ------------------------------------------------------------------------------------------

ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, 10**30, "", " ", "0", "x" * 300, "\u0000", "ä\u2028", "002.001", "10", 10),
    *([], {}, [10, "13"]),
]
FIELDS = ("id", "specimen_code", "bodysite_code", "bodycite_code", "container_type", "guid", "other")


class Guess:
    """Requests that are nearly right, or not at all. The same seed gives the same requests."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.items = list(sample().contract("C-100").items.values())

    def item(self) -> Any:
        if self.random.random() < 0.05:
            return self.random.choice(ODD)
        item = self.random.choice(self.items)
        wish: dict[str, Any] = {"id": item.id, "guid": f"g{self.random.randrange(10**9)}"}
        if item.options:
            option = self.random.choice(item.options).option
            wish |= {"specimen_code": option.specimen_code, "bodysite_code": option.bodysite_code}
        while self.random.random() < 0.2:
            wish[self.random.choice(FIELDS)] = self.random.choice(ODD)
        return wish

    def body(self) -> bytes:
        body: dict[str, Any] = {"contract": "C-100", "analyticsrequests": [self.item() for _ in range(self.random.randrange(8))]}
        while self.random.random() < 0.1:
            body[self.random.choice(["contract", "analyticsrequests", "includetransportcontainer"])] = self.random.choice(ODD)
        raw = bytearray(json.dumps(body).encode())
        if self.random.random() < 0.1:
            raw[self.random.randrange(len(raw))] = self.random.randrange(256)
        return bytes(raw)


async def send_guesses(api: httpx.AsyncClient, count: int) -> None:
    guess, answered = Guess(7), 0
    for number in range(count):
        body = guess.body()
        response = await api.post("preanalytics" if number % 2 else "questionnaire", content=body)
        assert response.status_code in {200, 400, 404, 422}, (response.status_code, body)
        answered += response.status_code == 200
        check_outcome(response)
    assert answered > count / 20


async def test_random_requests_cause_no_500(api: httpx.AsyncClient) -> None:
    await send_guesses(api, 200)


@pytest.mark.proof
async def test_twenty_thousand_random_requests_cause_no_500(api: httpx.AsyncClient) -> None:
    await send_guesses(api, int(20_000 * SHARE))
    FIGURES.add(requests=int(20_000 * SHARE))

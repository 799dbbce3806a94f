"""Whatever is asked, the answer is one that the OpenAPI document knows: never a 500, and every refusal an OperationOutcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from datetime import datetime
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from lab_agent.catalogue.label_allocation import LabelAllocator
from lab_agent.store.crypto import Cipher
from lab_agent.store.unit_of_work import Store
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
        self.store = Store(url, Cipher(KEY))
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


@st.composite
def cases(draw: st.DrawFn, runner: Runner) -> Any:
    operation = draw(st.sampled_from(runner.operations))
    return draw(operation.as_strategy(generation_mode=draw(st.sampled_from(list(GenerationMode)))))


def make_sensible(draw: Any, case: Any, items: list[str]) -> None:
    """The same request about what is there, so that not every example ends at an unknown contract."""
    if case.operation.method.upper() == "GET":
        case.query = {"contract": draw(st.sampled_from(["C-100", "C-200", "C-300"]))}
    if isinstance(case.body, dict):
        lines = case.body.get("analyticsrequests")
        if isinstance(lines, list):
            lines = [{**line, "id": draw(st.sampled_from(items))} if isinstance(line, dict) else line for line in lines]
        case.body = {**case.body, "contract": draw(st.sampled_from(["C-100", "C-200"])), "analyticsrequests": lines}


def send_some(runner: Runner, data: st.DataObject, count: int) -> None:
    """Some requests of one case: from one of them on they are about what is there."""
    case, begin = data.draw(cases(runner)), data.draw(st.integers(0, count))
    for number in range(count):
        if number >= begin:
            make_sensible(data.draw, case, runner.items)
        send(runner, case, data.draw(st.sampled_from(TOKENS)))


def send(runner: Runner, case: Any, token: str) -> None:
    asked: Any = requests.Request(**case.as_transport_kwargs(base_url="http://lab.test")).prepare()
    headers = {name: value for name, value in asked.headers.items() if name.lower() not in {"content-length", "authorization"}}
    answer = runner(runner.client.request(asked.method, asked.url, content=asked.body, headers={**headers, **bearer(token)}))
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["resourceType"] == "OperationOutcome"
        assert all(issue["diagnostics"] for issue in answer.json()["issue"])
    case.validate_response(answer, checks=CHECKS)


@pytest.mark.parametrize(
    ("examples", "at_once"),
    [
        pytest.param(150, 1, marks=pytest.mark.slow),
        # minutes of work: the limit of an ordinary test would end it half way
        pytest.param(max(100, int(20_000 * SHARE)) // AT_ONCE, AT_ONCE, marks=[pytest.mark.proof, pytest.mark.timeout(3600)]),
    ],
    ids=["few", "many"],
)
def test_any_request_gets_documented_response(runner: Runner, examples: int, at_once: int) -> None:
    @given(data=st.data())
    @settings(max_examples=examples, **QUIET)
    def ask(data: st.DataObject) -> None:
        send_some(runner, data, at_once)
        FIGURES.add(requests=at_once)

    ask()

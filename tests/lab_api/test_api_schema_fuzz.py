"""schemathesis over the OpenAPI: whatever is asked, the answer is one that the document knows, and never a 500."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime
from pathlib import Path
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

from lab_agent.catalogue.load import load
from lab_agent.catalogue.pools import Pool
from lab_agent.catalogues.labels import PoolLabels
from lab_agent.crypto import hash_token
from lab_agent.settings.api import ApiSettings
from lab_agent.store.memory import MemoryStore
from lab_api.app import create_app
from lab_api.served import Shelf

SHARE = float(os.environ.get("LAB_PROOF_SHARE", "1"))
SAMPLE = Path(__file__).parents[2] / "config" / "catalogue"
QUIET: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
TOKENS = ("all", "tied", "wrong")


class Runner:
    """One application and one loop for all examples."""

    def __init__(self) -> None:
        def now() -> datetime:
            return datetime(2026, 11, 20, 12, tzinfo=UTC)

        shelf = Shelf(load(SAMPLE), now)
        tokens = [
            {"name": "all", "sha256": hash_token("all")},
            {"name": "tied", "sha256": hash_token("tied"), "contracts": ["C-200"]},
        ]
        limits = {"max_body": 20_000, "max_basket": 50, "rate": 1e6, "burst": 10**6}
        pool = Pool("p", "77########%", 1, 99_999_999, "luhn", contracts=frozenset({"C-100"}))
        app = create_app(
            ApiSettings.model_validate({"docs": True, "tokens": tokens, **limits}),
            shelf,
            PoolLabels(MemoryStore(), (pool,), None, now),
        )
        self.items = sorted(shelf.served.catalogue.contract("C-100").items)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://lab.test")
        self.loop = asyncio.Runner()
        self.operations = [
            found.ok() for found in schemathesis.openapi.from_dict(json.loads(json.dumps(app.openapi()))).get_all_operations()
        ]

    def __call__(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run(work)


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    made = Runner()
    yield made
    made(made.client.aclose())
    made.loop.close()


def sensible(draw: st.DrawFn, body: Any, items: list[str]) -> Any:
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
    case = draw(operation.as_strategy(generation_mode=draw(st.sampled_from(list(GenerationMode)))))
    if draw(st.booleans()):
        case.body = sensible(draw, case.body, runner.items)
        if operation.method.upper() == "GET":
            case.query = {"contract": draw(st.sampled_from(["C-100", "C-200", "C-300"]))}
    return case


def send(runner: Runner, data: st.DataObject) -> None:
    case = data.draw(cases(runner))
    asked = requests.Request(**case.as_transport_kwargs(base_url="http://lab.test")).prepare()
    headers = {name: value for name, value in asked.headers.items() if name.lower() not in {"content-length", "authorization"}}
    token = data.draw(st.sampled_from(TOKENS))
    answer = runner(
        runner.client.request(
            asked.method, asked.url, content=asked.body, headers={**headers, "Authorization": f"Bearer {token}"}
        )
    )
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["resourceType"] == "OperationOutcome"
        assert all(issue["diagnostics"] for issue in answer.json()["issue"])
    case.validate_response(answer, checks=CHECKS)


@given(data=st.data())
@settings(max_examples=150, **QUIET)
def test_any_request_gets_a_documented_answer(runner: Runner, data: st.DataObject) -> None:
    send(runner, data)


@pytest.mark.proof
@given(data=st.data())
@settings(max_examples=max(100, int(20_000 * SHARE)), **QUIET)
def test_twenty_thousand_requests_get_documented_answers(runner: Runner, data: st.DataObject) -> None:
    send(runner, data)

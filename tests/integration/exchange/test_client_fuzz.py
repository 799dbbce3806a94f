"""Whatever the service answers, nothing but our own failures comes out."""

import asyncio
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient
from lab_agent.shared.errors import Failure
from lab_agent.shared.http_client import HttpClient, HttpOptions
from lab_agent.shared.ids import ResourceId
from lab_agent.shared.values import Identifier
from tests.harness.clock import VirtualClock
from tests.integration.exchange.conftest import FakeTokenStore, exchange_settings, oauth_settings

SETTINGS = exchange_settings(base_url="https://service.example/", oauth=oauth_settings(grant="basic"), put_security="short")
NAMES = st.sampled_from(
    ["resourceType", "entry", "resource", "link", "relation", "url", "id", "meta", "versionId", "security", "issue"]
)
WORDS = st.sampled_from(
    ["Bundle", "Task", "OperationOutcome", "next", "?page=2", "//evil.example", "https://service.example/x", "", "\x00"]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=15,
)


def shaped(resource_type: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object that is nearly right: each field may be missing, right, or anything."""
    optional = {name: json_values | field for name, field in fields.items()}
    return st.fixed_dictionaries({"resourceType": st.just(resource_type)}, optional=optional)


METAS = st.fixed_dictionaries({}, optional={"versionId": json_values, "security": json_values})
TASKS = shaped("Task", id=st.just("1"), meta=METAS)
ENTRIES = st.lists(json_values | st.fixed_dictionaries({"resource": TASKS}), max_size=3)
LINKS = st.lists(json_values | st.fixed_dictionaries({"relation": st.just("next"), "url": WORDS}), max_size=2)
OUTCOMES = shaped("OperationOutcome", issue=st.lists(json_values, max_size=2))
bodies = st.one_of(json_values, TASKS, shaped("Bundle", entry=ENTRIES, link=LINKS), OUTCOMES)
statuses = st.sampled_from([200, 200, 200, 201, 204, 302, 400, 401, 404, 409, 412, 429, 500, 503])
headers = st.dictionaries(
    st.sampled_from(["ETag", "Location", "Retry-After"]),
    st.sampled_from(['W/"1"', '"', "x", "/Task/1/_history/2", "//", "soon", "0"]),
)


async def _ask_everything(client: ExchangeClient) -> int:
    task = {"resourceType": "Task", "id": "1", "meta": {"security": "odd"}}
    calls = [
        client.requested_order_tasks,
        lambda: client.questionnaire_responses([ResourceId("1")]),
        lambda: client.contract_ids("C"),
        lambda: client.read("Task", ResourceId("1")),
        lambda: client.find("Task", Identifier(value="1")),
        lambda: client.create("Task", task, if_none_exist=Identifier(value="1")),
        lambda: client.update("Task", ResourceId("1"), task, version="1"),
        client.check,
    ]
    failed = 0
    for call in calls:
        try:
            await call()
        except Failure:
            failed += 1
    return failed


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(statuses, headers, bodies)
def test_arbitrary_response_succeeds_or_raises_our_failure(status: int, given_headers: dict[str, str], body: Any) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers=given_headers, json=body)

    async def run() -> int:
        async with HttpClient(HttpOptions(timeout=5), transport=httpx.MockTransport(handle)) as http:
            tokens = Authenticator(SETTINGS.oauth, http, FakeTokenStore(), VirtualClock(), "me")
            return await _ask_everything(ExchangeClient(SETTINGS, http, tokens))

    with patch("lab_agent.exchange.requests.backoff_delay", lambda *_: 0.0):
        failed = asyncio.run(run())
    assert failed >= 7 or 200 <= status < 300

"""What holds of each request: HEAD, methods, one line in the log, a number in the metrics, and outages told once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from lab_agent.catalogue.label_allocation import LabelAllocator
from lab_agent.settings.api import ApiSettings
from lab_agent.shared.errors import StoreUnreachableError
from lab_api.app import create_app
from lab_api.auth import Clients
from lab_api.hosted_documents import HostedDocuments
from lab_api.response_cache import CurrentCatalogue
from lab_api.token_endpoint import SignedTokens, TokenEndpoint
from tests.integration.lab_api.parts import ETA, POOL, TroubledStore, basket, bearer, caller

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
LIST, FORM = "GET, HEAD", "POST"
TAKEN = {
    "nomenclature": LIST,
    "eta": LIST,
    "documents/x": LIST,
    "openapi.json": LIST,
    "questionnaire": FORM,
    "preanalytics": FORM,
    "token": FORM,
    "http://lab/healthz": LIST,
    "http://lab/readyz": LIST,
}


@pytest.fixture
async def whole(
    settings: ApiSettings, current_catalogue: CurrentCatalogue, store: TroubledStore
) -> AsyncIterator[httpx.AsyncClient]:
    """An application with every route that there is, on a store."""
    now = current_catalogue.now
    signed = SignedTokens(("key",), 60, now)
    clients, tokens = Clients(settings.tokens, settings.basic, tuple, signed), TokenEndpoint(tuple, signed, now)
    labels, documents = LabelAllocator(store, (POOL,), None, now), HostedDocuments(store, now)
    async with caller(create_app(settings, current_catalogue, labels, clients, tokens, documents)) as client:
        yield client


@pytest.mark.parametrize("path", ["nomenclature?contract=C-100", ETA, "eta?contract=none", "http://lab/readyz"])
async def test_head_responds_like_get_without_body(api: httpx.AsyncClient, path: str) -> None:
    got, head = await api.get(path), await api.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers == got.headers
    assert int(head.headers["content-length"]) > 0
    if path == ETA:
        assert (await api.head(path, headers={"If-None-Match": head.headers["etag"]})).status_code == 304
        assert (await api.head(path, headers={"Authorization": ""})).status_code == 401


async def test_method_not_allowed_lists_allowed_methods(whole: httpx.AsyncClient) -> None:
    del whole.headers["Authorization"]
    for path, taken in TAKEN.items():
        for method in METHODS:
            response = await whole.request(method, path)
            assert (response.status_code == 405) is (method not in taken.split(", ")), (method, path)
            if response.status_code == 405:
                assert response.headers["allow"] == taken
                assert method == "HEAD" or response.json()["issue"][0]["diagnostics"].endswith(f"use {taken}")


async def test_repeated_parameter_or_key_rejected(api: httpx.AsyncClient) -> None:
    for query in ("contract=C-100&contract=C-200", "contract=C-100&contract=C-100", "contract=C-100&x=1&x=2"):
        for response in (await api.get(f"eta?{query}"), await api.get(f"nomenclature?{query}")):
            assert response.status_code == 400
            assert "is given more than once" in response.json()["issue"][0]["diagnostics"]
        assert (await api.post(f"preanalytics?{query}", json=basket("001.001"))).status_code == 400
    assert (await api.get(f"{ETA}&other=1")).status_code == 200
    for path in ("questionnaire", "preanalytics"):
        body = '{"contract": "C-100", "contract": "C-200", "analyticsrequests": [{"id": "001.001"}]}'
        response = await api.post(path, content=body)
        assert response.status_code == 400
        assert response.json()["issue"][0]["diagnostics"] == "contract: duplicate key — remove one of the two"


async def test_each_request_is_one_line_by_route(whole: httpx.AsyncClient) -> None:
    """Never an address, a query string or a body."""
    whole.base_url = "http://lab"  # type: ignore[assignment]
    secret = {"contract": "C-100", "analyticsrequests": [{"id": "none", "guid": "secret-guid"}]}
    for method, address, path, status, source in (
        ("GET", "/lab/nomenclature?contract=C-100", "/lab/nomenclature", 200, "exchange"),
        ("HEAD", "/lab/eta?contract=secret", "/lab/eta", 404, "exchange"),
        ("POST", "/lab/preanalytics", "/lab/preanalytics", 422, "exchange"),
        ("DELETE", "/lab/eta?contract=secret", "/lab/eta", 405, None),
        ("GET", "/lab/documents/secret", "/lab/documents/{address}", 404, None),
        ("GET", "/lab/secret?contract=secret", "unknown", 404, None),
        ("GET", "/healthz", "/healthz", 200, None),
    ):
        with capture_logs() as lines:
            await whole.request(method, address, json=secret if method == "POST" else None)
        (line,) = lines
        assert (line["method"], line["path"], line["status"], line["source"]) == (method, path, status, source)
        assert line["log_level"] == ("debug" if path == "/healthz" else "info")
        assert "secret" not in str(line)


@pytest.mark.parametrize("raises", [False, True])
async def test_unexpected_error_is_answered_logged_and_raised_for_the_server(
    settings: ApiSettings, current_catalogue: CurrentCatalogue, raises: bool
) -> None:
    current_catalogue.responses = None  # type: ignore[assignment]
    async with caller(create_app(settings, current_catalogue), raises=raises) as client:
        with capture_logs() as lines:
            if raises:
                with pytest.raises(AttributeError):
                    await client.get(ETA)
            else:
                response = await client.get(ETA)
                (issue,) = response.json()["issue"]
                assert (response.status_code, issue["code"]) == (500, "exception")
                assert not [each for each in ("Traceback", "None") if each in issue["diagnostics"]]
    assert [(line["path"], line["status"]) for line in lines] == [("/lab/eta", 500)]


@pytest.mark.parametrize(
    ("method", "path", "what", "usual"), [("GET", "documents/x", "documents", 404), ("POST", "preanalytics", "labels", 200)]
)
async def test_store_outage_logged_once_and_named(
    whole: httpx.AsyncClient, store: TroubledStore, method: str, path: str, what: str, usual: int
) -> None:
    with capture_logs() as said:
        for unavailable in (False, True, True, True, False, False, True):
            store.error = StoreUnreachableError() if unavailable else None
            response = await whole.request(method, path, json=basket("001.001") if method == "POST" else None)
            assert response.status_code == (503 if unavailable else usual)
    issue = response.json()["issue"][0]
    assert issue["code"] == "transient"
    assert issue["diagnostics"].startswith(f"{what}: temporarily unavailable")
    assert response.headers["retry-after"] == "10"
    actions = [each["action"] for each in said if each["action"] != "api.request"]
    assert actions == [f"api.{what}_unavailable", f"api.{what}_restored", f"api.{what}_unavailable"]


# --- /metrics and /readyz ---------------------------------------------------------------------------------------------------


async def test_requests_refusals_and_catalogue_are_counted(api: httpx.AsyncClient, current_catalogue: CurrentCatalogue) -> None:
    first = await api.get("nomenclature?contract=C-100")
    await api.get("nomenclature?contract=C-100", headers={"If-None-Match": first.headers["etag"]})
    await api.get(ETA, headers=bearer("wrong"))
    await api.get("eta?contract=secret")
    await api.post("preanalytics", json=basket("none"))
    await api.delete("eta")
    await api.get("secret")
    answer = await api.get("http://lab/metrics", headers={"Authorization": ""})
    found = {
        (each.name.removeprefix("lab_api_"), *(value for _, value in sorted(each.labels.items()))): each.value
        for family in text_string_to_metric_families(answer.text)
        for each in family.samples
    }
    counted = {name: value for name, value in found.items() if name[0] == "requests_total"}
    assert counted == {
        ("requests_total", "nomenclature", "ok"): 1,
        ("requests_total", "nomenclature", "unchanged"): 1,
        ("requests_total", "eta", "no_access"): 1,
        ("requests_total", "eta", "not_found"): 1,
        ("requests_total", "eta", "invalid"): 1,
        ("requests_total", "preanalytics", "contradicted"): 1,
        ("requests_total", "other", "not_found"): 1,
    }
    assert found["request_seconds_count", "nomenclature"] == 2
    assert (found["refusals_total", "wrong_credentials"], found["refusals_total", "too_many_requests"]) == (1, 0)
    assert found["catalogue_info", current_catalogue.responses.catalogue.version] == 1
    assert found[("catalogue_served_since_timestamp_seconds",)] == current_catalogue.since.timestamp()
    assert found[("ready",)] == 1
    assert "secret" not in answer.text


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via"])
async def test_numbers_are_not_for_who_comes_through_a_proxy(
    settings: ApiSettings, current_catalogue: CurrentCatalogue, header: str
) -> None:
    """Also where the prefix is empty, and the proxy passes on every path."""
    app = create_app(settings.model_copy(update={"prefix": ""}), current_catalogue)
    async with caller(app, "", base="http://lab/") as client:
        assert (await client.get("metrics")).status_code == 200
        assert (await client.get("metrics", headers={header: "203.0.113.7"})).status_code == 404


async def test_health_and_readiness_need_no_credentials(api: httpx.AsyncClient, current_catalogue: CurrentCatalogue) -> None:
    del api.headers["Authorization"]
    for path in ("http://lab/healthz", "healthz"):
        assert (await api.get(path)).json() == {"status": "ok", "service": "lab-api"}
    served, since = current_catalogue.responses.catalogue.version, current_catalogue.since.isoformat()
    ready = {"status": "ready", "service": "lab-api", "catalogue": served, "served_since": since}
    assert (await api.get("http://lab/readyz")).json() == ready

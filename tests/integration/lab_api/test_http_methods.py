"""HEAD, methods that a path does not take, and parameters that come twice."""

from __future__ import annotations

import httpx
import pytest

from lab_agent.settings.api import ApiSettings
from lab_api.app import create_app
from lab_api.auth import Clients
from lab_api.hosted_documents import HostedDocuments
from lab_api.response_cache import CurrentCatalogue
from lab_api.token_endpoint import SignedTokens, TokenEndpoint
from tests.fakes.memory_store import MemoryStore

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
TAKEN = {
    "nomenclature": "GET, HEAD",
    "eta": "GET, HEAD",
    "questionnaire": "POST",
    "preanalytics": "POST",
    "token": "POST",
    "documents/x": "GET, HEAD",
    "openapi.json": "GET, HEAD",
    "http://lab/healthz": "GET, HEAD",
    "http://lab/readyz": "GET, HEAD",
}


@pytest.fixture
def whole(settings: ApiSettings, current_catalogue: CurrentCatalogue) -> httpx.ASGITransport:
    """An application with every route that there is."""
    signed = SignedTokens(("key",), 60, current_catalogue.now)
    known = Clients(settings.tokens, settings.basic, tuple, signed)
    documents = HostedDocuments(MemoryStore(), current_catalogue.now)
    return httpx.ASGITransport(
        create_app(settings, current_catalogue, None, known, TokenEndpoint(tuple, signed, current_catalogue.now), documents)
    )


@pytest.mark.parametrize("path", ["nomenclature?contract=C-100", "eta?contract=C-100", "eta?contract=none", "http://lab/readyz"])
async def test_head_responds_like_get_without_body(api: httpx.AsyncClient, path: str) -> None:
    got, head = await api.get(path), await api.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers == got.headers
    assert int(head.headers["content-length"]) > 0


async def test_head_supports_304_and_requires_credentials(api: httpx.AsyncClient) -> None:
    etag = (await api.head("eta?contract=C-100")).headers["etag"]
    assert (await api.head("eta?contract=C-100", headers={"If-None-Match": etag})).status_code == 304
    assert (await api.head("eta?contract=C-100", headers={"Authorization": ""})).status_code == 401


@pytest.mark.parametrize(("path", "taken"), TAKEN.items())
async def test_method_not_allowed_lists_allowed_methods(whole: httpx.ASGITransport, path: str, taken: str) -> None:
    async with httpx.AsyncClient(transport=whole, base_url="http://lab/lab/") as client:
        for method in METHODS:
            response = await client.request(method, path)
            assert (response.status_code == 405) is (method not in taken.split(", ")), method
            if response.status_code == 405:
                assert response.headers["allow"] == taken
                if method != "HEAD":
                    assert response.json()["issue"][0]["diagnostics"].endswith(f"use {taken}")


@pytest.mark.parametrize("query", ["contract=C-100&contract=C-200", "contract=C-100&contract=C-100", "contract=C-100&x=1&x=2"])
async def test_repeated_query_parameter_rejected(api: httpx.AsyncClient, query: str) -> None:
    for response in (await api.get(f"eta?{query}"), await api.get(f"nomenclature?{query}")):
        assert response.status_code == 400
        assert "is given more than once" in response.json()["issue"][0]["diagnostics"]
    body = {"contract": "C-100", "analyticsrequests": [{"id": "001.001"}]}
    assert (await api.post(f"preanalytics?{query}", json=body)).status_code == 400
    assert (await api.get("eta?contract=C-100&other=1")).status_code == 200


@pytest.mark.parametrize("path", ["questionnaire", "preanalytics"])
async def test_repeated_basket_key_rejected_by_name(api: httpx.AsyncClient, path: str) -> None:
    body = '{"contract": "C-100", "contract": "C-200", "analyticsrequests": [{"id": "001.001"}]}'
    response = await api.post(path, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert response.json()["issue"][0]["diagnostics"] == "contract: duplicate key — remove one of the two"

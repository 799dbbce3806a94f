"""The request log: one line for each request, by route; never an address, a query string or a body."""

from __future__ import annotations

import httpx
import pytest
from structlog.testing import capture_logs

from lab_agent.settings.api import ApiSettings
from lab_api.app import create_app
from lab_api.hosted_documents import HostedDocuments
from lab_api.response_cache import CurrentCatalogue
from tests.fakes.memory_store import MemoryStore

BASKET = {"contract": "C-100", "analyticsrequests": [{"id": "none", "guid": "secret-guid"}]}


@pytest.mark.parametrize(
    ("method", "address", "path", "status", "source"),
    [
        ("GET", "/lab/nomenclature?contract=C-100", "/lab/nomenclature", 200, "exchange"),
        ("HEAD", "/lab/eta?contract=secret", "/lab/eta", 404, "exchange"),
        ("POST", "/lab/preanalytics", "/lab/preanalytics", 422, "exchange"),
        ("DELETE", "/lab/eta?contract=secret", "/lab/eta", 405, None),
        ("GET", "/lab/documents/secret", "/lab/documents/{address}", 404, None),
        ("GET", "/lab/secret?contract=secret", "unknown", 404, None),
        ("GET", "/healthz", "/healthz", 200, None),
    ],
)
async def test_each_request_is_one_line_by_route(
    settings: ApiSettings,
    current_catalogue: CurrentCatalogue,
    method: str,
    address: str,
    path: str,
    status: int,
    source: str | None,
) -> None:
    documents = HostedDocuments(MemoryStore(), current_catalogue.now)
    transport = httpx.ASGITransport(create_app(settings, current_catalogue, documents=documents))
    async with httpx.AsyncClient(transport=transport, base_url="http://lab") as client:
        with capture_logs() as lines:
            headers = {"Authorization": "Bearer exchange-token"}
            await client.request(method, address, headers=headers, json=BASKET if method == "POST" else None)
    (line,) = lines
    assert (line["method"], line["path"], line["status"], line["source"]) == (method, path, status, source)
    assert line["log_level"] == ("debug" if path == "/healthz" else "info")
    assert "secret" not in str(line)


async def test_unexpected_error_is_answered_logged_and_raised_for_the_server(
    settings: ApiSettings, current_catalogue: CurrentCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(current_catalogue, "now", fail)
    app = create_app(settings, current_catalogue)
    headers = {"Authorization": "Bearer exchange-token"}
    for raises in (False, True):
        transport = httpx.ASGITransport(app, raise_app_exceptions=raises)
        async with httpx.AsyncClient(transport=transport, base_url="http://lab", headers=headers) as client:
            with capture_logs() as lines:
                if raises:
                    with pytest.raises(ZeroDivisionError):
                        await client.get("/lab/eta?contract=C-100")
                else:
                    response = await client.get("/lab/eta?contract=C-100")
                    assert (response.status_code, response.json()["issue"][0]["code"]) == (500, "exception")
        assert [(line["path"], line["status"]) for line in lines] == [("/lab/eta", 500)]

"""An unavailable store: the response names the resource, and the log has its begin and end once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from lab_agent.catalogue_service.label_allocation import LabelAllocator
from lab_agent.domain.label_pools import LabelPool
from lab_agent.errors import StoreUnreachableError
from lab_agent.settings.api import ApiSettings
from lab_api.app import create_app
from lab_api.hosted_documents import HostedDocuments
from lab_api.response_cache import CurrentCatalogue
from tests.fakes.memory_store import MemoryStore

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
POOL = LabelPool("main", "77######%", 1, 999_999, "luhn")
BASKET = {"contract": "C-100", "analyticsrequests": [{"id": "001.001"}]}


class Flaky(MemoryStore):
    unavailable = False

    async def run(self, work: Any, *args: Any, **options: Any) -> Any:
        if self.unavailable:
            raise StoreUnreachableError
        return await super().run(work, *args, **options)

    async def run_read_only(self, work: Any) -> Any:
        if self.unavailable:
            raise StoreUnreachableError
        return await super().run_read_only(work)


@pytest.mark.parametrize(
    ("method", "path", "what", "usual"), [("GET", "documents/x", "documents", 404), ("POST", "preanalytics", "labels", 200)]
)
async def test_store_outage_logged_once_and_named(
    settings: ApiSettings, current_catalogue: CurrentCatalogue, method: str, path: str, what: str, usual: int
) -> None:
    """A store outage and its end are logged once each, and the 503 names what was asked for."""
    store = Flaky()
    documents = HostedDocuments(store, lambda: NOW)
    app = create_app(settings, current_catalogue, LabelAllocator(store, (POOL,), None, lambda: NOW), documents=documents)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {"Authorization": "Bearer exchange-token"}
    async with httpx.AsyncClient(transport=transport, base_url="http://lab/lab/", headers=headers) as client:

        async def ask() -> httpx.Response:
            return await client.request(method, path, json=BASKET if method == "POST" else None)

        with capture_logs() as said:
            for unavailable in (False, True, True, True, False, False, True):
                store.unavailable = unavailable
                response = await ask()
                assert response.status_code == (503 if unavailable else usual)
    issue = response.json()["issue"][0]
    assert issue["code"] == "transient"
    assert issue["diagnostics"].startswith(f"{what}: temporarily unavailable")
    assert response.headers["retry-after"] == "10"
    actions = [each["action"] for each in said if each["action"] != "api.request"]
    assert actions == [f"api.{what}_unavailable", f"api.{what}_restored", f"api.{what}_unavailable"]

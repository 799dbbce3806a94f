"""What the API asks of its database: a basket is one transaction of a few statements, a list is none."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from lab_agent.catalogue_service.label_allocation import LabelAllocator
from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.label_pools import LabelPool
from lab_agent.settings.api import ApiSettings
from lab_agent.store.unit_of_work import SqlStore
from lab_api.app import create_app
from lab_api.response_cache import CurrentCatalogue
from tests.harness.databases import create_database
from tests.harness.store_counts import count_store

POOL = LabelPool("main", "77######%", 1, 999_999, "luhn", contracts=frozenset({"C-100"}))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(create_database(tmp_path / "lab.db"), Cipher(new_key()))
    yield opened
    await opened.close()


@pytest.fixture
async def client(store: SqlStore, settings: ApiSettings, current_catalogue: CurrentCatalogue) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(settings, current_catalogue, LabelAllocator(store, (POOL,), None, current_catalogue.now))
    headers = {"Authorization": "Bearer exchange-token"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://lab/lab/", headers=headers) as made:
        yield made


def basket(current: CurrentCatalogue, size: int) -> dict[str, object]:
    items = current.responses.catalogue.contract("C-100").items.values()
    ids = [item.id for item in items if len(item.options) < 2][:size]
    return {"contract": "C-100", "analyticsrequests": [{"id": each, "guid": str(uuid.uuid4())} for each in ids]}


async def test_basket_of_twenty_is_one_transaction_of_six_statements(
    store: SqlStore, client: httpx.AsyncClient, current_catalogue: CurrentCatalogue
) -> None:
    await client.post("preanalytics", json=basket(current_catalogue, 1))  # the range of the pool is new once
    body = basket(current_catalogue, 20)
    with count_store(store) as counts:
        first = await client.post("preanalytics", json=body)
    labels = [each["label"] for each in first.json()["specimens"]]
    assert len(set(labels)) == len(labels) > 3
    assert (counts.statements, counts.commits, counts.transactions) == (6, 1, 1), counts.report()
    with count_store(store) as counts:
        again = await client.post("preanalytics", json=body)
    assert again.json() == first.json()
    assert (counts.statements, counts.writes, counts.transactions) == (2, 0, 1), counts.report()


@pytest.mark.parametrize("path", ["nomenclature", "eta"])
async def test_lists_ask_nothing_of_the_database(store: SqlStore, client: httpx.AsyncClient, path: str) -> None:
    with count_store(store) as counts:
        assert (await client.get(f"{path}?contract=C-100")).status_code == 200
    assert (counts.statements, counts.control, counts.transactions) == (0, 0, 0)

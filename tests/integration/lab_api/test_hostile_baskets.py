"""A basket whose tubes are the hardest to find: the event loop and other requests go on while it is worked out."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import replace
from decimal import Decimal
from typing import Any

import httpx
import pytest

from lab_agent.catalogue import preanalytics
from lab_agent.catalogue.model import Container, Contract, Item, Requirement, SpecimenOption
from lab_agent.catalogue.turnaround import Turnaround
from lab_agent.settings.api import ApiSettings
from lab_api.app import create_app
from lab_api.response_cache import CurrentCatalogue
from tests.harness.clock import DEADLINE

SIZE = 200


def hostile_contract() -> Contract:
    """Volumes from a fifth to half of a tube: none fits well, and the search for one tube less goes to its limit."""
    volumes, tube = random.Random(3), Container("T", "", "", capacity=Decimal(1000))  # repeatable
    items = {}
    for number in range(SIZE):
        volume, name = Decimal(volumes.randint(200, 450)), f"{number:03}"
        need = Requirement(name, SpecimenOption("", 10, "Serum"), tube, volume, "Venepuncture")
        items[name] = Item(name, name, Decimal(1), Turnaround(Decimal(1)), options=(need,))
    return Contract("C-H", "", items)


async def test_hostile_basket_leaves_loop_to_other_requests(
    settings: ApiSettings, current_catalogue: CurrentCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the plan is being made in a thread, others are answered, as often as they ask."""
    began, may_end, real = threading.Event(), threading.Event(), preanalytics.calculate

    def held_back(*args: Any) -> Any:
        began.set()
        assert may_end.wait(DEADLINE)
        return real(*args)

    monkeypatch.setattr(preanalytics, "calculate", held_back)
    catalogue = current_catalogue.responses.catalogue
    current_catalogue.replace(replace(catalogue, version="hostile", contracts={**catalogue.contracts, "C-H": hostile_contract()}))
    app = create_app(settings.model_copy(update={"max_basket": SIZE}), current_catalogue)
    headers = {"Authorization": "Bearer exchange-token"}
    body = {"contract": "C-H", "analyticsrequests": [{"id": f"{number:03}"} for number in range(SIZE)]}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://lab/lab/", headers=headers) as client:
        hostile = asyncio.create_task(client.post("preanalytics", json=body))
        assert await asyncio.to_thread(began.wait, 30)
        for _ in range(5):
            assert (await client.get("nomenclature?contract=C-100")).status_code == 200
        assert not hostile.done()
        may_end.set()
        specimens = (await hostile).json()["specimens"]
    assert SIZE // 4 <= len(specimens) <= SIZE // 2

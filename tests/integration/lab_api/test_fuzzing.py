"""Whatever comes in, nothing ends in a 500, and every refusal is an OperationOutcome."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx
import pytest

from lab_api.response_cache import CurrentCatalogue
from tests.harness.proof import FIGURES, SHARE

ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    " ",
    "0",
    "x" * 300,
    "\u0000",
    "ä\u2028",
    "002.001",
    "10",
    10,
    [],
    {},
    [10, "13"],
]
FIELDS = ("id", "specimen_code", "bodysite_code", "bodycite_code", "container_type", "guid", "other")


class Guess:
    """Requests that are nearly right, or not at all. The same seed gives the same requests."""

    def __init__(self, seed: int, current: CurrentCatalogue) -> None:
        self.random = random.Random(seed)
        self.items = list(current.responses.catalogue.contract("C-100").items.values())

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


async def fuzz(api: httpx.AsyncClient, current: CurrentCatalogue, count: int) -> None:
    guess, answered = Guess(7, current), 0
    for number in range(count):
        body = guess.body()
        response = await api.post("preanalytics" if number % 2 else "questionnaire", content=body)
        assert response.status_code in {200, 400, 404, 422}, (response.status_code, body)
        answered += response.status_code == 200
        if response.status_code != 200:
            outcome = response.json()
            assert outcome["resourceType"] == "OperationOutcome", body
            assert all(issue["diagnostics"] for issue in outcome["issue"]), body
    assert answered > count / 20


async def test_few_hundred_random_requests_cause_no_500(api: httpx.AsyncClient, current_catalogue: CurrentCatalogue) -> None:
    await fuzz(api, current_catalogue, 400)


@pytest.mark.proof
async def test_twenty_thousand_random_requests_cause_no_500(api: httpx.AsyncClient, current_catalogue: CurrentCatalogue) -> None:
    await fuzz(api, current_catalogue, int(20_000 * SHARE))
    FIGURES.add(requests=int(20_000 * SHARE))

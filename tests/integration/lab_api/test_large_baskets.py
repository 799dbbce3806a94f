"""A large basket is one client's affair: nobody else waits while it is worked out, also where every code in it is wrong."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import httpx
import pytest

from lab_agent.catalogue import basket, preanalytics, questionnaire
from lab_agent.catalogue.model import Catalogue, Contract
from lab_agent.errors import BasketError
from lab_api import endpoints
from lab_api.response_cache import CurrentCatalogue
from tests.harness.clock import DEADLINE, wait_until


def asked(*items: str) -> dict[str, Any]:
    return {"contract": "C-100", "analyticsrequests": [{"id": item} for item in items]}


@pytest.mark.parametrize(
    ("path", "module", "name"),
    [("preanalytics", preanalytics, "calculate"), ("questionnaire", questionnaire, "build_questionnaire")],
)
@pytest.mark.parametrize(("size", "aside"), [(2, False), (40, True)])
async def test_large_basket_computed_off_event_loop(
    api: httpx.AsyncClient,
    current_catalogue: CurrentCatalogue,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    module: Any,
    name: str,
    size: int,
    aside: bool,
) -> None:
    threads: list[threading.Thread] = []

    def noted(work: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            threads.append(threading.current_thread())
            return work(*args, **options)

        return run

    for holder, what in ((module, name), (basket, "read_basket"), (endpoints, "json_response")):
        monkeypatch.setattr(holder, what, noted(getattr(holder, what)))
    ids = [item.id for item in current_catalogue.responses.catalogue.contract("C-100").items.values() if len(item.options) < 2]
    response = await api.post(path, json=asked(*ids[:size]))
    assert response.status_code == 200, response.text
    assert [each is not threading.main_thread() for each in threads] == [aside] * 3


async def test_large_basket_does_not_block_other_requests(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, current_catalogue: CurrentCatalogue
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(catalogue: Catalogue, lines: Any) -> Any:
        begun.set()
        assert may_end.wait(DEADLINE)
        return real(catalogue, lines)

    real = preanalytics.calculate
    monkeypatch.setattr(preanalytics, "calculate", slow)
    ids = [item.id for item in current_catalogue.responses.catalogue.contract("C-100").items.values() if len(item.options) < 2]
    large = asyncio.create_task(api.post("preanalytics", json=asked(*ids[:40])))
    await wait_until(begun.is_set, "the computation of the large basket")
    assert (await api.get("http://lab/healthz")).status_code == 200
    assert not large.done()
    may_end.set()
    assert (await large).status_code == 200


def test_unknown_codes_looked_up_in_one_pass(current_catalogue: CurrentCatalogue) -> None:
    class Counted(dict[str, Any]):
        looks = 0

        def __iter__(self) -> Any:
            Counted.looks += 1
            return super().__iter__()

    contract = current_catalogue.responses.catalogue.contract("C-100")
    counted: Contract = replace(contract, items=Counted(contract.items))
    with pytest.raises(BasketError) as caught:
        basket.read_basket(asked(*(f"none-{number}" for number in range(199)), "1.001"), {"C-100": counted}, 200)
    assert len(caught.value.problems) == 200
    assert "did you mean '001.001'?" in str(caught.value)
    assert Counted.looks <= 1

"""What takes long is one client's affair: it is made aside, once for all who ask, and with few statements."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import httpx
import pytest

from lab_agent.catalogue import basket as catalogue_basket
from lab_agent.catalogue import preanalytics, questionnaire
from lab_agent.catalogue.label_allocation import LabelAllocator
from lab_agent.catalogue.model import Contract
from lab_agent.catalogue.turnaround import Notice, NoticePeriod, Stopped
from lab_agent.settings.api import ApiSettings
from lab_api import endpoints
from lab_api.app import create_app
from lab_api.response_cache import CurrentCatalogue, PreparedBodies
from tests.harness.clock import DEADLINE
from tests.harness.store_counts import count_store
from tests.integration.lab_api.parts import NOON, POOL, TroubledStore, basket, caller, new_guids, plain_items

CONTRACTS = [Contract(f"C-{number}", "", {}) for number in range(5)]


@pytest.mark.parametrize(
    ("path", "module", "name"),
    [("preanalytics", preanalytics, "calculate"), ("questionnaire", questionnaire, "build_questionnaire")],
)
async def test_large_basket_computed_off_event_loop(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, path: str, module: Any, name: str
) -> None:
    threads: list[threading.Thread] = []

    def noted(work: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            threads.append(threading.current_thread())
            return work(*args, **options)

        return run

    for holder, what in ((module, name), (catalogue_basket, "read_basket"), (endpoints, "json_response")):
        monkeypatch.setattr(holder, what, noted(getattr(holder, what)))
    for size, aside in ((2, False), (40, True)):
        threads.clear()
        response = await api.post(path, json=basket(*plain_items(size)))
        assert response.status_code == 200, response.text
        assert [each is not threading.main_thread() for each in threads] == [aside] * 3


async def test_database_is_asked_little(store: TroubledStore, settings: ApiSettings, current_catalogue: CurrentCatalogue) -> None:
    """A basket of twenty is one transaction of six statements, the same one again reads; a list asks nothing."""
    app = create_app(settings, current_catalogue, LabelAllocator(store, (POOL,), None, current_catalogue.now))
    async with caller(app) as client:
        await client.post("preanalytics", json=basket(*plain_items(1), guids=new_guids(1)))  # the range of the pool is new once
        body = basket(*plain_items(20), guids=new_guids(20))
        with count_store(store) as counts:
            first = await client.post("preanalytics", json=body)
        labels = [each["label"] for each in first.json()["specimens"]]
        assert len(set(labels)) == len(labels) > 3
        assert (counts.statements, counts.commits, counts.transactions) == (6, 1, 1), counts.report()
        with count_store(store) as counts:
            again = await client.post("preanalytics", json=body)
        assert again.json() == first.json()
        assert (counts.statements, counts.writes, counts.transactions) == (2, 0, 1), counts.report()
        with count_store(store) as counts:
            for path in ("nomenclature", "eta"):
                assert (await client.get(f"{path}?contract=C-100")).status_code == 200
        assert (counts.statements, counts.control, counts.transactions) == (0, 0, 0)


# --- prepared bodies --------------------------------------------------------------------------------------------------------


class Maker:
    """Makes a body of a kilobyte that is all its own, and notes for whom and where."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.began, self.may_end = threading.Event(), threading.Event()

    def __call__(self, contract: Contract) -> str:
        self.made.append(contract.code)
        self.threads.add(threading.current_thread())
        self.began.set()
        assert self.may_end.wait(DEADLINE)
        return contract.code * 300


async def test_simultaneous_callers_share_one_preparation() -> None:
    make = Maker()
    bodies = PreparedBodies(make)
    callers = [asyncio.create_task(bodies.get(CONTRACTS[0])) for _ in range(5)]
    assert await asyncio.to_thread(make.began.wait, DEADLINE)  # the loop goes on meanwhile
    callers.pop().cancel()
    make.may_end.set()
    found = await asyncio.gather(*callers)
    assert make.made == ["C-0"]
    assert threading.main_thread() not in make.threads
    assert all(each is found[0] for each in found)


async def test_failed_preparation_is_tried_again() -> None:
    results = iter([ZeroDivisionError(), "x"])

    def prepare(contract: Contract) -> str:
        if isinstance(found := next(results), Exception):
            raise found
        return str(found)

    bodies = PreparedBodies(prepare)
    with pytest.raises(ZeroDivisionError):
        await bodies.get(CONTRACTS[0])
    assert (await bodies.get(CONTRACTS[0])).plain == b'"x"'


async def test_prepared_bodies_are_bounded_in_size() -> None:
    """The least recently used is dropped; in advance only what fits is made."""
    make = Maker()
    make.may_end.set()
    bodies = PreparedBodies(make, max_bytes=2500)
    for place in (0, 1, 0, 2, 0, 1):
        await bodies.get(CONTRACTS[place])
    assert make.made == ["C-0", "C-1", "C-2", "C-1"]
    make.made.clear()
    PreparedBodies(make, max_bytes=2500).prepare(CONTRACTS)
    assert make.made == ["C-0", "C-1"]


async def test_lists_prepared_once_until_a_notice_begins(current_catalogue: CurrentCatalogue) -> None:
    period = NoticePeriod(NOON + timedelta(hours=1), NOON + timedelta(hours=2))
    current_catalogue.replace(current_catalogue.responses.catalogue, (Notice("001.001", Stopped(period)),))
    served, contract = current_catalogue.responses, current_catalogue.responses.catalogue.contract("C-100")
    lists = await served.nomenclature(contract), await served.eta(contract, NOON)
    again = await served.nomenclature(contract), await served.eta(contract, NOON)
    assert all(each is first for each, first in zip(again, lists, strict=True))
    stopped, *others = await asyncio.gather(*(served.eta(contract, period.start) for _ in range(4)))
    assert b"stopped" in stopped.plain
    assert all(each is stopped for each in others)
    current_catalogue.replace(served.catalogue)
    assert await current_catalogue.responses.nomenclature(contract) is lists[0]

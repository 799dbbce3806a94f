"""Labels: reserved in the store, never given twice, the same for the same basket; second ones, alerts, the mark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab_agent.catalogue.label_allocation import HighWaterMark, LabelAllocator, empty_alert_key, low_alert_key
from lab_agent.shared.conditions.model import AlertKey
from lab_agent.shared.errors import StoreError
from lab_agent.shared.label_pools import LabelPool
from lab_agent.store.crypto import Cipher
from lab_agent.store.event_records import Alert
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import Store
from lab_api.app import create_app
from lab_api.response_cache import CurrentCatalogue
from tests.harness.databases import create_database
from tests.harness.forked_programs import process_context
from tests.harness.proof import FIGURES, SHARE
from tests.integration.lab_api.parts import KEY, NOON, POOL, TroubledStore, basket, caller, make_settings, new_guids, sample

SECOND = LabelPool("second", "####-####", 1, 9999_9999, second=True)
SMALL = LabelPool("small", "##", 1, 3, warn_below=2)
RANGE = LabelPool("rng", "R####", 51, 53)
BOTH = ("002.002", "004.001")


@dataclass
class Allocating:
    """An API that gives labels of these pools."""

    client: httpx.AsyncClient

    async def specimens(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        response = await self.client.post("preanalytics", json=body)
        assert response.status_code == 200, response.text
        return list(response.json()["specimens"])

    async def labels(self, *items: str | dict[str, Any], **more: Any) -> list[str]:
        """Labels for a basket, or for one of these items."""
        body = items[0] if isinstance(items[0], dict) else basket(*items, **{"guids": new_guids(len(items)), **more})  # type: ignore[arg-type]
        return [each["label"] for each in await self.specimens(body)]

    async def some(self, times: int, **more: Any) -> list[str]:
        """Labels for so many baskets of one tube."""
        return [label for _ in range(times) for label in await self.labels("002.002", **more)]

    async def refused(self) -> httpx.Response:
        response = await self.client.post("preanalytics", json=basket("002.002"))
        assert response.status_code == 503
        return response


@asynccontextmanager
async def allocating(
    store: Store,
    *pools: LabelPool,
    current: CurrentCatalogue | None = None,
    mark: HighWaterMark | None = None,
    now: Callable[[], datetime] = lambda: NOON,
) -> AsyncIterator[Allocating]:
    current = current or CurrentCatalogue(sample(), now)
    app = create_app(make_settings(), current, LabelAllocator(store, pools, mark, now))
    async with caller(app) as client:
        yield Allocating(client)


async def is_open(store: Store, key: AlertKey) -> bool:
    alert = Alert(condition=key.condition, subject=key.subject, since=NOON, opened_at=NOON)
    return not await store.transact(lambda uow: uow.alerts.open(alert))


def use(uow: Any, label: str) -> int:
    used: int = uow.issued_labels.mark_used([label], "R1", at=NOON)
    return used


def purge(uow: Any) -> int:
    gone: int = uow.purge.baskets(before=NOON + timedelta(days=1))
    return gone


async def test_label_allocated_for_each_tube(store: TroubledStore) -> None:
    async with allocating(store, POOL) as api:
        assert await api.labels(*BOTH) == [POOL.label(1), POOL.label(2)]
        assert await api.labels("001.001", contract="C-200") == [None]


async def test_same_basket_gets_same_labels(store: TroubledStore, current_catalogue: CurrentCatalogue) -> None:
    body = basket(*BOTH, guids=new_guids(2))
    async with allocating(store, POOL, current=current_catalogue) as api:
        first = await api.labels(body)
        turned = {**body, "analyticsrequests": list(reversed(body["analyticsrequests"])), "includetransportcontainer": True}
        assert await api.labels(turned) == first
        assert set(await api.labels(*BOTH)).isdisjoint(first)
        for guids in (["1", "2"], ["", ""], [*new_guids(1), ""]):  # repeated, empty or missing: never the same basket
            doubtful = basket(*BOTH, guids=guids)
            assert set(await api.labels(doubtful)).isdisjoint(await api.labels(doubtful))
        current_catalogue.replace(replace(current_catalogue.responses.catalogue, version="another"))
        assert set(await api.labels(body)).isdisjoint(first)


async def test_used_label_never_allocated_again(store: TroubledStore) -> None:
    """When one of the newest labels was used, no older labels of the same basket come back either."""
    body, given = basket(*BOTH, guids=new_guids(2)), list[str]()
    async with allocating(store, POOL) as api:
        for used in (0, 1, 0):
            new = await api.labels(body)
            assert set(new).isdisjoint(given)
            assert await api.labels(body) == new
            assert await store.transact(partial(use, label=new[used])) == 1
            given += new
        assert set(await api.labels(body)).isdisjoint(given)


async def test_no_label_reused_after_purge_or_new_catalogue(store: TroubledStore, current_catalogue: CurrentCatalogue) -> None:
    """Neither from its own pool nor from another that makes the same barcodes, whatever the catalogue is."""
    body, given, other = basket(*BOTH, guids=new_guids(2)), set[str](), replace(POOL, name="other")
    for pool, version in ((POOL, "a"), (POOL, "b"), (other, "b"), (other, "a"), (POOL, "a")):
        current_catalogue.replace(replace(current_catalogue.responses.catalogue, version=version))
        async with allocating(store, pool, current=current_catalogue) as api:
            new = await api.labels(body)
            assert given.isdisjoint(new)
            assert await api.labels(body) == new
            given.update(new)
        assert await store.transact(purge) == 2
    assert len(given) == 10


@pytest.mark.parametrize("told", [True, False])
async def test_second_barcodes_for_studies_needing_them(
    store: TroubledStore, current_catalogue: CurrentCatalogue, told: bool
) -> None:
    """Also for a study that the interface names, where the catalogue says nothing of a second barcode."""
    contract = current_catalogue.responses.catalogue.contract("C-100")
    study = contract.items["042.036"]
    if not told:
        items = {**contract.items, study.id: replace(study, second_label_pattern=None)}
        contracts = {contract.code: replace(contract, items=items)}
        current_catalogue.replace(replace(current_catalogue.responses.catalogue, contracts=contracts))
    option = study.options[0].option
    chosen = {"specimen_code": option.specimen_code, "bodysite_code": option.bodysite_code}
    async with allocating(store, POOL, SECOND, current=current_catalogue) as api:
        (tube,) = await api.specimens(basket("042.036", **chosen))
        assert tube["label"] == POOL.label(1)
        assert "second=0000-0001" in tube["supportingInfo"].split(",")
        (plain,) = await api.specimens(basket("002.002"))
        assert "second" not in plain["supportingInfo"]


async def test_low_pool_alerts_empty_pool_returns_503(store: TroubledStore) -> None:
    """Until the range is widened."""
    low, empty = low_alert_key("small"), empty_alert_key("small")
    async with allocating(store, SMALL) as api:
        for is_low in (False, True, True):
            await api.labels("002.002")
            assert await is_open(store, low) is is_low
        response = await api.refused()
    assert response.headers["retry-after"]
    assert response.json()["issue"][0]["code"] == "transient"
    assert await is_open(store, empty) is True
    async with allocating(store, replace(SMALL, last=99)) as api:
        assert await api.labels("002.002") == ["04"]
    assert [await is_open(store, each) for each in (low, empty)] == [False, False]


async def test_new_label_range_works_at_any_position(store: TroubledStore) -> None:
    """Lower, widened downward, widened both ways, another pattern; alerts know what is left of it."""
    for changes, numbers in (
        ({}, (51, 52, 53)),
        ({"first": 11, "last": 12}, (11, 12)),
        ({"first": 49}, (49, 50)),
        ({"first": 10, "last": 14}, (10, 13, 14)),
        ({"first": 48, "last": 55}, (48, 54, 55)),
        ({"pattern": "S####"}, (51, 52, 53)),
    ):
        pool = replace(RANGE, **changes)
        async with allocating(store, pool) as api:
            assert await api.some(len(numbers)) == [f"{pool.pattern[0]}{number:04}" for number in numbers]
            await api.refused()
        assert await is_open(store, empty_alert_key("rng")) is True
    async with allocating(store, replace(RANGE, first=1, last=56, warn_below=42)) as api:
        for low in (False, False, True):  # 56 without 13 that were given are 43
            assert await is_open(store, low_alert_key("rng")) is low
            await api.labels("002.002")


async def test_overlapping_pools_never_give_same_barcode(store: TroubledStore) -> None:
    one, two = LabelPool("one", "##", 1, 9), LabelPool("two", "##", 1, 99, contracts=frozenset({"C-200"}))
    async with allocating(store, one, two) as api:
        given = [label for code in ("C-100", "C-200") for _ in range(4) for label in await api.labels("001.001", contract=code)]
    assert len(set(given)) == 8


async def test_restored_backup_continues_after_high_water_mark(store: TroubledStore, tmp_path: Path) -> None:
    """A database that has forgotten everything gives none of the labels again that the mark knows, in a new range neither."""
    mark = HighWaterMark(tmp_path / "outside" / "labels.json")
    pool = LabelPool("rng", "R####", 5, 7)
    async with allocating(store, POOL, mark=mark) as api, allocating(store, pool, mark=mark) as ranged:
        assert await api.some(3) == [POOL.label(number) for number in (1, 2, 3)]
        assert await ranged.some(2) == ["R0005", "R0006"]
    restored = Store(create_database(tmp_path / "restored.db"), Cipher(KEY))
    async with allocating(restored, POOL, mark=mark) as api, allocating(restored, replace(pool, first=4), mark=mark) as ranged:
        assert await api.some(1) == [POOL.label(4)]
        assert await ranged.some(2) == ["R0004", "R0007"]
    await restored.close()
    assert json.loads(mark.path.read_text())[POOL.pattern] == {"1": 4}


async def test_damaged_high_water_mark_stops_label_allocation(store: TroubledStore, tmp_path: Path) -> None:
    mark = HighWaterMark(tmp_path / "labels.json")
    mark.path.write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        mark.read()
    async with allocating(store, POOL, mark=mark) as api:
        await api.refused()
        mark.path.write_text(json.dumps({POOL.pattern: {"1": 7}}))
        mark.raise_to({POOL.pattern: {1: 3, 90: 95}, "other": {1: 2}})
        assert mark.read() == {POOL.pattern: {1: 7, 90: 95}, "other": {1: 2}}
        assert await api.labels("002.002") == [POOL.label(8)]


# --- several processes ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.proof)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return create_database(tmp_path / "lab.db")
    found = str(request.getfixturevalue("postgres_url"))
    upgrade(found)
    return found


def in_process(url: str, work: Callable[[Allocating, Store], Any], mark: Path | None, first: int = 1) -> Any:
    """What an API process does, whose settings have a range from `first` on."""

    async def whole() -> Any:
        store, high = Store(url, Cipher(KEY)), None if mark is None else HighWaterMark(mark)
        async with allocating(store, replace(POOL, first=first), mark=high, now=lambda: datetime.now(UTC)) as api:
            found = await work(api, store)
        await store.close()
        return found

    return asyncio.run(whole())


async def _own_and_shared(api: Allocating, _: Store, count: int, shared: list[str]) -> tuple[list[str], list[list[str]]]:
    """So many baskets at once, and some that every process asks for."""
    own = await asyncio.gather(*(api.labels("002.002") for _ in range(count)))
    same = await asyncio.gather(*(api.labels("002.002", guids=[guid]) for guid in shared))
    return [label for each in own for label in each], list(same)


async def _again_and_again(api: Allocating, store: Store, body: dict[str, Any], times: int) -> list[tuple[str, ...]]:
    """The same basket, one of whose labels is used after every third time."""
    found = []
    for time in range(times):
        found.append(tuple(await api.labels(body)))
        if time % 3 == 2:
            await store.transact(partial(use, label=found[-1][time % 2]))
    return found


@pytest.mark.proof
def test_mixed_old_and_new_range_labels_unique(url: str, tmp_path: Path) -> None:
    work = partial(_own_and_shared, count=20, shared=[])
    with ProcessPoolExecutor(4, mp_context=process_context()) as pool:
        asked = [pool.submit(in_process, url, work, tmp_path / "mark.json", first) for first in (30, 1, 30, 10)]
        given = [label for each in asked for label in each.result()[0]]
    assert len(set(given)) == len(given) == 80


@pytest.mark.proof
def test_four_processes_never_mix_one_baskets_labels(url: str) -> None:
    work = partial(_again_and_again, body=basket(*BOTH, guids=new_guids(2)), times=12)
    with ProcessPoolExecutor(4, mp_context=process_context()) as pool:
        done = [pool.submit(in_process, url, work, None) for _ in range(4)]
        sets = {each for process in done for each in process.result()}
    assert len(sets) > 4
    assert len({label for each in sets for label in each}) == 2 * len(sets)


@pytest.mark.parametrize(
    "count", [pytest.param(60, marks=pytest.mark.slow), pytest.param(max(40, int(1000 * SHARE)), marks=pytest.mark.proof)]
)
def test_four_processes_allocate_unique_labels(url: str, tmp_path: Path, count: int) -> None:
    """None is skipped, either."""
    shared = new_guids(3)
    work = partial(_own_and_shared, count=count // 4, shared=shared)
    with ProcessPoolExecutor(4, mp_context=process_context()) as pool:
        asked = [pool.submit(in_process, url, work, tmp_path / "mark.json") for _ in range(4)]
        done = [each.result() for each in asked]
    same = [found for _, found in done]
    assert all(found == same[0] for found in same)
    given = [label for own, _ in done for label in own] + [label for each in same[0] for label in each]
    assert len(set(given)) == len(given) == 4 * (count // 4) + len(shared)
    assert sorted(int(label[2:-1]) for label in given) == list(range(1, len(given) + 1))
    FIGURES.add(baskets_of_four_processes=count, labels_twice=0)

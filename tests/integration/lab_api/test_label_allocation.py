"""Labels: reserved in the store, never given twice, the same for the same basket; second ones, alerts, the mark."""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_agent.catalogue_service.high_water_mark import HighWaterMark
from lab_agent.catalogue_service.label_allocation import LabelAllocator, empty_alert_key, low_alert_key
from lab_agent.conditions.model import AlertKey
from lab_agent.crypto import Cipher
from lab_agent.domain.label_pools import LabelPool
from lab_agent.domain.records import Alert
from lab_agent.errors import StoreError
from lab_agent.ports.repositories import Store
from lab_agent.settings.api import ApiSettings
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import SqlStore
from lab_api.app import create_app
from lab_api.response_cache import CurrentCatalogue
from tests.fakes.memory_store import MemoryStore
from tests.harness.databases import create_database
from tests.harness.forked_programs import process_context
from tests.harness.paths import CATALOGUE
from tests.harness.proof import FIGURES, SHARE

KEY = "mBhtlW3ttGseDcUuF61rb-sYuo32K-3GRXN3KNo1Lvc="
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
MAIN = LabelPool("main", "77######%", 1, 999_999, "luhn", contracts=frozenset({"C-100"}))
SECOND = LabelPool("second", "####-####", 1, 9999_9999, second=True)


def application(
    store: Store, current: CurrentCatalogue, *pools: LabelPool, mark: HighWaterMark | None = None
) -> httpx.AsyncClient:
    settings = ApiSettings.model_validate(
        {"rate": 1e6, "burst": 10**6, "tokens": [{"name": "x", "sha256": _hash("exchange-token")}]}
    )
    app = create_app(settings, current, LabelAllocator(store, pools, mark, lambda: NOW))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {"Authorization": "Bearer exchange-token"}
    return httpx.AsyncClient(transport=transport, base_url="http://lab/", headers=headers)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def basket(*items: str, guids: list[str] | None = None, contract: str = "C-100") -> dict[str, Any]:
    names = guids or [str(uuid.uuid4()) for _ in items]
    lines = [{"id": item, "guid": guid} for item, guid in zip(items, names, strict=True)]
    return {"contract": contract, "analyticsrequests": lines}


async def ask(client: httpx.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = await client.post("preanalytics", json=body)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["specimens"]
    return found


def labels(specimens: list[dict[str, Any]]) -> list[str]:
    return [each["label"] for each in specimens]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def test_label_allocated_for_each_tube(store: MemoryStore, current_catalogue: CurrentCatalogue) -> None:
    async with application(store, current_catalogue, MAIN) as client:
        found = labels(await ask(client, basket("002.002", "004.001")))
        assert found == [MAIN.label(1), MAIN.label(2)]
        assert labels(await ask(client, basket("001.001", contract="C-200"))) == [None]


async def test_same_basket_gets_same_labels(store: MemoryStore, current_catalogue: CurrentCatalogue) -> None:
    body = basket("002.002", "004.001")
    async with application(store, current_catalogue, MAIN) as client:
        first = await ask(client, body)
        turned = {**body, "analyticsrequests": list(reversed(body["analyticsrequests"])), "includetransportcontainer": True}
        assert labels(await ask(client, turned)) == labels(first)
        assert set(labels(await ask(client, basket("002.002", "004.001")))).isdisjoint(labels(first))
        current_catalogue.replace(replace(current_catalogue.responses.catalogue, version="another"))
        assert set(labels(await ask(client, body))).isdisjoint(labels(first))


@pytest.mark.parametrize("guids", [["1", "2"], ["", ""], [str(uuid.uuid4()), ""]])
async def test_duplicate_guids_never_identify_same_basket(
    store: MemoryStore, current_catalogue: CurrentCatalogue, guids: list[str]
) -> None:
    """Guids that are repeated, empty or missing do not make two baskets the same."""
    async with application(store, current_catalogue, MAIN) as client:
        body = basket("002.002", "004.001", guids=guids)
        assert set(labels(await ask(client, body))).isdisjoint(labels(await ask(client, body)))


async def test_used_label_never_allocated_again(store: MemoryStore, current_catalogue: CurrentCatalogue) -> None:
    body = basket("002.002")
    async with application(store, current_catalogue, MAIN) as client:
        (first,) = labels(await ask(client, body))

        def use(uow: Any) -> None:
            assert uow.issued_labels.mark_used([first], "R1", at=NOW) == 1
            uow.commit()

        await store.run(use)
        (second,) = labels(await ask(client, body))
        assert second != first
        assert labels(await ask(client, body)) == [second]


async def test_newest_label_used_older_labels_not_returned(store: MemoryStore, current_catalogue: CurrentCatalogue) -> None:
    """When one of the newest labels was used, no older labels of the same basket come back."""
    body, given = basket("002.002", "004.001"), list[str]()

    async with application(store, current_catalogue, MAIN) as client:
        for used in (0, 1, 0):
            new = labels(await ask(client, body))
            assert set(new).isdisjoint(given)
            assert labels(await ask(client, body)) == new
            await store.run(partial(_use, label=new[used]))
            given += new
        assert set(labels(await ask(client, body))).isdisjoint(given)


async def test_no_label_reused_after_purge_or_new_catalogue(store: MemoryStore, current_catalogue: CurrentCatalogue) -> None:
    """Neither from its own pool nor from another that makes the same barcodes, whatever the catalogue is."""
    body, given = basket("002.002", "004.001"), set[str]()
    later = NOW + timedelta(days=1)
    other = replace(MAIN, name="other")
    for pool, version in ((MAIN, "a"), (MAIN, "b"), (other, "b"), (other, "a"), (MAIN, "a")):
        async with application(store, current_catalogue, pool) as client:
            current_catalogue.replace(replace(current_catalogue.responses.catalogue, version=version))
            new = labels(await ask(client, body))
            assert given.isdisjoint(new)
            assert labels(await ask(client, body)) == new
            given.update(new)
        assert await store.run(partial(_purge, before=later)) == 2
    assert len(given) == 10


def _purge(uow: Any, before: datetime) -> int:
    gone: int = uow.purge.baskets(before=before)
    uow.commit()
    return gone


@pytest.mark.parametrize("told", [True, False])
async def test_second_barcodes_for_studies_needing_them(
    store: MemoryStore, current_catalogue: CurrentCatalogue, told: bool
) -> None:
    """Also for a study that the interface names, where the catalogue says nothing of a second barcode."""
    contract = current_catalogue.responses.catalogue.contract("C-100")
    study = contract.items["042.036"]
    if not told:
        items = {**contract.items, study.id: replace(study, second_label_pattern=None)}
        current_catalogue.replace(
            replace(current_catalogue.responses.catalogue, contracts={contract.code: replace(contract, items=items)})
        )
    option = study.options[0].option
    line = {
        "id": "042.036",
        "guid": str(uuid.uuid4()),
        "specimen_code": option.specimen_code,
        "bodysite_code": option.bodysite_code,
    }
    async with application(store, current_catalogue, MAIN, SECOND) as client:
        (tube,) = await ask(client, {"contract": "C-100", "analyticsrequests": [line]})
        assert tube["label"] == MAIN.label(1)
        assert "second=0000-0001" in tube["supportingInfo"].split(",")
        (plain,) = await ask(client, basket("002.002"))
        assert "second" not in plain["supportingInfo"]


async def test_low_pool_alerts_empty_pool_returns_503(store: MemoryStore, current_catalogue: CurrentCatalogue) -> None:
    small = LabelPool("small", "##", 1, 3, warn_below=2)
    async with application(store, current_catalogue, small) as client:
        await ask(client, basket("002.002"))
        assert await _is_open(store, low_alert_key("small")) is False
        await ask(client, basket("002.002"))
        assert await _is_open(store, low_alert_key("small")) is True
        await ask(client, basket("002.002"))
        response = await client.post("preanalytics", json=basket("002.002"))
        assert response.status_code == 503
        assert response.headers["retry-after"]
        assert response.json()["issue"][0]["code"] == "transient"
        assert await _is_open(store, empty_alert_key("small")) is True
    async with application(
        store, current_catalogue, LabelPool("small", "##", 1, 99, warn_below=2)
    ) as client:  # the range is widened
        assert labels(await ask(client, basket("002.002"))) == ["04"]
        assert await _is_open(store, low_alert_key("small")) is False
        assert await _is_open(store, empty_alert_key("small")) is False


async def test_alerts_of_labels_are_named_in_the_log(store: MemoryStore, current_catalogue: CurrentCatalogue) -> None:
    with capture_logs() as said:
        async with application(store, current_catalogue, LabelPool("small", "##", 1, 2, warn_below=2)) as client:
            for _ in range(3):
                await client.post("preanalytics", json=basket("002.002"))
        async with application(store, current_catalogue, LabelPool("small", "##", 1, 99, warn_below=2)) as client:
            await client.post("preanalytics", json=basket("002.002"))
    assert [(each["action"], each["alert"]) for each in said if "alert" in each] == [
        ("condition_found", "labels.low/small"),
        ("condition_found", "labels.exhausted/small"),
        ("condition_ended", "labels.exhausted/small"),
        ("condition_ended", "labels.low/small"),
    ]


async def test_new_label_range_works_at_any_position(store: MemoryStore, current_catalogue: CurrentCatalogue) -> None:
    """Lower, widened downward, widened both ways, another pattern; alerts know what is left of it."""

    async def take(pool: LabelPool) -> list[str]:
        found = []
        async with application(store, current_catalogue, pool) as client:
            while (response := await client.post("preanalytics", json=basket("002.002"))).status_code == 200:
                found += labels(response.json()["specimens"])
        assert await _is_open(store, empty_alert_key("rng")) is True
        return found

    pool = LabelPool("rng", "R####", 51, 53)
    assert await take(pool) == ["R0051", "R0052", "R0053"]
    assert await take(replace(pool, first=11, last=12)) == ["R0011", "R0012"]
    assert await take(replace(pool, first=49)) == ["R0049", "R0050"]
    assert await take(replace(pool, first=10, last=14)) == ["R0010", "R0013", "R0014"]
    assert await take(replace(pool, first=48, last=55)) == ["R0048", "R0054", "R0055"]
    assert await take(replace(pool, pattern="S####")) == ["S0051", "S0052", "S0053"]
    async with application(store, current_catalogue, replace(pool, first=1, last=56, warn_below=42)) as client:
        for low in (False, False, True):  # 56 without 13 that were given are 43
            assert await _is_open(store, low_alert_key("rng")) is low
            await ask(client, basket("002.002"))


async def _is_open(store: Store, key: AlertKey) -> bool:
    alert = Alert(condition=key.condition, subject=key.subject, since=NOW, opened_at=NOW)
    return not await store.run(lambda uow: uow.alerts.open(alert))


async def test_overlapping_pools_never_give_same_barcode(store: MemoryStore, current_catalogue: CurrentCatalogue) -> None:
    one, two = LabelPool("one", "##", 1, 9), LabelPool("two", "##", 1, 99, contracts=frozenset({"C-200"}))
    async with application(store, current_catalogue, one, two) as client:
        given = [label for _ in range(4) for label in labels(await ask(client, basket("001.001")))]
        given += [label for _ in range(4) for label in labels(await ask(client, basket("001.001", contract="C-200")))]
    assert len(set(given)) == 8


async def test_restored_backup_continues_after_high_water_mark(tmp_path: Path, current_catalogue: CurrentCatalogue) -> None:
    mark = HighWaterMark(tmp_path / "outside" / "labels.json")
    async with application(MemoryStore(), current_catalogue, MAIN, mark=mark) as client:
        given = [label for _ in range(3) for label in labels(await ask(client, basket("002.002")))]
    async with application(
        MemoryStore(), current_catalogue, MAIN, mark=mark
    ) as client:  # a database that has forgotten everything
        assert labels(await ask(client, basket("002.002"))) == [MAIN.label(4)]
    assert given == [MAIN.label(number) for number in (1, 2, 3)]
    assert json.loads(mark.path.read_text()) == {MAIN.pattern: {"1": 4}}


async def test_restored_backup_new_range_skips_marked_labels(tmp_path: Path, current_catalogue: CurrentCatalogue) -> None:
    """After a restore, a new range leaves out the labels that the high-water mark knows."""
    mark, old = HighWaterMark(tmp_path / "labels.json"), LabelPool("rng", "R####", 5, 7)
    async with application(MemoryStore(), current_catalogue, old, mark=mark) as client:
        given = [label for _ in range(2) for label in labels(await ask(client, basket("002.002")))]
    assert given == ["R0005", "R0006"]
    async with application(MemoryStore(), current_catalogue, replace(old, first=4), mark=mark) as client:
        again = [label for _ in range(2) for label in labels(await ask(client, basket("002.002")))]
    assert again == ["R0004", "R0007"]


async def test_damaged_high_water_mark_stops_label_allocation(
    tmp_path: Path, store: MemoryStore, current_catalogue: CurrentCatalogue
) -> None:
    """A damaged high-water mark stops labels, and the error names the file."""
    mark = HighWaterMark(tmp_path / "labels.json")
    mark.path.write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        mark.read()
    async with application(store, current_catalogue, MAIN, mark=mark) as client:
        assert (await client.post("preanalytics", json=basket("002.002"))).status_code == 503
        mark.path.write_text(json.dumps({MAIN.pattern: {"1": 7}}))
        mark.raise_to({MAIN.pattern: {1: 3, 90: 95}, "other": {1: 2}})
        assert mark.read() == {MAIN.pattern: {1: 7, 90: 95}, "other": {1: 2}}
        assert labels(await ask(client, basket("002.002"))) == [MAIN.label(8)]


# --- several processes ------------------------------------------------------------------------------------------------------


def _process(url: str, mark: str, count: int, shared: list[str]) -> tuple[list[str], list[list[str]]]:
    """One API process: `count` baskets at once, and some that every process asks for."""

    async def whole() -> tuple[list[str], list[list[str]]]:
        store = SqlStore(url, Cipher(KEY))
        async with application(
            store, CurrentCatalogue(load_catalogue(CATALOGUE), lambda: NOW), MAIN, mark=HighWaterMark(Path(mark))
        ) as client:
            own = await asyncio.gather(*(ask(client, basket("002.002")) for _ in range(count)))
            same = await asyncio.gather(*(ask(client, basket("002.002", guids=[guid])) for guid in shared))
        await store.close()
        return [label for each in own for label in labels(each)], [labels(each) for each in same]

    return asyncio.run(whole())


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.proof)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return create_database(tmp_path / "lab.db")
    found = str(request.getfixturevalue("postgres_url"))
    upgrade(found)
    return found


def _asking(url: str, body: dict[str, Any], times: int) -> list[tuple[str, ...]]:
    """One API process that asks for the same basket again and again, and uses one of the labels after every third time."""

    async def whole() -> list[tuple[str, ...]]:
        store = SqlStore(url, Cipher(KEY))
        found = []
        async with application(store, CurrentCatalogue(load_catalogue(CATALOGUE), lambda: datetime.now(UTC)), MAIN) as client:
            for time in range(times):
                found.append(tuple(labels(await ask(client, body))))
                if time % 3 == 2:
                    await store.run(partial(_use, label=found[-1][time % 2]))
        await store.close()
        return found

    return asyncio.run(whole())


def _of_range(url: str, mark: str, first: int, count: int) -> list[str]:
    """One API process whose settings have another range."""

    async def whole() -> list[str]:
        store, pool = SqlStore(url, Cipher(KEY)), replace(MAIN, first=first)
        async with application(
            store, CurrentCatalogue(load_catalogue(CATALOGUE), lambda: NOW), pool, mark=HighWaterMark(Path(mark))
        ) as client:
            found = await asyncio.gather(*(ask(client, basket("002.002")) for _ in range(count)))
        await store.close()
        return [label for each in found for label in labels(each)]

    return asyncio.run(whole())


@pytest.mark.proof
def test_mixed_old_and_new_range_labels_unique(url: str, tmp_path: Path) -> None:
    """Processes with the old and the new range beside each other give no label twice."""
    with ProcessPoolExecutor(4, mp_context=process_context()) as pool:
        asked = [pool.submit(_of_range, url, str(tmp_path / "mark.json"), first, 20) for first in (30, 1, 30, 10)]
        given = [label for each in asked for label in each.result()]
    assert len(set(given)) == len(given) == 80


def _use(uow: Any, label: str) -> None:
    uow.issued_labels.mark_used([label], "R1", at=NOW)
    uow.commit()


@pytest.mark.proof
def test_four_processes_never_mix_one_baskets_labels(url: str) -> None:
    """A basket never gets labels of several allocations when four processes ask for it at once."""
    body = basket("002.002", "004.001")
    with ProcessPoolExecutor(4, mp_context=process_context()) as pool:
        done = [pool.submit(_asking, url, body, 12) for _ in range(4)]
        sets = {each for process in done for each in process.result()}
    assert len(sets) > 4
    assert len({label for each in sets for label in each}) == 2 * len(sets)


def four_processes(url: str, tmp_path: Path, count: int) -> None:
    shared = [str(uuid.uuid4()) for _ in range(3)]
    with ProcessPoolExecutor(4, mp_context=process_context()) as pool:
        asked = [pool.submit(_process, url, str(tmp_path / "mark.json"), count // 4, shared) for _ in range(4)]
        done = [each.result() for each in asked]
    own = [label for labels_, _ in done for label in labels_]
    same = [found for _, found in done]
    assert all(found == same[0] for found in same)
    given = own + [label for each in same[0] for label in each]
    assert len(set(given)) == len(given) == 4 * (count // 4) + len(shared)
    numbers = sorted(int(label[2:-1]) for label in given)
    assert numbers == list(range(1, len(given) + 1))  # and none was skipped


def test_four_processes_allocate_unique_labels(url: str, tmp_path: Path) -> None:
    four_processes(url, tmp_path, 60)


@pytest.mark.proof
def test_four_processes_thousand_calls_allocate_unique_labels(url: str, tmp_path: Path) -> None:
    four_processes(url, tmp_path, max(40, int(1000 * SHARE)))
    FIGURES.add(baskets_of_four_processes=max(40, int(1000 * SHARE)), labels_twice=0)

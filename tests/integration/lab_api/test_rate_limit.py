"""The rate limit: of one process, and of all that share a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab_agent.settings.api import ApiSettings
from lab_agent.shared.errors import StoreUnreachableError
from lab_agent.store.crypto import Cipher
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import Store
from lab_api.app import create_app
from lab_api.errors import ApiError
from lab_api.rate_limit import SharedTokenBuckets, TokenBuckets, Unsynced
from lab_api.response_cache import CurrentCatalogue
from tests.harness.databases import create_database
from tests.integration.lab_api.parts import ETA, KEY, NOON, TroubledStore, basket, caller

RATE, BURST = 10.0, 20


class Processes:
    """Some processes on one store, with one clock; a round is two seconds, and then each tells the others."""

    def __init__(self, store: TroubledStore, count: int) -> None:
        self.at = 0.0
        self.store = store
        self.buckets = [TokenBuckets(RATE, BURST, lambda: self.at) for _ in range(count)]
        self.shared = [SharedTokenBuckets(store, bucket, self.now) for bucket in self.buckets]

    def now(self) -> datetime:
        return datetime.fromtimestamp(1_800_000_000 + self.at, UTC)

    def ask(self, number: int, times: int, contract: str = "C-1") -> int:
        """How many of these requests were let through."""
        return sum(_may(self.buckets[number], contract) for _ in range(times))

    async def round(self, *asked: int, steps: int = 4) -> int:
        """Each process is asked so often in each of the steps of a round."""
        through = 0
        for _ in range(steps):
            through += sum(self.ask(number, times) for number, times in enumerate(asked))
            self.at += 2 / steps
        for each in self.shared:
            await each.share()
        return through


def _may(bucket: TokenBuckets, contract: str) -> bool:
    try:
        bucket.consume(contract)
    except ApiError as refused:
        return refused.status != 429
    return True


@pytest.fixture
async def two(store: TroubledStore) -> AsyncIterator[Processes]:
    return Processes(store, 2)


def test_contract_over_rate_limit_told_retry_after() -> None:
    moment = [0.0]
    buckets = TokenBuckets(2.0, 3, lambda: moment[0])

    def refused() -> ApiError:
        with pytest.raises(ApiError) as caught:
            buckets.consume("C-1")
        return caught.value

    for at, let_through in ((0.0, 3), (0.5, 1), (100.0, 3)):
        moment[0] = at
        for _ in range(let_through):
            buckets.consume("C-1")
        assert (refused().status, refused().headers) == (429, {"Retry-After": "1"})
        buckets.consume("C-2")


async def test_rate_limited_contract_gets_429_others_served(settings: ApiSettings, current_catalogue: CurrentCatalogue) -> None:
    slow = settings.model_copy(update={"rate": 0.01, "burst": 2})
    async with caller(create_app(slow, current_catalogue)) as client:
        codes = [(await client.post("preanalytics", json=basket("001.001"))).status_code for _ in range(3)]
        assert codes == [200, 200, 429]
        late = await client.get(ETA)
        assert (late.status_code, late.json()["issue"][0]["code"]) == (429, "throttled")
        assert int(late.headers["retry-after"]) > 1
        assert (await client.get("eta?contract=C-200")).status_code == 200
        assert (await client.get("eta?contract=C-300")).status_code == 404


async def test_rate_limit_holds_across_processes(store: TroubledStore) -> None:
    processes = Processes(store, 4)
    through = sum([await processes.round(100, 100, 100, 100) for _ in range(30)])
    over_all = RATE * 60
    window = 4 * (BURST + 2 * RATE)  # what four may let through before they have heard of each other
    assert over_all * 0.95 <= through <= over_all + window


async def test_single_busy_process_gets_whole_limit(store: TroubledStore) -> None:
    processes = Processes(store, 4)
    found = [await processes.round(100) for _ in range(20)]
    assert found == [BURST + RATE * 1.5] + [RATE * 2] * 19
    assert processes.ask(1, 5, "C-2") == 5, "each contract has a limit of its own"


async def test_second_process_learns_usage_of_first(two: Processes) -> None:
    assert two.ask(0, 100) == BURST
    assert two.ask(1, 1) == 1
    for each in two.shared:
        await each.share()
    assert two.ask(1, 10) == 0
    two.at += 1
    assert two.ask(1, 100) == RATE - 1


async def test_no_requests_cause_no_store_writes(two: Processes) -> None:
    for asked, units in (((), 0), ((50,), 5)):
        for _ in range(5):
            await two.round(*asked)
        assert two.store.units == units


async def test_unsynced_counts_are_synced_later(two: Processes) -> None:
    two.ask(0, BURST)
    two.store.error = StoreUnreachableError()
    with pytest.raises(StoreUnreachableError):
        await two.shared[0].share()
    two.store.error = None
    await two.shared[0].share()
    two.ask(1, 1)
    await two.shared[1].share()
    assert two.ask(1, 5) == 0


async def test_requests_during_sync_are_counted() -> None:
    bucket = TokenBuckets(RATE, BURST, lambda: 0.0)
    bucket.consume("C-1")
    output = bucket.unsynced()
    bucket.consume("C-1")
    bucket.apply_shared(output, {"C-1": 3.0})
    assert bucket.unsynced() == {"C-1": Unsynced(1, 0.0)}
    assert [_may(bucket, "C-1") for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("name", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
async def test_concurrent_stores_lose_no_counts(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = create_database(tmp_path / "lab.db") if name == "sqlite" else str(request.getfixturevalue("postgres_url"))
    if name == "postgresql":
        upgrade(url)
    stores = [Store(url, Cipher(KEY)) for _ in range(3)]
    buckets = [TokenBuckets(RATE, 1000, lambda: 0.0) for _ in stores]
    shared = [SharedTokenBuckets(store, bucket, lambda: NOON) for store, bucket in zip(stores, buckets, strict=True)]
    for _ in range(10):
        for bucket in buckets:
            bucket.consume("C-1")
        await asyncio.gather(*(each.share() for each in shared))
    buckets[0].consume("C-1")
    await shared[0].share()
    assert sum(_may(buckets[0], "C-1") for _ in range(1000)) == 1000 - 31
    for store in stores:
        await store.close()

"""The rate limit: of one process, and of all that share a store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lab_agent.crypto import Cipher
from lab_agent.errors import StoreUnreachableError
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import SqlStore
from lab_api.errors import ApiError
from lab_api.rate_limit import SharedTokenBuckets, TokenBuckets, Unsynced
from tests.fakes.memory_store import MemoryStore

KEY = "mBhtlW3ttGseDcUuF61rb-sYuo32K-3GRXN3KNo1Lvc="
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
RATE, BURST = 10.0, 20


class Counted(MemoryStore):
    """A store that counts its units of work, and may be unavailable."""

    units = 0
    unavailable = False

    async def run(self, work: Any) -> Any:
        if self.unavailable:
            raise StoreUnreachableError
        self.units += 1
        return await super().run(work)


@dataclass
class Processes:
    """Some processes on one store, with one clock; a round is two seconds, and then each tells the others."""

    count: int
    store: Any = field(default_factory=Counted)
    at: float = 0.0

    def __post_init__(self) -> None:
        self.buckets = [TokenBuckets(RATE, BURST, lambda: self.at) for _ in range(self.count)]
        self.shared = [SharedTokenBuckets(self.store, bucket, self.now) for bucket in self.buckets]

    def now(self) -> datetime:
        return datetime.fromtimestamp(1_800_000_000 + self.at, UTC)

    def ask(self, number: int, times: int, contract: str = "C-1") -> int:
        """How many of these requests were let through."""
        return sum(_may(self.buckets[number], contract) for _ in range(times))

    def tick(self, seconds: float) -> None:
        self.at += seconds

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


async def test_rate_limit_holds_across_processes() -> None:
    processes = Processes(4)
    through = sum([await processes.round(100, 100, 100, 100) for _ in range(60)])
    over_all = RATE * 120
    window = 4 * (BURST + 2 * RATE)  # what four may let through before they have heard of each other
    assert over_all * 0.95 <= through <= over_all + window


async def test_single_busy_process_gets_whole_limit() -> None:
    processes, single = Processes(4), Processes(1)
    found = [await processes.round(100) for _ in range(20)]
    alone = [sum((single.ask(0, 100), single.tick(0.5))[0] for _ in range(4)) for _ in range(20)]  # and never tells
    assert found == alone
    assert sum(found) == BURST + RATE * 39.5


async def test_contracts_have_separate_limits() -> None:
    processes = Processes(2)
    processes.ask(0, 100)
    await processes.round()
    assert processes.ask(1, 5, "C-2") == 5


async def test_second_process_learns_usage_of_first() -> None:
    processes = Processes(2)
    assert processes.ask(0, 100) == BURST
    assert processes.ask(1, 1) == 1
    for each in processes.shared:
        await each.share()
    assert processes.ask(1, 10) == 0
    processes.at += 1
    assert processes.ask(1, 100) == RATE - 1


async def test_no_requests_cause_no_store_writes() -> None:
    processes = Processes(2)
    for _ in range(5):
        await processes.round()
    assert processes.store.units == 0
    for _ in range(5):
        await processes.round(50)
    assert processes.store.units == 5


async def test_unsynced_counts_are_synced_later() -> None:
    processes = Processes(2)
    processes.ask(0, BURST)
    processes.store.unavailable = True
    with pytest.raises(StoreUnreachableError):
        await processes.shared[0].share()
    processes.store.unavailable = False
    await processes.shared[0].share()
    processes.ask(1, 1)
    await processes.shared[1].share()
    assert processes.ask(1, 5) == 0


async def test_requests_during_sync_are_counted() -> None:
    bucket = TokenBuckets(RATE, BURST, lambda: 0.0)
    bucket.consume("C-1")
    output = bucket.unsynced()
    bucket.consume("C-1")
    bucket.apply_shared(output, {"C-1": 3.0})
    assert bucket.unsynced() == {"C-1": Unsynced(1, 0.0)}
    assert [_may(bucket, "C-1") for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
async def test_concurrent_stores_lose_no_counts(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lab.db" if name == "sqlite" else str(request.getfixturevalue("postgres_url"))
    upgrade(url)
    stores = [SqlStore(url, Cipher(KEY)) for _ in range(3)]
    buckets = [TokenBuckets(RATE, 1000, lambda: 0.0) for _ in stores]
    shared = [SharedTokenBuckets(store, bucket, lambda: NOW) for store, bucket in zip(stores, buckets, strict=True)]
    for _ in range(10):
        for bucket in buckets:
            bucket.consume("C-1")
        await asyncio.gather(*(each.share() for each in shared))
    buckets[0].consume("C-1")
    await shared[0].share()
    assert sum(_may(buckets[0], "C-1") for _ in range(1000)) == 1000 - 31
    for store in stores:
        await store.close()

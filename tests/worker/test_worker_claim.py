"""A claim: kept alive while its owner works, lost when it is taken away."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from lab_agent.domain.journal import EffectKind
from lab_agent.errors import LeaseLostError
from lab_agent.worker.claim import StoreClaim
from tests.worker.conftest import LEASE, Bench

SHORT = timedelta(seconds=0.03)


async def claimed(bench: Bench, lease: timedelta = LEASE) -> StoreClaim:
    await bench.add()
    (effect,) = await bench.engine.claim([EffectKind.LINE_TASK], 1)
    return StoreClaim(effect, bench.store, bench.clock, lease)


async def test_beginning_commits_a_full_lease_ahead(bench: Bench) -> None:
    claim = await claimed(bench)
    bench.clock.advance(50)
    await claim.begin()
    kept = await bench.effect()
    assert kept.begun
    assert kept.lease_until == bench.clock.now() + LEASE


async def test_what_must_be_known_by_then_is_in_the_same_commit(bench: Bench) -> None:
    claim = await claimed(bench)
    await claim.begin(lambda uow: uow.book.note("sent", "it"))
    assert await bench.store.run(lambda uow: uow.book.noted("sent")) == "it"


async def test_a_lost_claim_neither_begins_nor_writes(bench: Bench) -> None:
    claim = await claimed(bench)
    bench.clock.advance(LEASE.total_seconds() + 1)
    await bench.another("two").claim([EffectKind.LINE_TASK], 1)
    for attempt in (claim.begin(lambda uow: uow.book.note("x", "x")), claim.write(lambda uow: uow.book.note("x", "x"))):
        with pytest.raises(LeaseLostError):
            await attempt
    assert await bench.store.run(lambda uow: uow.book.noted("x")) is None


async def test_the_heartbeat_prolongs_while_the_work_goes_on(bench: Bench) -> None:
    claim = await claimed(bench, SHORT)
    bench.clock.advance(LEASE.total_seconds() - 1)

    async def prolonged() -> None:
        while (await bench.effect()).lease_until == claim.effect.lease_until:  # noqa: ASYNC110 - the store announces nothing
            await asyncio.sleep(0.002)

    async with claim.kept_alive():
        await asyncio.wait_for(prolonged(), 5)


async def test_work_whose_claim_was_taken_away_is_cancelled(bench: Bench) -> None:
    claim = await claimed(bench, SHORT)
    bench.clock.advance(LEASE.total_seconds() + 1)
    await bench.another("two").claim([EffectKind.LINE_TASK], 1)

    async def work() -> None:
        async with claim.kept_alive():
            await asyncio.sleep(5)

    task = asyncio.create_task(work())
    await asyncio.wait({task}, timeout=4)
    assert task.cancelled()


async def test_the_heartbeat_ends_with_the_work(bench: Bench) -> None:
    claim = await claimed(bench)
    async with claim.kept_alive():
        pass
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("heartbeat")]

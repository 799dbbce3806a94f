"""Orders from before the search are found, too: after an upgrade of an older database, and after a former program has written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import MetaData, text

from lab_agent import exact_json
from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.ids import LineKey, OrderKey, ResourceId
from lab_agent.domain.patient_search import PatientCriteria
from lab_agent.domain.programs import ProgramKind, RunningProgram
from lab_agent.domain.records import LabelUse, LineRecord, OrderRecord
from lab_agent.domain.state_machines import OrderState
from lab_agent.errors import StoreUnreachableError
from lab_agent.ports.read_models import OrderCriteria
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.serialization.identity import pack_identity
from lab_agent.store.queries import SqlQueries
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.workflow import search_filling
from lab_agent.workflow.search_filling import FILLED_KEY, FORM, Filled, SearchFiller
from tests.harness.clock import DEADLINE
from tests.harness.schemas import TEXT_INDEX, closing_engine, upgrade_to
from tests.integration.store.test_upgrades import fresh, url

__all__ = ["fresh", "url"]

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
KEY = new_key()
PETROVA = PatientCriteria(name="petrova", birth_date=date(1961, 4, 12))
NUMBER = 7


class Clock:
    def now(self) -> datetime:
        return NOW


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_filling, "_LOOKED_AT", 3)
    monkeypatch.setattr(search_filling, "_WRITTEN", 2)


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    upgrade(url)
    made = SqlStore(url, Cipher(KEY))
    yield made
    await made.close()


def filler(store: Any) -> SearchFiller:
    return SearchFiller(store, Clock(), pause=0.0)


def add_order(uow: UnitOfWork, number: int, *, family: str = "Petrova") -> OrderKey:
    """An order as a program stores it that knows no digests."""
    key = OrderKey(f"R{number:015}")
    seen = NOW + timedelta(minutes=number)
    order = OrderRecord(key=key, task_id=ResourceId(f"task-{number:06}"), seen_at=seen, changed_at=seen)
    uow.orders.add(order)
    line = LineRecord(key=LineKey(f"L{number}"), order=key, task_id=ResourceId(f"lt{number}"), item="001.001", changed_at=seen)
    uow.orders.add_line(line)
    label = LabelUse(barcode=f"70{number:08}", order=key, line=line.key, specimen_id="s", patient_reference="p")
    uow.orders.set_labels(key, [label])
    uow.orders.save(order.transition_to(OrderState.FETCHED, seen))
    patient = {"family": family, "given": ["Anna"], "birth_date": "1961-04-12"}
    uow.vault.save_identity(key, pack_identity(b"[]", exact_json.dumps(patient)), at=seen)
    return key


async def write(store: SqlStore, work: Callable[[UnitOfWork], Any]) -> Any:
    def committed(uow: UnitOfWork) -> Any:
        result = work(uow)
        uow.commit()
        return result

    return await store.run(committed)


async def add_orders(store: SqlStore, number: int = NUMBER) -> list[OrderKey]:
    return [await write(store, lambda uow, each=each: add_order(uow, each)) for each in range(number)]


def execute(url: str, statement: str) -> Any:
    with closing_engine(url) as engine, engine.begin() as connection:
        done = connection.execute(text(statement))
        return done.all() if done.returns_rows else []


async def found(store: SqlStore, **criteria: Any) -> list[str]:
    return [each.key for each in (await SqlQueries(store).order_list(OrderCriteria(**criteria))).orders][::-1]


async def is_noted(store: SqlStore) -> bool:
    return bool(await store.run_read_only(lambda uow: uow.key_values.get(FILLED_KEY)) == FORM)


def copy_rows(source: str, target: str) -> None:
    """Copy what the older schema of `target` has a place for."""
    with closing_engine(source) as new, closing_engine(target) as old, new.connect() as read, old.begin() as written:
        kept, given = MetaData(), MetaData()
        kept.reflect(written)
        given.reflect(read)
        for table in kept.sorted_tables:
            if table.name in given.tables and table.name != "alembic_version" and not table.name.startswith(TEXT_INDEX):
                columns = [given.tables[table.name].c[each.name] for each in table.columns]
                rows = [
                    dict(row) for row in read.execute(given.tables[table.name].select().with_only_columns(*columns)).mappings()
                ]
                written.execute(table.delete())
                if rows:
                    written.execute(table.insert(), rows)


async def test_orders_of_an_older_database_are_found(url: str, fresh: str) -> None:
    upgrade(fresh)
    former = SqlStore(fresh, Cipher(KEY))
    keys = await add_orders(former)
    await former.close()
    upgrade_to(url, "0002")
    copy_rows(fresh, url)
    upgrade(url)
    store = SqlStore(url, Cipher(KEY))
    assert await found(store, search="000000003") == keys[3:4], "the migration gives orders their numbers"
    assert await found(store, patient=PETROVA) == []
    assert await filler(store).fill() == Filled(patients=NUMBER)
    assert await found(store, patient=PETROVA) == keys
    assert await filler(store).fill() == Filled(), "what is there is not written again"
    await store.close()


async def test_orders_of_a_former_program_are_found(store: SqlStore, url: str) -> None:
    keys = await add_orders(store)
    execute(url, "DELETE FROM order_search WHERE order_key <> 'R000000000000000'")
    assert await found(store, search="task-00000") == keys[:1]
    assert await filler(store).fill() == Filled(orders=NUMBER - 1, patients=NUMBER)
    assert await found(store, search="task-00000") == keys
    assert await found(store, search="70000000") == keys


async def test_order_that_was_only_seen_gets_no_numbers(store: SqlStore) -> None:
    seen = OrderRecord(key=OrderKey("R9"), task_id=ResourceId("task-9"), seen_at=NOW, changed_at=NOW)
    await write(store, lambda uow: uow.orders.add(seen))
    assert await filler(store).fill() == Filled()


async def test_filling_that_was_cut_short_goes_on(store: SqlStore) -> None:
    keys = await add_orders(store)
    left = 2

    class Failing:
        run_read_only = store.run_read_only

        async def run(self, work: Callable[[UnitOfWork], Any]) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise StoreUnreachableError("gone")
            return await store.run(work)

    with pytest.raises(StoreUnreachableError):
        await filler(Failing()).fill()
    assert await found(store, patient=PETROVA) == keys[:3], "each portion lasts"
    assert await filler(store).fill() == Filled(patients=NUMBER - 3)
    assert await found(store, patient=PETROVA) == keys


async def test_each_portion_is_a_unit_of_work_of_its_own(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await add_orders(store)
    sizes: list[int] = []
    add = search_filling._add_digests
    monkeypatch.setattr(search_filling, "_add_digests", lambda uow, keys: sizes.append(len(keys)) or add(uow, keys))
    await filler(store).fill()
    assert sum(sizes) == NUMBER
    assert max(sizes) <= 2, "others write between two portions"


async def test_erased_patient_does_not_come_back(store: SqlStore) -> None:
    keys = await add_orders(store, 2)
    await write(store, lambda uow: uow.erasure.order(keys[0], lambda body: body, at=NOW))
    assert await filler(store).fill() == Filled(patients=1)
    assert await found(store, patient=PETROVA) == keys[1:]


async def test_what_cannot_be_read_is_counted_and_left(store: SqlStore, url: str) -> None:
    keys = await add_orders(store, 3)
    await write(store, lambda uow: uow.vault.save_identity(keys[0], b"no identification", at=NOW))
    foreign = Cipher(new_key()).encrypt(b"of another key")
    with closing_engine(url) as engine, engine.begin() as connection:
        change = text("UPDATE identities SET ciphertext = :foreign WHERE order_key = :of")
        connection.execute(change, {"foreign": foreign, "of": keys[2]})
    assert await filler(store).fill() == Filled(patients=1, unreadable=2)
    assert await found(store, patient=PETROVA) == [keys[1]]


@pytest.mark.parametrize(("schema", "noted"), [("0002", False), ("0003", True)])
async def test_nobody_looks_again_once_no_former_program_works(store: SqlStore, schema: str, noted: bool) -> None:
    running = RunningProgram(name="x", kind=ProgramKind.AGENT, host="lab-2", pid=7, schema=schema, beat_at=NOW, stale_after=60.0)
    await write(store, lambda uow: uow.programs.save(running))
    keys = await add_orders(store, 1)
    task = asyncio.create_task(filler(store).run())
    try:
        async with asyncio.timeout(DEADLINE):
            while await found(store, patient=PETROVA) != keys or (noted and not await is_noted(store)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not task.done(), "a part of the worker never ends by itself"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert (await filler(store).fill() is None) is noted

"""Orders that a former program has written are found, too, as those of an older database after its upgrade."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from typing import Any

import pytest
from sqlalchemy import text

from lab_agent import exact_json
from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.patient_search import PatientCriteria
from lab_agent.domain.programs import ProgramKind, RunningProgram
from lab_agent.domain.state_machines import OrderState
from lab_agent.errors import StoreUnreachableError
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.serialization.identity import pack_identity
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.workflow import search_filling
from lab_agent.workflow.search_filling import FILLED_KEY, FORM, Filled, SearchFiller
from tests.harness.clock import DEADLINE, VirtualClock
from tests.integration.store import test_page_queries
from tests.integration.store.conftest import NOW, RecordFactory, UnitOfWorkRunner

PETROVA = PatientCriteria(name="petrova", birth_date=date(1961, 4, 12))
NUMBER = 7


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_filling, "_LOOKED_AT", 3)
    monkeypatch.setattr(search_filling, "_WRITTEN", 2)


def filler(store: Any) -> SearchFiller:
    return SearchFiller(store, VirtualClock(NOW), pause=0.0)


def add_order(uow: UnitOfWork, number: int) -> OrderKey:
    """An order as a program stores it that knows no digests."""
    key = test_page_queries.add_order(uow, number, name="")
    uow.orders.save(uow.orders.get_for_update(key).transition_to(OrderState.FETCHED, NOW))
    patient = {"family": "Petrova", "given": ["Anna"], "birth_date": "1961-04-12"}
    uow.vault.save_identity(key, pack_identity(b"[]", exact_json.dumps(patient)), at=NOW)
    return key


async def add_orders(transact: UnitOfWorkRunner, number: int = NUMBER) -> list[OrderKey]:
    return [await transact(lambda uow, each=each: add_order(uow, each)) for each in range(number)]


async def found(store: SqlStore, **criteria: Any) -> list[str]:
    return (await test_page_queries.found(store, **criteria))[::-1]


async def test_orders_of_a_former_program_are_found(store: SqlStore, transact: UnitOfWorkRunner) -> None:
    """An order that was only seen gets no numbers."""
    await transact.orders.add(RecordFactory().order("R9", task_id="task-9"))
    assert await filler(store).fill() == Filled()
    keys = await add_orders(transact)
    forget = text("DELETE FROM order_search WHERE order_key <> 'R000000000000000'")
    await store.write(lambda connection, _: connection.execute(forget))
    assert await found(store, search="task-00000") == keys[:1]
    assert await filler(store).fill() == Filled(orders=NUMBER - 1, patients=NUMBER)
    assert await found(store, search="task-00000") == keys
    assert await found(store, search="70000000") == keys


async def test_filling_that_was_cut_short_goes_on(
    store: SqlStore, transact: UnitOfWorkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each portion is a unit of work of its own: others write between two of them."""
    keys = await add_orders(transact)
    left, sizes = 2, list[int]()
    add = search_filling._add_digests
    monkeypatch.setattr(search_filling, "_add_digests", lambda uow, keys: sizes.append(len(keys)) or add(uow, keys))

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
    assert (sum(sizes), max(sizes)) == (NUMBER, 2)


async def test_erased_patient_does_not_come_back(store: SqlStore, transact: UnitOfWorkRunner) -> None:
    """What cannot be read is counted and left."""
    keys = await add_orders(transact, 4)
    await transact.erasure.order(keys[3], lambda body: body, at=NOW)
    await transact.vault.save_identity(keys[0], b"no identification", at=NOW)
    change = text("UPDATE identities SET ciphertext = :foreign WHERE order_key = :of")
    foreign = {"foreign": Cipher(new_key()).encrypt(b"of another key"), "of": keys[2]}
    await store.write(lambda connection, _: connection.execute(change, foreign))
    assert await filler(store).fill() == Filled(patients=1, unreadable=2)
    assert await found(store, patient=PETROVA) == [keys[1]]


@pytest.mark.parametrize(("schema", "noted"), [("0002", False), ("0003", True)])
async def test_nobody_looks_again_once_no_former_program_works(
    store: SqlStore, transact: UnitOfWorkRunner, schema: str, noted: bool
) -> None:
    program = {"name": "x", "kind": ProgramKind.AGENT, "host": "lab-2", "pid": 7, "beat_at": NOW, "stale_after": 60.0}
    await transact.programs.save(RunningProgram(schema=schema, **program))
    keys = await add_orders(transact, 1)

    async def is_noted() -> bool:
        return bool(await transact.key_values.get(FILLED_KEY) == FORM)

    task = asyncio.create_task(filler(store).run())
    try:
        async with asyncio.timeout(DEADLINE):
            while await found(store, patient=PETROVA) != keys or (noted and not await is_noted()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not task.done(), "a part of the worker never ends by itself"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert (await filler(store).fill() is None) is noted

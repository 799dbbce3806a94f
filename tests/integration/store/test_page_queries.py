"""Everything that pages read, on both databases: on an empty one, and searched for with what people type."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from lab_agent.operations import search_filling
from lab_agent.operations.search_filling import FILLED_KEY, FORM, Filled, SearchFiller
from lab_agent.orders.patient_data import pack_identity
from lab_agent.orders.patient_search import KnownPatient, PatientCriteria, words_of
from lab_agent.orders.records import WorkOrder
from lab_agent.shared import exact_json
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import StoreUnreachableError
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.state_machines import OrderState, WorkOrderState
from lab_agent.shared.values import Identifier
from lab_agent.store.activity_records import HourlyActivity, Measure, hour_of, summarize
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.key_rotation import rotate_keys
from lab_agent.store.program_records import ProgramKind, RunningProgram
from lab_agent.store.queries import Queries
from lab_agent.store.read_models import OrderCriteria, OrderCursor, WaitingSpan
from lab_agent.store.unit_of_work import Store, UnitOfWork
from tests.harness.clock import DEADLINE, VirtualClock
from tests.integration.store.conftest import NOW, RecordFactory, UnitOfWorkRunner, with_store

MAKE = RecordFactory()


def add_order(uow: UnitOfWork, number: int, *, name: str = "Anna Petrova", born: str = "1961-04-12") -> OrderKey:
    key, seen = OrderKey(f"R{number:015}"), NOW + timedelta(minutes=number)
    requisition = Identifier(system="urn:x", value=f"REQ-{number:04}-Ü")
    uow.orders.add(MAKE.order(key, task_id=f"task-{number:06}", seen_at=seen, changed_at=seen, requisition=requisition))
    line = MAKE.line(key, LineKey(f"L{number}"), task_id=f"lt{number}", item="001.001")
    uow.orders.add_line(line)
    uow.orders.set_labels(key, [MAKE.label(f"70{number:08}", line)])
    uow.orders.save_work_order(part(key))
    if name:
        uow.vault.index_patient(key, KnownPatient(names=(words_of(name),), birth_dates=frozenset({born})).search_terms)
    return key


def part(key: OrderKey, accession: str | None = None) -> WorkOrder:
    return WorkOrder(order=key, adapter="folder", state=WorkOrderState.HANDED_OVER, changed_at=NOW, accession=accession)


async def add_orders(transact: UnitOfWorkRunner, number: int) -> list[OrderKey]:
    return [await transact(lambda uow, each=each: add_order(uow, each)) for each in range(number)]


async def found(store: Store, **criteria: Any) -> list[str]:
    return [each.key for each in (await Queries(store).order_list(OrderCriteria(**criteria))).orders]


async def test_every_read_runs_on_an_empty_database(store: Store) -> None:
    queries, cause = Queries(store), AlertKey(ConditionId.JOBS_OTHER)
    overview = await queries.overview(now=NOW)
    assert (overview.next_due, overview.orders, overview.jobs, overview.alerts) == (None, {}, {}, ())
    assert (overview.last_poll, overview.due_since) == (None, None)
    assert await queries.activity(since=NOW) == ()
    assert {each.count for each in await queries.measure_hour(NOW)} == {0}
    assert await queries.failures_by_age(now=NOW) == ()
    assert set(await queries.change_stamps()) == {"orders", "results", "waiting", "alerts", "catalogue"}
    assert await queries.rule_hits(since=NOW) == {}
    assert (await queries.rule_trial("x", newest=10)).concerned == 0
    assert (await queries.lis_traffic("folder")).received_at is None
    assert await queries.catalogue_versions() == ()
    assert await queries.catalogue_content(1) is None
    assert await queries.issued_ranges("#") == {}
    assert await queries.labels_issued("a", since=NOW) == 0
    assert (await queries.needs_attention()).total == 0
    assert (await queries.needs_attention(cause=cause, span=WaitingSpan(after=NOW, until=NOW))).items == ()
    assert (await queries.unmatched_reports()).items == ()
    assert await store.run_read_only(lambda uow: uow.waiting_groups()) == ()


async def test_orders_are_found_by_any_part_of_a_number(store: Store, transact: UnitOfWorkRunner) -> None:
    keys = await add_orders(transact, 3)
    for typed, expected in (
        ("0000001", [keys[1]]),
        ("q-0002", [keys[2]]),
        ("-Ü", []),
        ("2-ü", [keys[2]]),
        ("task-00000", keys[::-1]),
        ("7000000001", [keys[1]]),
        ("no such", []),
        ("%_%", []),
        ('"OR 1=1', []),
        ("L1", [keys[1]]),
    ):
        assert await found(store, search=typed) == expected, typed
    await transact.orders.save_work_order(part(keys[0], "ACC-77-9"))
    assert await found(store, search="c-77") == [keys[0]]
    await transact.orders.set_labels(keys[1], [])
    assert await found(store, search="7000000001") == []
    assert await found(store, item="001.001", adapter="folder", seen_from=NOW, search="task") == keys[::-1]
    assert await found(store, contract="C-1") == []


async def test_pages_follow_each_other_both_ways(store: Store, transact: UnitOfWorkRunner) -> None:
    keys = (await add_orders(transact, 7))[::-1]
    queries, seen, cursor = Queries(store), list[str](), None
    while True:
        page = await queries.order_list(OrderCriteria(), cursor=cursor, limit=3)
        seen += [each.key for each in page.orders]
        if not page.has_after:
            break
        cursor = OrderCursor(at=page.orders[-1].seen_at, key=page.orders[-1].key)
    assert seen == keys
    cursor = OrderCursor(at=page.orders[0].seen_at, key=page.orders[0].key, backwards=True)
    back = await queries.order_list(OrderCriteria(), cursor=cursor, limit=3)
    assert [each.key for each in back.orders] == keys[3:6]
    assert (back.has_before, back.has_after) == (True, True)


async def test_patients_are_found_by_digests_alone(store: Store, transact: UnitOfWorkRunner, sql_url: str, key: str) -> None:
    mine = await transact(lambda uow: add_order(uow, 1))
    other = await transact(lambda uow: add_order(uow, 2, name="Анна Петрова-Ёлкина"))
    for criteria, expected in (
        (PatientCriteria(name="petrova"), [mine]),
        (PatientCriteria(name="PETROVA anna", birth_date=date(1961, 4, 12)), [mine]),
        (PatientCriteria(name="елкина"), [other]),
        (PatientCriteria(birth_date=date(1961, 4, 12)), [other, mine]),
        (PatientCriteria(name="petrov"), []),
        (PatientCriteria(name="petrova", birth_date=date(1961, 4, 13)), []),
    ):
        assert await found(store, patient=criteria) == expected, criteria
    assert await found(store, patient=PatientCriteria(name="petrova"), search="task-000002") == []
    year = await transact(lambda uow: add_order(uow, 3, name="Olga Novikova", born="1961"))
    for day, expected in ((date(1961, 4, 12), [year]), (date(1962, 4, 12), [])):
        assert await found(store, patient=PatientCriteria(name="Novikova", birth_date=day)) == expected
    stored = await store.read(lambda connection: connection.exec_driver_sql("SELECT digest FROM patient_digests").scalars().all())
    assert all(len(each) == 32 and set(each) <= set("0123456789abcdef") for each in stored)
    await with_store(sql_url, rotate_keys, newest := new_key(), key)
    look = partial(with_store, sql_url, partial(found, patient=PatientCriteria(name="petrova")), newest)
    assert await look() == [mine]
    await with_store(sql_url, lambda alone: UnitOfWorkRunner(alone).erasure.order(mine, lambda body: body, at=NOW), newest)
    assert await look() == []


async def test_hours_are_kept_and_replaced(store: Store, transact: UnitOfWorkRunner) -> None:
    hour = hour_of(NOW)
    for count, times in ((4, [1.0, 2.0, 3.0, 40.0]), (5, [1.0])):
        await transact.activity.save([summarize(hour, Measure.EXCHANGE_CALLS, count, times)])
    expected = HourlyActivity(hour=hour, measure=Measure.EXCHANGE_CALLS, count=5, median=1.0, percentile_95=1.0)
    assert await Queries(store).activity(since=hour) == (expected,)
    assert await transact.activity.purge(before=hour + timedelta(hours=1)) == 1


# --- orders that a former program has written are found, too

PETROVA = PatientCriteria(name="petrova", birth_date=date(1961, 4, 12))
NUMBER = 7


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_filling, "_LOOKED_AT", 3)
    monkeypatch.setattr(search_filling, "_WRITTEN", 2)


def filler(store: Any) -> SearchFiller:
    return SearchFiller(store, VirtualClock(NOW), pause=0.0)


def add_former_order(uow: UnitOfWork, number: int) -> OrderKey:
    """An order as a program stores it that knows no digests."""
    key = add_order(uow, number, name="")
    uow.orders.save(uow.orders.get_for_update(key).transition_to(OrderState.FETCHED, NOW))
    patient = {"family": "Petrova", "given": ["Anna"], "birth_date": "1961-04-12"}
    uow.vault.save_identity(key, pack_identity(b"[]", exact_json.dumps(patient)), at=NOW)
    return key


async def add_former_orders(transact: UnitOfWorkRunner, number: int = NUMBER) -> list[OrderKey]:
    return [await transact(lambda uow, each=each: add_former_order(uow, each)) for each in range(number)]


async def test_orders_of_a_former_program_are_found(store: Store, transact: UnitOfWorkRunner) -> None:
    """An order that was only seen gets no numbers."""
    await transact.orders.add(RecordFactory().order("R9", task_id="task-9"))
    assert await filler(store).fill() == Filled()
    keys = await add_former_orders(transact)
    forget = text("DELETE FROM order_search WHERE order_key <> 'R000000000000000'")
    await store.write(lambda connection, _: connection.execute(forget))
    assert sorted(await found(store, search="task-00000")) == keys[:1]
    assert await filler(store).fill() == Filled(orders=NUMBER - 1, patients=NUMBER)
    assert sorted(await found(store, search="task-00000")) == keys
    assert sorted(await found(store, search="70000000")) == keys


async def test_filling_that_was_cut_short_goes_on(
    store: Store, transact: UnitOfWorkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each portion is a unit of work of its own: others write between two of them."""
    keys = await add_former_orders(transact)
    left, sizes = 2, list[int]()
    add = search_filling._add_digests
    monkeypatch.setattr(search_filling, "_add_digests", lambda uow, keys: sizes.append(len(keys)) or add(uow, keys))

    class Failing:
        run_read_only = store.run_read_only

        async def transact(self, work: Callable[[UnitOfWork], Any]) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise StoreUnreachableError("gone")
            return await store.transact(work)

    with pytest.raises(StoreUnreachableError):
        await filler(Failing()).fill()
    assert sorted(await found(store, patient=PETROVA)) == keys[:3], "each portion lasts"
    assert await filler(store).fill() == Filled(patients=NUMBER - 3)
    assert sorted(await found(store, patient=PETROVA)) == keys
    assert (sum(sizes), max(sizes)) == (NUMBER, 2)


async def test_erased_patient_does_not_come_back(store: Store, transact: UnitOfWorkRunner) -> None:
    """What cannot be read is counted and left."""
    keys = await add_former_orders(transact, 4)
    await transact.erasure.order(keys[3], lambda body: body, at=NOW)
    await transact.vault.save_identity(keys[0], b"no identification", at=NOW)
    change = text("UPDATE identities SET ciphertext = :foreign WHERE order_key = :of")
    foreign = {"foreign": Cipher(new_key()).encrypt(b"of another key"), "of": keys[2]}
    await store.write(lambda connection, _: connection.execute(change, foreign))
    assert await filler(store).fill() == Filled(patients=1, unreadable=2)
    assert await found(store, patient=PETROVA) == [keys[1]]


@pytest.mark.parametrize(("schema", "noted"), [("0002", False), ("0003", True)])
async def test_nobody_looks_again_once_no_former_program_works(
    store: Store, transact: UnitOfWorkRunner, schema: str, noted: bool
) -> None:
    program = {"name": "x", "kind": ProgramKind.AGENT, "host": "lab-2", "pid": 7, "beat_at": NOW, "stale_after": 60.0}
    await transact.programs.save(RunningProgram(schema=schema, **program))
    keys = await add_former_orders(transact, 1)

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

"""Many workers on one database: each job to one of them, and none forgotten; a killed one leaves nothing partial."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from lab_agent.shared.errors import LeaseLostError
from lab_agent.store.crypto import Cipher
from lab_agent.store.unit_of_work import Store
from tests.harness.clock import DEADLINE
from tests.harness.forked_programs import process_context
from tests.harness.proof import FIGURES, SHARE
from tests.integration.store.conftest import NOW, RecordFactory, UnitOfWorkRunner, begun, with_store

JOBS = 200
LEASE = timedelta(minutes=5)


async def _fill(transact, keys):
    make = RecordFactory()
    await transact.jobs.add_all([make.job(f"e{number}", ordering_key=f"key-{number % keys}") for number in range(JOBS)])


async def _work_off(store, owner):
    """Claim and finish until nothing is left; gives what was claimed, in order, as (id, ordering key)."""
    transact, took = UnitOfWorkRunner(store), []

    def left(connection):
        return connection.exec_driver_sql("SELECT count(*) FROM jobs WHERE state <> 'done'").scalar()

    while (found := await transact.claim(limit=3, owner=owner, lease=LEASE)) or await store.read(left):
        for job in found:
            took.append((job.id, job.ordering_key))
            await transact.jobs.save(job.complete(NOW))
        if not found:
            await asyncio.sleep(0.01)  # others hold what is left
    return took


def _process(url, key, owner, results):
    results.put(asyncio.run(with_store(url, lambda store: _work_off(store, owner), key)))


@pytest.mark.parametrize("keys", [JOBS, 7])
async def test_tasks_of_one_process_share_jobs(transact, store, keys):
    await _fill(transact, keys)
    took = await asyncio.gather(*(_work_off(store, f"w{number}") for number in range(6)))
    _each_once(took)


async def test_processes_share_jobs(transact, sql_url, key):
    await _fill(transact, 50)
    context = process_context()
    results = context.Queue()
    workers = [context.Process(target=_process, args=(sql_url, key, f"p{n}", results)) for n in range(2)]
    for worker in workers:
        worker.start()
    took = [await asyncio.to_thread(results.get, timeout=DEADLINE) for _ in workers]
    for worker in workers:
        worker.join(DEADLINE)
    _each_once(took)


def _each_once(took):
    ids = [number for part in took for number, _ in part]
    assert sorted(ids) == list(range(1, JOBS + 1))
    for part in took:
        for ordering_key in {each for _, each in part}:
            mine = [number for number, its in part if its == ordering_key]
            assert mine == sorted(mine)


async def test_ordering_key_never_has_two_jobs_in_flight(transact, factory):
    """Jobs are dead-lettered and retried by an operator while workers claim."""
    await transact.jobs.add_all([factory.job(f"e{number}", ordering_key="same") for number in range(8)])
    working: set[int] = set()
    clashes: list[set[int]] = []
    ended = 0

    async def worker(owner):
        nonlocal ended
        while ended < 60:
            for job in await transact.claim(owner=owner, lease=LEASE, limit=5):
                working.add(job.id)
                if len(working) > 1:
                    clashes.append(set(working))
                await asyncio.sleep(0)
                working.discard(job.id)
                await transact.jobs.save(job.dead_letter(factory.now, "again"))
                ended += 1

    async def person():
        def send_back(uow, number):
            job = uow.jobs.get(number)
            if job.state == "dead_letter":
                uow.jobs.save(job.reschedule(factory.now, factory.now, "sent back"))

        while ended < 60:
            for number in range(1, 9):
                try:
                    await transact(lambda uow, number=number: send_back(uow, number))
                except LeaseLostError:
                    continue

    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*(worker(f"w{n}") for n in range(4)), person())
    assert clashes == []


@pytest.mark.parametrize("lock", ["a value", "the order"])
async def test_lock_shows_what_its_holder_before_has_written(transact, factory, lock):
    """Whoever has set a key, or has the order, sees it: labels and rate limits are given out behind such locks."""
    await transact.orders.add(factory.order("R1"))

    def add_line(uow, number):
        uow.orders.lines("R1")  # what is read before the lock may be out of date behind it
        if lock == "the order":
            order = uow.orders.get_for_update("R1")
            uow.orders.save(replace(order, reopened=order.reopened + 1))
        else:
            uow.key_values.set("lock", f"{number}")
        seen = uow.orders.lines("R1")
        time.sleep(0.002)
        uow.orders.add_line(factory.line("R1", key=f"L{len(seen)}"))

    await asyncio.gather(*(transact(lambda uow, n=n: add_line(uow, n)) for n in range(10)))
    assert [line.key for line in await transact.orders.lines("R1")] == [f"L{number}" for number in range(10)]
    assert (await transact.orders.get("R1")).reopened == (10 if lock == "the order" else 0)


@pytest.mark.parametrize("what", ["job", "refresh lease"])
async def test_one_of_many_at_once_gets_it(transact, factory, what):
    new = factory.job("once")

    def take(uow, owner):
        if what == "job":
            return uow.jobs.add(new)
        return uow.oauth_tokens.acquire_refresh_lease(owner, now=NOW, lease=LEASE)

    took = await asyncio.gather(*(transact(lambda uow, n=n: take(uow, f"w{n}")) for n in range(12)))
    assert sorted(took) == [False] * 11 + [True]


def _die_in_the_middle(url, key):
    make = RecordFactory()

    def work(uow):
        for number in range(50):
            uow.orders.add(make.order(f"R{number}", task_id=f"t{number}"))
            uow.jobs.add(make.job())
        uow.orders.existing(["t1"])  # what was written is sent
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(Store(url, Cipher(key)).transact(work))


async def test_kill_mid_transaction_leaves_nothing_partial(transact, sql_url, key, factory):
    await transact.key_values.set("before", "kept")
    process = process_context().Process(target=_die_in_the_middle, args=(sql_url, key))
    process.start()
    await asyncio.to_thread(process.join, DEADLINE)
    assert process.exitcode == -signal.SIGKILL
    await transact.orders.add(factory.order("R1", task_id="t1"))
    found = await transact(lambda uow: (uow.orders.existing([f"t{n}" for n in range(50)]), uow.key_values.get("before")))
    assert found == ({"t1"}, "kept")
    assert await transact.claim() == ()


async def test_reads_proceed_during_a_long_write(store):
    async with begun(store, lambda uow: uow.key_values.set("a", "b")):
        await asyncio.wait_for(store.read(lambda connection: connection.exec_driver_sql("SELECT 1").scalar()), DEADLINE)


async def test_slow_pages_do_not_delay_the_workers(store):
    """A worker's look at what is committed has threads of its own, however many pages are being read."""
    go_on, reading = threading.Event(), threading.Barrier(3)

    def page(connection):
        connection.exec_driver_sql("SELECT 1")
        reading.wait(DEADLINE)
        assert go_on.wait(2 * DEADLINE)

    pages = [asyncio.create_task(store.read(page)) for _ in range(2)]
    more = [asyncio.create_task(store.read(lambda _: go_on.wait(2 * DEADLINE))) for _ in range(4)]
    await asyncio.to_thread(reading.wait, DEADLINE)
    await asyncio.wait_for(store.run_read_only(lambda uow: uow.jobs.get(1)), DEADLINE)
    go_on.set()
    await asyncio.gather(*pages, *more)


async def test_write_waits_for_another_process(sqlite_url, cipher):
    path = sqlite_url.removeprefix("sqlite:///")
    store = Store(sqlite_url, cipher)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(store.transact(lambda uow: uow.key_values.set("a", "b")))
        threading.Timer(0.3, lambda: other.execute("COMMIT")).start()
        await asyncio.wait_for(waiting, DEADLINE)
    assert await store.transact(lambda uow: uow.key_values.get("a")) == "b"
    await store.close()


TRIPLES = textwrap.dedent("""
    import asyncio, sys
    from datetime import UTC, datetime
    from lab_agent.store.crypto import Cipher
    from lab_agent.orders.records import LineRecord, OrderRecord
    from lab_agent.queue.job_records import JobKind, NewJob
    from lab_agent.store.unit_of_work import Store

    def triple(uow, name):
        now = datetime.now(UTC)
        uow.orders.add(OrderRecord(key=f"R{name}", task_id=f"t{name}", seen_at=now, changed_at=now))
        uow.orders.add_line(LineRecord(key=f"L{name}", order=f"R{name}", task_id=f"lt{name}", changed_at=now))
        job = {"dedup_key": name, "ordering_key": name, "target": "s", "order": f"R{name}", "due_at": now}
        uow.jobs.add(NewJob(kind=JobKind.FETCH_ORDER, **job))

    async def main():
        store = Store(sys.argv[1], Cipher(sys.argv[2]))
        for number in range(100_000):
            name = f"{sys.argv[3]}-{number}"
            await store.transact(lambda uow: triple(uow, name))
            print(name, flush=True)

    asyncio.run(main())
""")


@pytest.mark.proof
@pytest.mark.timeout(1800)
async def test_random_kills_lose_no_commit_nor_leave_fragments(sql_url, cipher, key):
    rounds = max(2, round(60 * SHARE))
    rng = random.Random(2026)
    printed: set[str] = set()
    for number in range(rounds):
        command = (sys.executable, "-c", TRIPLES, sql_url, key, f"{number}")
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        for _ in range(rng.randint(1, 40)):
            printed.add((await asyncio.wait_for(process.stdout.readline(), DEADLINE)).decode().strip())
        await asyncio.sleep(rng.random() / 100)
        process.kill()
        printed |= {
            line.decode().strip() for line in (await process.communicate())[0].splitlines(keepends=True) if line.endswith(b"\n")
        }
    store = Store(sql_url, cipher)

    def names(connection):
        columns = (("key", "orders"), ("key", "lines"), ("order_key", "jobs"))
        return [{name[1:] for (name,) in connection.exec_driver_sql(f"SELECT {c} FROM {t}")} for c, t in columns]

    kept, lines, jobs = await store.read(names)
    await store.close()
    assert kept == lines == jobs
    assert printed <= kept
    FIGURES.add(killed_writers=rounds, commits_lost=0)

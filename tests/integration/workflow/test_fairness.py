"""Orders that wait for others keep no good ones waiting (law 9): many at once, beside other workers, and stuck ones."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lab_agent.catalogue.catalogue_cache import CatalogueCache
from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue.versions import VersionHorizon, activate
from lab_agent.orders.polling import BATCH, OrderPoller
from lab_agent.orders.records import OrderRecord
from lab_agent.queue import jobs
from lab_agent.queue.dispatcher import JobDispatcher
from lab_agent.queue.job_queues import JOB_QUEUES
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.retry import LONGEST_WAIT
from lab_agent.shared.ids import ResourceId, order_key
from lab_agent.shared.state_machines import OrderState
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.read_models import LAST_POLL_KEY
from lab_agent.store.unit_of_work import Store, UnitOfWork
from lab_sandbox.references import Ref
from tests.harness.clock import DEADLINE, VirtualClock
from tests.harness.databases import create_database
from tests.harness.orders import BASE, find_order
from tests.harness.paths import CATALOGUE
from tests.harness.store_counts import count_store
from tests.harness.world import World
from tests.integration.workflow.conftest import MakeScenario, Scenario, listen, parametrize_first
from tests.integration.workflow.service_answers import add_rows, answer_with, change_answers, is_read_of, is_search_with

T = TypeVar("T")
TASKS = [f"t{number}" for number in range(2 * BATCH + 30)]


class StubService:
    """A service that has these order-level Tasks in status requested."""

    async def requested_order_tasks(self) -> tuple[dict[str, Any], ...]:
        return tuple({"resourceType": "Task", "id": task} for task in TASKS)


class RacingStore:
    """A store in which another worker writes some orders right before our `turn`-th unit of work."""

    def __init__(self, store: Store, turn: int, raced: Sequence[str]) -> None:
        self._store, self._turn, self._raced = store, turn, raced

    async def transact(self, work: Callable[[UnitOfWork], T]) -> T:
        self._turn -= 1
        if self._turn == 0:
            await self._store.transact(self._add_orders)
        return await self._store.transact(work)

    async def run_read_only(self, work: Callable[[UnitOfWork], T]) -> T:
        return await self._store.run_read_only(work)

    def _add_orders(self, uow: UnitOfWork) -> None:
        now = VirtualClock().now()
        for task in self._raced:
            key = order_key(BASE, ResourceId(task))
            uow.orders.add(OrderRecord(key=key, task_id=ResourceId(task), seen_at=now, changed_at=now))
            uow.jobs.add(jobs.fetch_order(key, now))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = Store(create_database(tmp_path / "agent.db"), Cipher(new_key()))
    await opened.transact(lambda uow: uow.key_values.get(LAST_POLL_KEY))  # the key is verified once
    yield opened
    await opened.close()


def poll_of(store: Store) -> OrderPoller:
    return OrderPoller(StubService(), store, VirtualClock(), BASE)  # type: ignore[arg-type]  # only the poll is asked


async def count_fetch_jobs(store: Store) -> int:
    def count(uow: UnitOfWork) -> int:
        found = (uow.jobs.list_for_order(order_key(BASE, ResourceId(task))) for task in TASKS)
        return sum(job.kind is JobKind.FETCH_ORDER for listed in found for job in listed)

    return await store.run_read_only(count)


async def test_many_new_orders_are_written_in_batches(store: Store) -> None:
    """And an idle poll writes its success alone."""
    poll = poll_of(store)
    with count_store(store) as counts:
        assert await poll.run() == len(TASKS)
    assert (counts.commits, counts.rollbacks, counts.read_only) == (3, 0, 1)
    assert await count_fetch_jobs(store) == len(TASKS)
    with count_store(store) as counts:
        assert await poll.run() == 0
    assert (counts.commits, counts.rollbacks, counts.writes) == (1, 0, 1)


@pytest.mark.parametrize("turn", [1, 2, 3])
async def test_race_for_one_batch_loses_no_order(store: Store, turn: int) -> None:
    """Another worker writes two orders of every batch that is still to come, after our look."""
    raced = [f"t{number}" for batch in range(turn - 1, 3) for number in (batch * BATCH + 7, batch * BATCH + 8)]
    found = await poll_of(RacingStore(store, turn, raced)).run()  # type: ignore[arg-type]
    assert found == len(TASKS) - len(raced)
    assert await count_fetch_jobs(store) == len(TASKS)
    assert await store.transact(lambda uow: uow.key_values.get(LAST_POLL_KEY)) is not None


# --- new ones go first, and looks at those that wait get rarer


BAD, GOOD = 300, 5
REQUESTS_OF_A_GOOD_ORDER = 30
DAY = timedelta(days=1)
MOST_LOOKS_OF_A_DAY = 24 + 16
"""One an hour, and before that from seconds on, each after twice the time of the one before, until it is held and after that."""
LOOKS_AFTER_THE_MEND = 2
"""A list of lines that differed must have been the same twice."""
Spoil = Callable[[Scenario], Callable[[], None]]


def place_without_lines(world: World, count: int) -> None:
    """The service has so many order-level Tasks that no line Task names."""
    kept = world.service.resources.find(Ref("Task", world.placed[0]))
    assert kept is not None
    task = {key: value for key, value in world.get_task(world.placed[0]).items() if key not in {"id", "identifier"}}
    for _ in range(count):
        world.service.resources.create("Task", task, world.clinic, kept.access.grants)


async def work_until(scenario: Scenario, store: Store, is_done: Callable[[], bool]) -> None:
    """Let the dispatcher work on what is due now."""
    dispatcher = JobDispatcher(JOB_QUEUES, scenario.agent.runner, scenario.agent.runner.outages, concurrency=8)
    store.on_jobs_due = dispatcher.wake
    working = asyncio.create_task(dispatcher.run())
    async with asyncio.timeout(DEADLINE):
        while not is_done():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0)
    dispatcher.stop()
    await working


@parametrize_first("is_later", [False, True], quick=0)
async def test_good_orders_go_before_those_without_lines(tmp_path: Path, is_later: bool) -> None:
    """Of each order in the same poll the first list of lines is read, and nothing more before the good ones are handed over.

    Also where they are seen long after the others.
    """
    store = Store(create_database(tmp_path / "agent.db"), Cipher(new_key()))
    world = World("fairness", store=store)

    def place_good() -> str:
        return world.place_order(find_order(world.clock.now().replace(minute=0, second=0), lines=2, specimens=2), relabel=True)

    scenario = Scenario(world, world.agent(), place_good())
    place_without_lines(world, BAD)
    asked = listen(scenario)
    if is_later:
        await scenario.agent.poll.run()
        await work_until(scenario, store, lambda: len(asked) > BAD)
        world.clock.advance(LONGEST_WAIT)
        asked.clear()
    good = [place_good() for _ in range(GOOD)]
    await scenario.agent.poll.run()
    await work_until(
        scenario, store, lambda: all(any(f"part-of=task/{task}" in str(each.url) for each in asked) for task in good)
    )
    world.clock.advance(world.settings.worker.second_look_after + 1)
    await work_until(scenario, store, lambda: len(world.lis.submitted) > GOOD)
    assert {(await world.stored_order(task))[0].state for task in good} == {OrderState.HANDED_OVER}
    assert len(asked) <= BAD * (not is_later) + (GOOD + 1) * REQUESTS_OF_A_GOOD_ORDER
    await store.close()


def without_lines(scenario: Scenario) -> Callable[[], None]:
    return change_answers(scenario, is_search_with("part-of"), answer_with(200, '{"resourceType": "Bundle", "entry": []}'))


def with_unreadable_specimen(scenario: Scenario) -> Callable[[], None]:
    return change_answers(scenario, is_read_of("specimen/"), answer_with(403))


def with_lines_that_differ(scenario: Scenario) -> Callable[[], None]:
    rows = ({**scenario.world.get_task(scenario.line_tasks[0]), "id": f"other-{number}"} for number in itertools.count())
    return change_answers(scenario, is_search_with("part-of"), add_rows(lambda: [next(rows)]))


def with_lines_on_hold(scenario: Scenario) -> Callable[[], None]:
    scenario.force("on-hold", *scenario.line_tasks)
    return lambda: scenario.force("requested", *scenario.line_tasks)


def without_catalogue(scenario: Scenario) -> Callable[[], None]:
    scenario.world.catalogues.available = False
    return lambda: setattr(scenario.world.catalogues, "available", True)


@parametrize_first(
    "spoil", [without_lines, with_unreadable_specimen, with_lines_that_differ, with_lines_on_hold, without_catalogue], quick=0
)
async def test_waiting_order_is_read_ever_more_rarely(make_scenario: MakeScenario, spoil: Spoil) -> None:
    scenario = make_scenario(2)
    mend, clock, looks = spoil(scenario), scenario.world.clock, []
    await scenario.agent.poll.run()
    begin = clock.now()
    while clock.now() < begin + DAY:
        looks.append(clock.now())
        await scenario.world.drain(scenario.agent, until=timedelta())
        job = next(each for each in await scenario.jobs() if each.kind is JobKind.FETCH_ORDER)
        clock.advance((job.due_at - clock.now()).total_seconds())
    waits = [after - before for before, after in itertools.pairwise(looks)]
    assert len(looks) <= MOST_LOOKS_OF_A_DAY
    assert max(waits) == min(waits[-12:]) == timedelta(seconds=LONGEST_WAIT)
    mend()
    await scenario.drain(*[LONGEST_WAIT] * LOOKS_AFTER_THE_MEND)
    assert await scenario.state() is OrderState.HANDED_OVER


@pytest.mark.slow
async def test_outage_before_the_first_look_is_no_waiting(make_scenario: MakeScenario) -> None:
    """The service was away for hours since the poll, and then its index is behind, or a right comes late, for a moment."""
    scenario = make_scenario(2)
    await scenario.agent.poll.run()
    end_outage = change_answers(scenario, lambda request: True, answer_with(503))
    for _ in range(8):
        await scenario.world.drain(scenario.agent, until=timedelta())
        scenario.world.clock.advance(LONGEST_WAIT)
    end_outage()
    mend = with_unreadable_specimen(scenario)
    await scenario.world.drain(scenario.agent, until=timedelta(seconds=20))
    mend()
    await scenario.world.drain(scenario.agent, until=timedelta(minutes=2))
    assert await scenario.state() is OrderState.HANDED_OVER


@parametrize_first("happens", ["start", "import"])
@pytest.mark.slow
async def test_order_held_for_long_assessed_with_what_is_new(make_scenario: MakeScenario, happens: str) -> None:
    """A night without a catalogue ends with one; or the settings were mended, and the agent was started again."""
    scenario = make_scenario(2)
    world = scenario.world
    mend = without_catalogue(scenario)
    cache = CatalogueCache(world.store, CATALOGUE if happens == "start" else None, VersionHorizon(DAY, DAY), world.clock)
    if happens == "import":
        await cache.reload()
    await scenario.agent.poll.run()
    await world.drain(scenario.agent, until=DAY / 2, rounds=9999)
    assert await scenario.state() is OrderState.HELD
    mend()
    if happens == "import":
        await activate(world.store, read_tables(CATALOGUE), origin="x", by="anna", now=world.clock.now())
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
        watching = group.create_task(cache.watch())
        cache.request_reload()
        while cache.view() is None or not any(job.due_at <= world.clock.now() for job in await scenario.jobs()):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        watching.cancel()
    await scenario.drain()
    assert await scenario.state() is OrderState.HANDED_OVER

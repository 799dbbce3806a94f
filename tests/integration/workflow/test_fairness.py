"""Orders that wait for others keep no good ones waiting (law 9): new ones go first, and looks at the others get rarer."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue_service.cache import CatalogueCache
from lab_agent.catalogue_service.versions import VersionHorizon, activate
from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.retry import LONGEST_WAIT
from lab_agent.domain.state_machines import OrderState
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.worker.dispatcher import JobDispatcher
from lab_agent.worker.job_queues import JOB_QUEUES
from lab_sandbox.references import Ref
from tests.harness.clock import DEADLINE
from tests.harness.databases import create_database
from tests.harness.orders import find_order
from tests.harness.paths import CATALOGUE
from tests.harness.world import SimulatedAgent, World
from tests.integration.workflow.conftest import Scenario
from tests.integration.workflow.service_answers import add_rows, answer_with, change_answers, is_read_of, is_search_with

BAD, GOOD = 300, 5
REQUESTS_OF_A_GOOD_ORDER = 30
DAY = timedelta(days=1)
MOST_LOOKS_OF_A_DAY = 24 + 16
"""One an hour, and before that from seconds on, each after twice the time of the one before, until it is held and after that."""
LOOKS_AFTER_THE_MEND = 2
"""A list of lines that differed must have been the same twice."""


def place_without_lines(world: World, count: int) -> None:
    """The service has so many order-level Tasks that no line Task names."""
    kept = world.service.resources.find(Ref("Task", world.placed[0]))
    assert kept is not None
    task = {key: value for key, value in world.get_task(world.placed[0]).items() if key not in {"id", "identifier"}}
    for _ in range(count):
        world.service.resources.create("Task", task, world.clinic, kept.access.grants)


def place_good(world: World) -> str:
    template = find_order(world.clock.now().replace(minute=0, second=0), lines=2, specimens=2)
    return world.place_order(template, relabel=True)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = SqlStore(create_database(tmp_path / "agent.db"), Cipher(new_key()))
    yield World("fairness", store=store)
    await store.close()


def count_requests(agent: SimulatedAgent) -> list[str]:
    """Addresses of what the agent asks for from now on."""
    transport: Any = agent._http._transport
    handle, asked = transport.handle_async_request, []

    async def counted(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        response: httpx.Response = await handle(request)
        return response

    transport.handle_async_request = counted
    return asked


async def work_until(world: World, agent: SimulatedAgent, is_done: Callable[[], bool]) -> None:
    """Let the dispatcher work on what is due now."""
    dispatcher = JobDispatcher(JOB_QUEUES, agent.runner, agent.runner.outages, concurrency=8)
    assert isinstance(world.store, SqlStore)
    world.store.on_jobs_due = dispatcher.wake
    working = asyncio.create_task(dispatcher.run())
    async with asyncio.timeout(DEADLINE):
        while not is_done():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0)
    dispatcher.stop()
    await working


@pytest.mark.parametrize("is_later", [False, True], ids=["seen in one poll", "seen long after them"])
async def test_good_orders_go_before_those_without_lines(world: World, is_later: bool) -> None:
    """Of each order in the same poll the first list of lines is read, and nothing more before the good ones are handed over."""
    place_good(world)
    agent = world.agent()
    place_without_lines(world, BAD)
    asked = count_requests(agent)
    if is_later:
        await agent.poll.run()
        await work_until(world, agent, lambda: len(asked) > BAD)
        world.clock.advance(LONGEST_WAIT)
        asked.clear()
    good = [place_good(world) for _ in range(GOOD)]
    await agent.poll.run()
    await work_until(world, agent, lambda: all(any(f"part-of=task/{task}" in each for each in asked) for task in good))
    world.clock.advance(world.settings.worker.second_look_after + 1)
    await work_until(world, agent, lambda: len(world.lis.submitted) > GOOD)
    assert {(await world.stored_order(task))[0].state for task in good} == {OrderState.HANDED_OVER}
    assert len(asked) <= BAD * (not is_later) + (GOOD + 1) * REQUESTS_OF_A_GOOD_ORDER


def without_lines(scenario: Scenario) -> Callable[[], None]:
    return change_answers(scenario, is_search_with("part-of"), answer_with(200, '{"resourceType": "Bundle", "entry": []}'))


def with_unreadable_specimen(scenario: Scenario) -> Callable[[], None]:
    return change_answers(scenario, is_read_of("specimen/"), answer_with(403))


def with_lines_that_differ(scenario: Scenario) -> Callable[[], None]:
    rows = ({**scenario.world.get_task(scenario.line_tasks[0]), "id": f"other-{number}"} for number in itertools.count())
    return change_answers(scenario, is_search_with("part-of"), add_rows(lambda: [next(rows)]))


def with_lines_on_hold(scenario: Scenario) -> Callable[[], None]:
    def set_all(status: str) -> None:
        for line in scenario.line_tasks:
            scenario.world.force_task(line, status=status)

    set_all("on-hold")
    return lambda: set_all("requested")


def without_catalogue(scenario: Scenario) -> Callable[[], None]:
    scenario.world.catalogues.available = False
    return lambda: setattr(scenario.world.catalogues, "available", True)


@pytest.mark.parametrize(
    "spoil", [without_lines, with_unreadable_specimen, with_lines_that_differ, with_lines_on_hold, without_catalogue]
)
async def test_waiting_order_is_read_ever_more_rarely(
    make_scenario: Callable[..., Scenario], spoil: Callable[[Scenario], Callable[[], None]]
) -> None:
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
    for _ in range(LOOKS_AFTER_THE_MEND):
        clock.advance(LONGEST_WAIT)
        await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


@pytest.mark.parametrize("spoil", [without_lines, with_unreadable_specimen])
async def test_outage_before_the_first_look_is_no_waiting(
    make_scenario: Callable[..., Scenario], spoil: Callable[[Scenario], Callable[[], None]]
) -> None:
    """The service was away for hours since the poll, and then its index is behind, or a right comes late, for a moment."""
    scenario = make_scenario(2)
    await scenario.agent.poll.run()
    end_outage = change_answers(scenario, lambda request: True, answer_with(503))
    for _ in range(8):
        await scenario.world.drain(scenario.agent, until=timedelta())
        scenario.world.clock.advance(LONGEST_WAIT)
    end_outage()
    mend = spoil(scenario)
    await scenario.world.drain(scenario.agent, until=timedelta(seconds=20))
    mend()
    await scenario.world.drain(scenario.agent, until=timedelta(minutes=2))
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


@pytest.mark.parametrize("happens", ["start", "import"])
async def test_order_held_for_long_assessed_with_what_is_new(make_scenario: Callable[..., Scenario], happens: str) -> None:
    """A night without a catalogue ends with one; or the settings were mended, and the agent was started again."""
    scenario = make_scenario(2)
    world = scenario.world
    mend = without_catalogue(scenario)
    cache = CatalogueCache(world.store, CATALOGUE if happens == "start" else None, VersionHorizon(DAY, DAY), world.clock)
    if happens == "import":
        await cache.reload()
    await scenario.agent.poll.run()
    await world.drain(scenario.agent, until=DAY / 2, rounds=9999)
    assert (await scenario.order_record()).state is OrderState.HELD
    mend()
    if happens == "import":
        await activate(world.store, read_tables(CATALOGUE), origin="x", by="anna", now=world.clock.now())
        cache.request_reload()
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
        watching = group.create_task(cache.watch())
        if happens == "start":
            cache.request_reload()
        while cache.view() is None or not any(job.due_at <= world.clock.now() for job in await scenario.jobs()):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        watching.cancel()
    await world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER

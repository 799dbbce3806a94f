"""The service at its worst: each kind of fault alone and in pairs, a day away, 401s for all at once, and clocks that jump."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient, http_options
from lab_agent.fhir.references import parse_reference
from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import Inbox, SubmitResult
from lab_agent.operations.clock_watch import ClockWatch
from lab_agent.operations.schedule import Scheduler
from lab_agent.queue.dispatcher import JobDispatcher
from lab_agent.queue.outages import EXCHANGE_OUTAGE
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.shared.errors import Failure
from lab_agent.shared.http_client import HttpClient
from lab_agent.shared.ids import ResourceId
from lab_agent.store.credential_records import StoredToken
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.unit_of_work import Store, UnitOfWork
from lab_sandbox.faults.plan import FaultPlan, FaultRule
from tests.harness.clock import DEADLINE, VirtualClock
from tests.harness.databases import InlineStore, create_database
from tests.harness.fault_injection import FaultInjector, FaultyLis, SimulatedLis
from tests.harness.forked_programs import process_context
from tests.harness.order_ends import SIGN_IN, OrderEnd, OrderRun, TimedPoll
from tests.harness.proof import Figures, share_of
from tests.harness.settings import make_settings
from tests.harness.signed_in_caller import AT_ONCE, call_together
from tests.harness.token_service import FIRST_ACCESS, FIRST_REFRESH, token_service
from tests.harness.world import SimulatedAgent, World
from tests.proof.foreign_addresses import ADDRESSES, Seen, listeners
from tests.proof.service_faults import FAULTS, plan_of, singles_and_pairs

pytestmark = [pytest.mark.proof, pytest.mark.timeout(4 * 3600)]

_ORDERS = share_of(50, at_least=3)
_BAD_FOR = timedelta(hours=1)
_THEN_SOUND_FOR = timedelta(hours=3)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits within one call are left to the outbox, whose waits pass by the world's own clock."""
    monkeypatch.setattr("lab_agent.exchange.requests.backoff_delay", lambda *_: 0.0)
    monkeypatch.setattr("lab_agent.exchange.requests._MAX_RETRY_WAIT", 0.0)


@pytest.fixture(autouse=True)
def sent_bodies_are_valid_stu3() -> None:
    """What this service adds to Tasks against STU3 (`unknown_fields`) goes back to it as it came (law 4)."""


@pytest.fixture(autouse=True)
def quiet() -> None:
    structlog.configure(processors=[_drop])


def _drop(*_: object) -> Any:
    raise structlog.DropEvent


async def test_orders_end_the_same_with_every_pair_of_faults(figures: Figures) -> None:
    """First so few of the pairs that every kind is among them, then all."""
    total = share_of(len(list(singles_and_pairs())), at_least=(len(FAULTS) + 1) // 2)
    expected, _ = await _ends_with((), seed=0)
    assert {(each.state, each.waiting, each.at_laboratory) for each in expected} == {("closed", (), 1)}
    unused = set(FAULTS)
    for seed, kinds in enumerate(islice(singles_and_pairs(), total)):
        found, fired = await _ends_with(kinds, seed=seed)
        assert found == expected, f"repeat with {kinds!r} and seed {seed}"
        assert fired, f"nothing happened with {kinds!r} and seed {seed}"
        unused -= fired
        figures.add(pairs_of_faults=int(len(kinds) == 2), faults_alone=int(len(kinds) == 1), orders=_ORDERS, ended_otherwise=0)
        figures.progress(seed + 1, total)
    assert not unused, "kinds of faults that never happened"
    figures.add(kinds_of_faults=len(FAULTS))


async def _ends_with(kinds: tuple[str, ...], *, seed: int) -> tuple[list[OrderEnd], set[str]]:
    """Let the orders come to their ends while these faults happen for an hour, then none; the ends, and which happened."""
    world = World("bad service", oauth=SIGN_IN)
    run, agent, faults = OrderRun(world), world.agent(), world.service.faults
    run.place(_ORDERS)
    faults.activate(plan_of(*kinds, seed=seed))
    await run.run(agent, until=_BAD_FOR)
    fired = {each["kind"] for each in faults.state()["faults"] if each["fired"]}
    faults.activate(FaultPlan())
    await run.run(agent, until=_THEN_SOUND_FOR)
    return await run.ends(), fired


# --- away for a day


async def test_service_away_for_a_day_is_asked_once_a_minute(figures: Figures) -> None:
    """Whatever waits at each stage; and all of it goes on within a minute after the service is back."""
    minutes = share_of(24 * 60, at_least=45)
    world = World("away", oauth=SIGN_IN)
    run, agent = OrderRun(world), world.agent()
    poll = TimedPoll(world, agent)
    run.place(4)
    await poll.work(run, seconds=20, reporting=False)  # at the laboratory, which reports while the service is away
    run.place(4)
    await agent.poll.run()  # seen, and not read yet
    run.place(4)
    away = (FaultRule(kind="reset", route="/fhir/*"), FaultRule(kind="reset"))  # the second: of the service for sign-in
    world.service.faults.activate(FaultPlan(faults=away))
    poll.waits.clear()
    await poll.work(run, seconds=_UNTIL_STEADY)
    at_first, sign_ins_at_first = _count_requests(world)
    await poll.work(run, seconds=minutes * _MINUTE)
    requests, sign_ins = _count_requests(world)
    requests -= at_first
    assert requests <= minutes + 1, f"{requests} requests in {minutes} minutes"
    assert sign_ins - sign_ins_at_first <= 3 * minutes, "a refresh, its repeat and a sign-in, each minute"
    assert max(poll.waits) <= _MINUTE
    waiting = await world.store.transact(
        lambda uow: [each for key in run.keys for each in uow.jobs.list_for_order(key, open_only=True)]
    )
    assert len(waiting) >= 8, "what was at the laboratory, and what was seen"
    mean = sum(each.attempts for each in waiting) / len(waiting)
    half = world.settings.worker.backoff_longest / 2  # of the longest wait, by its jitter
    expected = (minutes * _MINUTE + _UNTIL_STEADY) / half
    assert mean <= 20 + 1.5 * expected, "what waits asks more often than its longest wait allows"
    assert await _is_alert_open(world)

    world.service.faults.activate(FaultPlan())
    back_at, longest = world.clock.now(), 0.0
    while await _is_alert_open(world) or await world.store.transact(lambda uow: uow.jobs.failing(since=world.clock.now())):
        await poll.work(run, seconds=5)
        longest = (world.clock.now() - back_at).total_seconds()
        assert longest <= _MINUTE, "the outage lasts longer than a minute after the service is back"
    await poll.work(run, seconds=10 * _MINUTE)
    assert {(each.state, each.waiting, each.at_laboratory) for each in await run.ends()} == {("closed", (), 1)}
    figures.add(minutes_away=minutes, requests_meanwhile=requests)
    figures.most(recovery_s=longest)


_MINUTE = 60.0
_UNTIL_STEADY = 300.0
"""Seconds until the waits between two requests have grown to a minute, by far."""


def _count_requests(world: World) -> tuple[int, int]:
    """To the service, and to its sign-in."""
    first, second = (int(each["fired"]) for each in world.service.faults.state()["faults"])
    return first, second


async def _is_alert_open(world: World) -> bool:
    return EXCHANGE_OUTAGE in {each.key for each in await world.store.run_read_only(lambda uow: uow.alerts.all_open())}


# --- one sign-in for several processes


def test_fifty_refused_calls_in_three_processes_refresh_once(tmp_path: Path, figures: Figures) -> None:
    times, key, context = share_of(40, at_least=2), new_key(), process_context()
    assert AT_ONCE >= 17, "they are to be refused together"
    database = create_database(tmp_path / "lab.db")
    asyncio.run(_store_first_token(database, key))
    with token_service() as service:
        pipes = [context.Pipe() for _ in range(3)]
        callers = [context.Process(target=call_together, args=(theirs, service.base, database, key)) for _, theirs in pipes]
        for each in callers:
            each.start()
        try:
            for number in range(1, times + 1):
                service.expire()
                refused = service.refused
                for (ours, _), count in zip(pipes, (17, 17, 16), strict=True):
                    ours.send(count)
                for ours, _ in pipes:
                    assert ours.poll(DEADLINE)
                    assert ours.recv() == [], "each call is let in with the new token"
                assert service.refused - refused >= 1
                assert service.generation == number, f"{service.generation} refreshes after {number} times 50 refused calls"
                assert service.reused == []
                figures.add(refused_calls=50, refreshes=1)
        finally:
            for (ours, _), each in zip(pipes, callers, strict=True):
                ours.send(0)
                each.join(DEADLINE)
                each.kill()


async def _store_first_token(database: str, key: str) -> None:
    token = StoredToken(generation=1, access_token=FIRST_ACCESS, refresh_token=FIRST_REFRESH, expires_at=None)

    def write(uow: UnitOfWork) -> None:
        uow.oauth_tokens.add(token)

    store = Store(database, Cipher(key))
    await store.transact(write)
    await store.close()


# --- clocks that jump

_JUMPS = tuple(timedelta(hours=hours) for hours in (1, -1, 24, -24))


async def test_clock_that_jumps_loses_and_doubles_nothing(figures: Figures) -> None:
    """Each jump while orders are at any stage, and while one is just being handed over, with a second worker that looks."""
    total = share_of(40, at_least=4)
    for seed in range(total):
        jump = _JUMPS[seed % len(_JUMPS)]
        try:
            await _jump_clock(seed, jump)
        except AssertionError as exc:
            exc.add_note(f"repeat with seed {seed}, a jump of {jump}")
            raise
        figures.add(clock_jumps=4, orders_over_jumps=6, lost=0, twice=0)
        figures.progress(seed + 1, total)


async def _jump_clock(seed: int, jump: timedelta) -> None:
    world = World(("clock", seed), oauth=SIGN_IN)
    run, first, second = OrderRun(world), world.agent("first"), world.agent("second")
    lis = _SlowLis(world.lis, first.injector, StoreInbox(first.store, world.clock, "folder"))
    first.adapters._systems = {"folder": lis}
    watch = _JumpingClock(world, second)
    run.place(1)
    await first.poll.run()
    while not lis.is_entered:
        jobs = await first.runner.claimer.claim({frozenset(first.runner.handlers): 1})
        for each in jobs:
            first.spawn(first.runner.run(each))
        await asyncio.sleep(0)
        if not jobs and not first.running:
            world.clock.advance(5)
    with capture_logs() as lines:
        watch.jump(jump)
        for _ in range(8):  # two leases, by elapsed time; heartbeats come three times in each
            await watch.look()
            assert not await second.runner.claimer.claim({frozenset(second.runner.handlers): 1}), "taken from a worker that lives"
            world.clock.advance(world.settings.worker.lease / 4)
            await first.runner.heartbeat._renew()
    assert [each["seconds"] for each in lines if each["action"] == "clock_set"] == [jump.total_seconds()], "told once"
    lis.may_go_on.set()
    await first.wait_idle()
    assert len(world.lis.submitted) == 1
    run.place(5)
    for back in (-jump, jump, -jump):
        for _ in range(world.rng.randrange(1, 12)):
            await run.take_turn(second)
        watch.jump(back)
        await watch.look()
    assert await run.run(second, until=timedelta(hours=1)), "an order does not end"
    expected = ("closed", (), 1)
    assert {(each.state, each.waiting, each.at_laboratory) for each in await run.ends()} == {expected}
    told = [line for each in await run.ends() for line in each.lines if line[1] == "completed"]
    assert len(told) == sum(len(each.reports) for each in await run.ends()), "a report for each line, and none twice"


class _SlowLis(FaultyLis):
    def __init__(self, lis: SimulatedLis, injector: FaultInjector, inbox: Inbox) -> None:
        super().__init__(lis, injector, inbox)
        self.is_entered = False
        self.may_go_on = asyncio.Event()

    async def submit(self, order: LabOrder) -> SubmitResult:
        self.is_entered = True
        await self.may_go_on.wait()
        return await super().submit(order)


class _JumpingClock:
    """The world's clock, which jumps, and what a worker does about it; its steady time does not jump."""

    def __init__(self, world: World, agent: SimulatedAgent) -> None:
        self._world, self._zero = world, world.clock.now()
        outages, worker = agent.runner.outages, world.settings.worker
        longest = timedelta(seconds=max(worker.backoff_longest, worker.hold_retry))
        lease = timedelta(seconds=worker.lease)
        self._watch = ClockWatch(world.store, world.clock, Scheduler(outages), longest, lease, steady=self._steady)
        trust = self._watch.can_trust_leases
        self._dispatcher = JobDispatcher({}, agent.runner, outages, concurrency=1, can_trust_leases=trust)

    def jump(self, by: timedelta) -> None:
        self._world.clock.time += by
        self._zero += by

    async def look(self) -> None:
        await self._dispatcher.look()
        await self._watch.look()

    def _steady(self) -> float:
        return (self._world.clock.now() - self._zero).total_seconds()


# --- the token and foreign addresses


async def test_token_goes_nowhere_but_to_its_origin(figures: Figures) -> None:
    """Each address in a redirect, a `next` link, a reference of a resource, and as the address of a Binary."""
    with listeners() as seen:
        exchange_settings = make_settings().exchange
        oauth = SIGN_IN.model_copy(update={"auth_url": seen.base})
        settings = exchange_settings.model_copy(update={"base_url": seen.base, "oauth": oauth, "timeout": 10.0})
        async with HttpClient(http_options(settings)) as http:
            exchange = ExchangeClient(settings, http, Authenticator(oauth, http, InlineStore(), VirtualClock(), "proof"))
            for template in ADDRESSES:
                before = seen.with_token
                seen.trick = template.format(own=seen.own_port, foreign=seen.foreign_port)
                for call in _calls_with(exchange, seen):
                    with suppress(Failure):
                        await call
                assert seen.leaks == []
                assert seen.foreign == []
                assert seen.with_token > before, "the service itself got none"
                figures.add(foreign_addresses=1, tokens_astray=0)


def _calls_with(exchange: ExchangeClient, seen: Seen) -> Iterator[Awaitable[Any]]:
    """What an agent does with an address that the service gives."""
    yield exchange.read("Task", ResourceId("1"))
    yield exchange.line_tasks(ResourceId("1"))
    yield _follow_reference(exchange, seen)
    yield _upload_and_read(exchange)


async def _follow_reference(exchange: ExchangeClient, seen: Seen) -> None:
    if (found := parse_reference(seen.trick + "/fhir/Patient/1", seen.base)) is not None:
        await exchange.read(found.type, ResourceId(found.id))


async def _upload_and_read(exchange: ExchangeClient) -> None:
    saved = await exchange.upload_document(b"%PDF-1.4", "application/pdf", readers=())
    await exchange.read_document(saved.id, "application/pdf")

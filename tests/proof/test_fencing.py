"""Several workers, one PostgreSQL: stopped beyond their leases, cut off, its server restarted and failed over meanwhile."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest

from lab_agent.store.schema import upgrade
from lab_sandbox.partner.basket import Basket, choose_item
from lab_sandbox.partner.order_generator import OrderPlan
from lab_sandbox.partner.random_source import seeded_random
from tests.harness.clock import DEADLINE, wait_until, wait_until_ended
from tests.harness.installation import SHORTENED, AgentProcess, ProcessHarness
from tests.harness.postgres_pair import PostgresPair, postgres_pair
from tests.harness.proof import SHARE, Figures, share_of

pytestmark = pytest.mark.proof
LEASE = float(SHORTENED["lease = 30"].rpartition(" ")[2])
LOCKS_END = 15.0
"""After so many seconds PostgreSQL ends the transaction of a process that stands still (store/engine.py)."""
NOISE = 10.0
"""What a busy machine may add."""
ROUNDS = share_of(30, at_least=4)
ORDERS_A_ROUND = 3
KINDS = ("DiagnosticReport", "Observation")


@pytest.fixture
def pair() -> Iterator[PostgresPair]:
    try:
        with postgres_pair() as servers:
            yield servers
    except OSError as exc:
        pytest.skip(f"PostgreSQL cannot be started here: {exc}")


class Disturbance:
    """Workers at their work, and what happens to them and to their database."""

    def __init__(self, harness: ProcessHarness, pair: PostgresPair, url: str, figures: Figures) -> None:
        self.harness, self.pair, self.url, self.figures = harness, pair, url, figures
        self.agents: list[AgentProcess] = []
        self.frozen: AgentProcess | None = None
        self.has_failed_over = False

    async def freeze(self) -> None:
        """Stop the busiest worker until its leases have ended and others have what it held; then let it go on."""
        held = list[tuple[int, int, int]]()

        def is_held() -> bool:
            held[:] = self._held()
            return bool(held)

        await wait_until(is_held, "a worker with a lease", interval=0.005)
        owner = Counter(pid for pid, _, _ in held).most_common(1)[0][0]
        (frozen,) = (each for each in self.agents if each.process.pid == owner)
        frozen.process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        jobs = {(job, token) for pid, job, token in self._held() if pid == owner}

        def has_moved() -> bool:
            return not jobs & {(job, token) for _, job, token in self._held()}

        await wait_until(has_moved, f"{len(jobs)} jobs of the stopped worker with another one", timeout=LOCKS_END + LEASE + NOISE)
        frozen.process.send_signal(signal.SIGCONT)
        if jobs:
            self.figures.most(longest_takeover_s=round(time.monotonic() - begun, 1))
        self.figures.add(stopped_beyond_the_lease=1)

    async def cut(self) -> None:
        for _ in range(3):
            self.figures.add(connections_cut=await asyncio.to_thread(self.pair.cut_connections))
            await asyncio.sleep(0.2)

    async def restart(self) -> None:
        """The server loses its power, and comes again."""
        await asyncio.to_thread(self.pair.restart)
        self.figures.add(server_restarts=1)

    async def fail_over(self) -> None:
        """The primary is lost for good, once; after that it is restarted."""
        if self.has_failed_over:
            return await self.restart()
        self.has_failed_over = True
        await asyncio.to_thread(self.pair.fail_over)
        return self.figures.add(failovers=1)

    async def unfinished(self, placed: int) -> str:
        """What has not ended yet, in words; empty if all has."""
        tasks = Counter(task["status"] for task in await self.harness.search("task"))
        if tasks == {"completed": 2 * placed}:
            return ""
        with psycopg.connect(self.url) as connection:
            query = "SELECT kind, state, reason, count(*) FROM jobs WHERE state NOT IN ('done', 'obsolete') GROUP BY 1, 2, 3"
            jobs = sorted(map(str, connection.execute(query).fetchall()))
        return f"{dict(tasks)} of {2 * placed} Tasks, jobs {jobs}"

    def _held(self) -> list[tuple[int, int, int]]:
        """The process, the job and the fencing token of each lease."""
        query = "SELECT pid, jobs.id, jobs.fencing_token FROM jobs JOIN workers ON workers.name = jobs.owner"
        with psycopg.connect(self.url) as connection:
            known = {each.process.pid for each in self.agents}
            return [row for row in connection.execute(query).fetchall() if row[0] in known]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("workers", [2, 3] if SHARE >= 1 else [3])
async def test_late_writers_are_fenced_and_nothing_waits(
    harness: ProcessHarness, pair: PostgresPair, figures: Figures, workers: int
) -> None:
    url = pair.create_database(f"workers_{workers}")
    upgrade(url)
    chance = random.Random(workers)
    offer = {item["id"]: item for item in await harness.client.nomenclature()}
    blood = choose_item(offer["001.001"], seeded_random("fenced"), option=offer["001.001"]["specimen"][0])
    basket = Basket(harness.client.account.contract, (blood,))
    prepared = await harness.clinic.prepare_basket(OrderPlan(seed="fenced", basket=basket))
    disturbed = Disturbance(harness, pair, url, figures)
    disturbed.agents += [await harness.start_agent(LAB_AGENT_STORE__URL=url, LAB_AGENT_STATUS__PORT="0") for _ in range(workers)]
    await wait_until(lambda: len(harness.log_lines("action=worker_started")) == workers, f"{workers} workers")
    events = [disturbed.freeze, disturbed.restart, disturbed.cut, disturbed.fail_over]
    placed = 0
    for number in range(ROUNDS):
        for _ in range(ORDERS_A_ROUND):
            plan = OrderPlan(seed=f"fenced-{workers}-{placed}", basket=basket, patient="reused")
            await harness.clinic.send_bundle(await harness.clinic.build_bundle(plan, prepared))
            placed += 1
        if number < len(events):
            await events[number]()
        else:
            await chance.choice(events)()
        figures.progress(number + 1, ROUNDS)

    await wait_until_ended(lambda: disturbed.unfinished(placed), DEADLINE)
    for agent in disturbed.agents:
        assert await agent.stop() == 0, "it ends in order, whatever happened"
    assert not await disturbed.unfinished(placed)
    found = {kind: Counter(one["identifier"][0]["value"] for one in await harness.search(kind)) for kind in KINDS}
    for kind, counted in {**found, "order at the laboratory": harness.lis.received_counts()}.items():
        assert (kind, len(counted), set(counted.values())) == (kind, placed, {1}), "one of each order"
    figures.add(orders=placed, lost=0, twice=0, late_writes_fenced=len(harness.log_lines("action=lease_lost")))

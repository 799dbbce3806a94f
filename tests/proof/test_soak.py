"""A simulated month of a busy laboratory, with retention: what must stay flat stays flat.

The agent's own workflow on a SQLite file, hour by hour on a clock that is moved; the service and the laboratory system are the
stand-ins of a rehearsal, which forget what has ended, so that what grows is ours.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pytest
import structlog

from lab_agent import bootstrap
from lab_agent.bootstrap import Components
from lab_agent.catalogue.basket import Basket
from lab_agent.catalogue.labels import TubeLabels
from lab_agent.catalogue.tubes import Tube
from lab_agent.catalogue.versions import import_if_changed
from lab_agent.exchange.service import SavedResource
from lab_agent.operations.retention import RetentionPurger
from lab_agent.queue.outages import OutageTracker
from lab_agent.rehearsal.made_orders import OrderMaker, list_units, plan_baskets
from lab_agent.rehearsal.made_results import ResultMaker
from lab_agent.rehearsal.stand_in_exchange import StandInExchange
from lab_agent.rehearsal.stand_in_lis import StandInAdapters
from lab_agent.results.mapping_tables import MappingTables
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.shared.state_machines import JobState, OrderState
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.queries import Queries
from lab_agent.store.unit_of_work import Store
from lab_agent.worker_bootstrap import build_runner
from tests.fakes.exchange_service import service_reachable
from tests.harness.clock import VirtualClock
from tests.harness.databases import create_database
from tests.harness.jobs import claim_jobs
from tests.harness.paths import CATALOGUE, MAPPINGS
from tests.harness.proof import SHARE, Figures
from tests.harness.settings import make_settings
from tests.proof.plot import draw_lines

pytestmark = pytest.mark.proof
DAYS = 30
KEPT_DAYS = 7
STEADY_SINCE = 12
"""From this day on, a day adds as much as retention takes: what came in seven days, and some days for what is kept free."""
ORDERS_A_DAY = max(8, round(20_000 * SHARE**3))
"""In the short form of some minutes, a day is that of a tiny laboratory."""
MOST_GROWTH = 1.10
MEMORY_NOISE_MB = 12
AT_ONCE = 16


class ForgetfulExchange(StandInExchange):
    """A service that has forgotten what was last written a day ago, so that it does not grow."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self._written: dict[datetime, list[tuple[str, str]]] = defaultdict(list)

    def forget(self) -> None:
        limit = self._clock.now() - timedelta(days=1)
        for hour in [each for each in self._written if each < limit]:
            for kind, each in self._written.pop(hour):
                if (resource := self._resources[kind].pop(each, None)) is not None:
                    self._forget_links(kind, resource)
                self._documents.pop(each, None)

    def _forget_links(self, kind: str, resource: SavedResource) -> None:
        for one in resource.body.get("identifier", ()):
            self._by_identifier.pop((kind, one.get("system"), one.get("value")), None)
        for link in (*resource.body.get("partOf", ()), resource.body.get("subject", {})):
            self._by_reference.pop((kind, str(link.get("reference", "")).lower()), None)

    def _save(self, resource: SavedResource) -> None:
        super()._save(resource)
        self._written[self._clock.now()].append((resource.resource_type.lower(), resource.id))


class OwnLabels:
    async def labels(self, basket: Basket, tubes: tuple[Tube, ...], version: str) -> tuple[TubeLabels, ...]:
        return tuple(TubeLabels() for _ in tubes)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayFigures:
    """What a day ended with: the database in MB, the memory of the process in MB, its open files, hours of the oldest work."""

    database_mb: float
    memory_mb: float
    files: int
    oldest_work_h: float


class Month:
    """The laboratory, hour by hour."""

    def __init__(self, components: Components, exchange: ForgetfulExchange, clock: VirtualClock, database: Path) -> None:
        self.components, self.exchange, self.clock, self.database = components, exchange, clock, database
        self.store = components.store
        assert isinstance(self.store, Store)
        self.queries = Queries(self.store)
        self.adapters = StandInAdapters(components.adapters, None)
        self.runner = build_runner(components, self.adapters, OutageTracker(self.store, clock, service_reachable))
        self.poller = bootstrap.build_poller(components)
        self.reconciler = bootstrap.build_reconciler(components)
        horizon = bootstrap.build_version_horizon(components.settings)
        self.purger = RetentionPurger(self.store, clock, components.settings.retention, horizon.since)
        self.rng = random.Random(1)
        self.results = ResultMaker(components.mapping_cache.current() or MappingTables(), self.rng)
        self.orders = 0
        self.completed = 0

    async def run(self, told: Callable[[int, int], None]) -> list[DayFigures]:
        await self.components.catalogue_cache.refresh()
        history = self.components.catalogue_cache.view()
        assert history is not None
        catalogue = history.versions[0].catalogue
        contracts = self.components.settings.exchange.contracts
        self.units, _ = list_units(catalogue, tuple(contracts), self.clock.now())
        self.maker = OrderMaker(
            catalogue=catalogue,
            systems=bootstrap.build_code_systems(self.components.settings),
            laboratory=self.components.settings.exchange.laboratory,
            counterparties={code: each.counterparty for code, each in contracts.items()},
            labels=OwnLabels(),
            rng=self.rng,
        )
        days = []
        for day in range(DAYS):
            for hour in range(24):
                await self._hour(ORDERS_A_DAY * (hour + 1) // 24 - ORDERS_A_DAY * hour // 24)
            days.append(await self._measure())
            told(day + 1, DAYS)
        return days

    async def _hour(self, orders: int) -> None:
        for basket in plan_baskets(self.units, orders, self.rng):
            made = await self.maker.make(basket, self.clock.now())
            for resource in made.resources:
                self.exchange.put(resource)
        self.orders += orders
        await self.poller.run()
        await self._work()
        for name, each in self.adapters.by_name.items():
            self.completed += await each.report(self.results, StoreInbox(self.store, self.clock, name), self.clock)
        await self._work()
        await self.reconciler.run()
        await self.purger.run()
        self.exchange.forget()
        self.clock.advance(hours=1)

    async def _work(self) -> None:
        while jobs := await claim_jobs(self.runner, tuple(self.runner.handlers), AT_ONCE):
            await asyncio.gather(*(self.runner.run(job) for job in jobs))

    async def _measure(self) -> DayFigures:
        overview = await self.queries.overview(now=self.clock.now())
        oldest = [*overview.oldest_orders.values(), *overview.oldest_jobs.values(), *overview.oldest_reports.values()]
        assert not {JobState.DEAD_LETTER, JobState.NEEDS_REVIEW} & set(overview.jobs), "nothing fails"
        assert OrderState.HELD not in overview.orders, "nothing is held"
        process = psutil.Process()
        return DayFigures(
            database_mb=self.database.stat().st_size / 1e6,
            memory_mb=process.memory_info().rss / 1e6,
            files=process.num_fds(),
            oldest_work_h=max(((self.clock.now() - since).total_seconds() / 3600 for since in oldest), default=0),
        )


@asynccontextmanager
async def open_month(tmp_path: Path):
    clock = VirtualClock()
    for each in ("orders", "results"):
        (tmp_path / each).mkdir()
    exchange = ForgetfulExchange(clock)
    settings = make_settings(
        results={"documents": "none", "mappings": str(MAPPINGS)},
        api={"catalogue": str(CATALOGUE)},
        lis={"default": "folder", "folder": {"orders": str(tmp_path / "orders"), "results": str(tmp_path / "results")}},
    )
    at_once = settings.worker.model_copy(update={"second_look_after": 0.0})  # the clock stands still within an hour
    kept = dict.fromkeys(("identity_days", "document_days", "journal_days", "refused_days", "failure_days"), KEPT_DAYS)
    short = settings.retention.model_copy(update=kept)  # shorter than an admin may set it, to see it at work for three weeks
    settings = settings.model_copy(update={"worker": at_once, "retention": short})
    store = Store(create_database(tmp_path / "agent.db"), Cipher(new_key()))
    try:
        async with bootstrap.open_components(settings, store=store, wrap_exchange=lambda _: exchange, clock=clock) as components:
            await import_if_changed(store, CATALOGUE, now=clock.now())
            yield Month(components, exchange, clock, tmp_path / "agent.db")
    finally:
        await store.close()


@pytest.fixture(autouse=True)
def only_warnings_are_logged() -> None:
    """The month writes millions of lines otherwise, which pytest would keep."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


@pytest.mark.timeout(24 * 3600)
async def test_month_of_a_busy_laboratory_stays_flat(tmp_path: Path, figures: Figures) -> None:
    async with open_month(tmp_path) as month:
        days = await month.run(figures.progress)
    plot(days)
    assert month.completed == month.orders, "each order has its results"
    steady, last = days[STEADY_SINCE], days[-1]
    assert last.database_mb <= MOST_GROWTH * max(each.database_mb for each in days[STEADY_SINCE : STEADY_SINCE + KEPT_DAYS])
    assert last.memory_mb <= MOST_GROWTH * steady.memory_mb + MEMORY_NOISE_MB
    assert last.files <= steady.files + 2
    assert max(each.oldest_work_h for each in days) <= 24
    figures.add(days=DAYS, orders=month.orders)
    figures.most(
        database_mb=round(last.database_mb, 1), memory_mb=round(last.memory_mb), oldest_work_h=max(x.oldest_work_h for x in days)
    )


def plot(days: Sequence[DayFigures]) -> None:
    if (folder := os.environ.get("LAB_PROOF_FIGURES")) is not None:
        lines = {
            "database, MB": [each.database_mb for each in days],
            "memory, MB": [each.memory_mb for each in days],
            "open files": [float(each.files) for each in days],
            "oldest work, h": [each.oldest_work_h for each in days],
        }
        Path(folder).with_name("soak.svg").write_text(draw_lines(lines, "day"))

"""Runs the day: made-up orders are polled, assessed, handed over, reported and delivered by the agent's own workflow."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from lab_agent import bootstrap, result_bootstrap
from lab_agent.bootstrap import Components
from lab_agent.catalogue.label_allocation import LabelAllocator, PoolEmptyError, check_contracts
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.versions import EARLIEST, activate_copy, import_if_changed
from lab_agent.orders.order_assessment import reassess
from lab_agent.queue.dispatcher import JobDispatcher
from lab_agent.queue.job_queues import list_queues
from lab_agent.queue.job_records import Job
from lab_agent.queue.outages import OutageTracker
from lab_agent.rehearsal.findings import DayNumbers, Finding, FindingKind, OrderReview, RehearsedDay, Rejection
from lab_agent.rehearsal.made_orders import MadeOrder, OrderMaker, OrderUnit, list_units, plan_baskets
from lab_agent.rehearsal.made_results import ResultMaker
from lab_agent.rehearsal.stand_in_exchange import StandInExchange
from lab_agent.rehearsal.stand_in_lis import StandInAdapters
from lab_agent.result_bootstrap import SystemClock
from lab_agent.results.mapping_tables import MappingTables
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.settings.root import Settings
from lab_agent.shared.errors import InputError, StoreError
from lab_agent.shared.ids import OrderKey, order_key
from lab_agent.shared.state_machines import OPEN_JOBS, JobState, LineState
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.opening import open_store
from lab_agent.store.progress import Tell
from lab_agent.store.queries import Queries
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import Store
from lab_agent.worker_bootstrap import build_runner

_PAUSE = 0.2
"""Seconds between two looks whether anything is left to do."""
_SOON = 2.0
"""Seconds: what is due later than that is not waited for, such as the next look at an order that is held."""
_ENDED = frozenset({"completed", "cancelled"})
_MOST_NAMED = 10
_MOST_JOBS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalPlan:
    """What to rehearse.

    `contracts` are all of the settings if none is named. `catalogue` is a folder or workbook to take instead of the active one.
    `output`: a folder for what the adapters would send.
    """

    orders: int
    seed: str
    contracts: tuple[str, ...] = ()
    catalogue: Path | None = None
    output: Path | None = None


async def rehearse(settings: Settings, plan: RehearsalPlan, tell: Tell) -> RehearsedDay:
    """Run a day. Raises `InputError` where there is nothing to order, `CatalogueError`, `MappingsError`, `StoreError`."""
    worker = settings.worker.model_copy(update={"mode": "normal", "second_look_after": 0.0, "ignore_before": None})
    settings = settings.model_copy(update={"worker": worker})
    exchange = StandInExchange()
    async with (
        _open_scratch_store() as store,
        bootstrap.open_components(settings, store=store, wrap_exchange=lambda _: exchange) as components,
    ):
        origin = await _take_catalogue(settings, store, plan)
        catalogue = await _read_catalogue(components, origin)
        day = _Day(settings, plan, components, store, exchange, catalogue, origin)
        return await day.run(tell)


@asynccontextmanager
async def _open_scratch_store() -> AsyncIterator[Store]:
    """A database that is thrown away: what is in it is made up."""
    with tempfile.TemporaryDirectory(prefix="lab-agent-rehearsal-") as folder:
        url = f"sqlite:///{folder}/rehearsal.db"
        await asyncio.to_thread(upgrade, url)
        store = Store(url, Cipher(new_key()))
        try:
            yield store
        finally:
            await store.close()


async def _take_catalogue(settings: Settings, store: Store, plan: RehearsalPlan) -> str:
    """Take over the catalogue that is named, else the active one of the database with its notices, else the settings' own.

    Gives where it comes from, for people.
    """
    source, origin = plan.catalogue, str(plan.catalogue)
    if source is None:
        why_not = await _copy_active(settings, store)
        if why_not is None:
            return "the active one"
        source, origin = settings.api.catalogue, why_not
        if source is not None:
            origin = f"{source}, since {why_not}"
    if source is not None:
        await import_if_changed(store, source, now=SystemClock().now())
    return origin


async def _read_catalogue(components: Components, origin: str) -> Catalogue:
    """Read it as the workflow does: with the notices."""
    await components.catalogue_cache.refresh()
    history = components.catalogue_cache.view()
    if history is None:
        hint = "import one (`lab-agent catalogue import`), or name one with --catalogue"
        raise InputError(f"there is no catalogue, neither in the settings nor in the database ({origin}): {hint}")
    return history.versions[0].catalogue


async def _copy_active(settings: Settings, store: Store) -> str | None:
    """Copy the active catalogue of the installation's database; why there is none, where that is so."""
    try:
        site = open_store(settings.store)
    except StoreError as exc:
        return f"the database cannot be read: {exc}"
    try:
        active, notices = await site.run_read_only(
            lambda uow: (uow.catalogues.newest(), uow.turnaround_notices.active_since(EARLIEST))
        )
    finally:
        await site.close()
    if active is None:
        return "the database has none yet"
    await activate_copy(store, active, notices)
    return None


@dataclass(slots=True)
class _Day:
    """One day, from the orders that are made to what was found. `origin` says where the catalogue comes from."""

    settings: Settings
    plan: RehearsalPlan
    components: Components
    store: Store
    exchange: StandInExchange
    catalogue: Catalogue
    origin: str
    rng: Random = field(init=False)
    orders: dict[OrderKey, MadeOrder] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = Random(self.plan.seed)  # noqa: S311 - it shall be repeatable

    async def run(self, tell: Tell) -> RehearsedDay:
        self._compare_contracts()
        labels = LabelAllocator(self.store, self.settings.api.label_pools, None, lambda: datetime.now(UTC))
        maker = OrderMaker(
            catalogue=self.catalogue,
            systems=result_bootstrap.build_code_systems(self.settings),
            laboratory=self.settings.exchange.laboratory,
            counterparties={code: each.counterparty for code, each in self.settings.exchange.contracts.items()},
            labels=labels,
            rng=self.rng,
        )
        await self._make_orders(maker)
        adapters = StandInAdapters(self.components.adapters, self.plan.output)
        results = ResultMaker(self.components.mapping_cache.current() or MappingTables(), self.rng)
        started = time.monotonic()
        await self._work(adapters, results, tell)
        seconds = time.monotonic() - started
        review = OrderReview(self.orders, await self._find_rejections(), await self._failed_jobs(), datetime.now(UTC))
        self.findings += await self.store.run_read_only(review.find)
        self._note_adapters(adapters)
        self._note_unmapped(results)
        numbers = DayNumbers(
            orders=len(self.orders),
            completed=sum(self.exchange.task_status(each.task_id) == "completed" for each in self.orders.values()),
            handed_over={name: each.submitted for name, each in adapters.by_name.items()},
            messages={name: each.rendered if each.adapter.can_render else None for name, each in adapters.by_name.items()},
            results=sum(each.reported for each in adapters.by_name.values()),
            uploads={kind: self.exchange.count(kind) for kind in ("DiagnosticReport", "Observation", "Binary")},
            labels=maker.labels_issued,
            seconds=seconds,
        )
        return RehearsedDay(catalogue=self.origin, numbers=numbers, findings=tuple(self.findings), notes=tuple(self.notes))

    def _compare_contracts(self) -> None:
        for problem in check_contracts(self.catalogue, self.settings.exchange.contracts, self.settings.api):
            self.findings.append(Finding(kind=FindingKind.SETTINGS, text=str(problem), count=1))

    async def _make_orders(self, maker: OrderMaker) -> None:
        """Make the orders, and put them where the poll finds them. Raises `InputError` where nothing can be ordered."""
        now = datetime.now(UTC)
        contracts = self.plan.contracts or tuple(self.settings.exchange.contracts)
        units, stopped = list_units(self.catalogue, contracts, now)
        if not units:
            known = ", ".join(self.catalogue.contracts) or "none"
            named = ", ".join(contracts) or "none"
            raise InputError(f"nothing can be ordered: of the contracts {named} the catalogue offers nothing now; it has {known}")
        if stopped:
            self.notes.append(f"Not ordered, since they are stopped: {_name_some(stopped)}")
        refused: dict[str, int] = {}
        for basket in plan_baskets(units, self.plan.orders, self.rng):
            try:
                order = await maker.make(basket, now)
            except PoolEmptyError as exc:
                refused[str(exc)] = refused.get(str(exc), 0) + 1
                continue
            self.orders[order_key(self.settings.exchange.base_url, order.task_id)] = order
            for resource in order.resources:
                self.exchange.put(resource)
        for text, count in refused.items():
            mend = "Give the pool a longer range (api.pools)."
            self.findings.append(Finding(kind=FindingKind.NOT_ORDERABLE, text=text, count=count, mend=mend))
        self._note_coverage(units)

    def _note_coverage(self, units: list[OrderUnit]) -> None:
        ordered = {item for each in self.orders.values() for item in each.items}
        if left := [item for item in dict.fromkeys(unit.item.id for unit in units) if item not in ordered]:
            self.notes.append(f"Not ordered, since there were too few orders for all tests (--orders): {_name_some(left)}")

    async def _work(self, adapters: StandInAdapters, results: ResultMaker, tell: Tell) -> None:
        """Let the agent's workflow run until nothing is left to do, or what is left waits."""
        components, store = self.components, self.store
        outages = OutageTracker(store, components.clock, _always)
        runner = build_runner(components, adapters, outages)
        dispatcher = JobDispatcher(list_queues(observe=False), runner, outages, concurrency=self.settings.worker.concurrency)
        self.components.store.on_jobs_due = dispatcher.wake
        running = [asyncio.create_task(dispatcher.run()), asyncio.create_task(runner.heartbeat.run())]
        try:
            await bootstrap.build_poller(components).run()
            while await self._has_work() or await self._report_all(adapters, results):  # in this order: no handover is missed
                await self._report_all(adapters, results)
                tell(self._count_ended(), len(self.orders))
                await dispatcher.look()
                await asyncio.sleep(_PAUSE)
                for task in running:
                    if task.done():
                        task.result()
        finally:
            dispatcher.stop()
            await dispatcher.drain()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _report_all(self, adapters: StandInAdapters, results: ResultMaker) -> int:
        """Report what was handed over; the number of reports."""
        clock = self.components.clock
        return sum(
            [await each.report(results, StoreInbox(self.store, clock, name), clock) for name, each in adapters.by_name.items()]
        )

    async def _has_work(self) -> bool:
        """Whether a job runs or is due soon that has not failed."""
        soon = datetime.now(UTC) + timedelta(seconds=_SOON)
        jobs = await self._list_jobs(frozenset({JobState.DUE, JobState.IN_FLIGHT, JobState.OUTCOME_UNKNOWN}))
        return any(each.state is JobState.IN_FLIGHT or (each.failing_since is None and each.due_at <= soon) for each in jobs)

    async def _failed_jobs(self) -> tuple[Job, ...]:
        return tuple(each for each in await self._list_jobs(OPEN_JOBS) if each.failing_since is not None)

    async def _find_rejections(self) -> list[Rejection]:
        """Which rules have rejected lines: the orders are assessed once more, as they were read."""
        assessor = bootstrap.build_assessor(self.components)
        found = []
        for key, order in self.orders.items():
            lines = await self.store.run_read_only(lambda uow, key=key: uow.orders.lines(key))  # type: ignore[misc]
            items = {str(line.task_id): line.item or "" for line in lines if line.state is LineState.REJECTED}
            if not items:
                continue
            assessment = (await reassess(self.store, assessor, key)).assessment
            found += [
                Rejection(rule=each.rule, message=each.message, item=order.items[0]) for each in assessment.order_rejections
            ]
            own = [each for task in items for each in assessment.lines[task].rejections]
            found += [Rejection(rule=each.rule, message=each.message, item=items.get(each.line or "", "")) for each in own]
        return found

    async def _list_jobs(self, states: frozenset[JobState]) -> tuple[Job, ...]:
        page = await Queries(self.store).jobs(states=states, limit=_MOST_JOBS)
        return page.items

    def _count_ended(self) -> int:
        return sum(self.exchange.task_status(each.task_id) in _ENDED for each in self.orders.values())

    def _note_adapters(self, adapters: StandInAdapters) -> None:
        for name, each in adapters.by_name.items():
            if not each.adapter.can_render:
                what = "it cannot show what it sends (OrderRenderer, docs/adapters.md)"
                self.notes.append(f"The orders to the laboratory system {name} were not written: {what}")

    def _note_unmapped(self, results: ResultMaker) -> None:
        if results.unmapped:
            codes = _name_some([f"{code} ({item})" for code, item in results.unmapped.items()])
            self.notes.append(
                f"The table codes.csv lacks laboratory codes of the catalogue; results with them would wait: {codes}"
            )


async def _always() -> bool:
    return True


def _name_some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")

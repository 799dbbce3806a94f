"""One poison among many of its kind: who takes them in, what becomes of the others, who is told, and how it is mended."""

from __future__ import annotations

import asyncio
import shutil
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select, update

from lab_agent.catalogue.basket import read_basket
from lab_agent.catalogue.catalogue_cache import CatalogueCache
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.preanalytics import calculate
from lab_agent.catalogue.versions import VersionHorizon
from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.lab_messages import Document, LabReport
from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.serialization import dump_message
from lab_agent.lis.sql import SqlAdapter, SqlSettings
from lab_agent.lis.testing import make_order, make_report
from lab_agent.operations.attention_alerts import AttentionAlerts
from lab_agent.operations.schedule import UNREADABLE_TASKS_ALERT
from lab_agent.orders.records import OrderRecord
from lab_agent.results import result_actions
from lab_agent.results.records import ReportRecord
from lab_agent.results.refused_message_actions import RefusedMessageDesk
from lab_agent.results.refused_records import RefusedState
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.shared.errors import BasketError
from lab_agent.shared.state_machines import OrderState, ReportState
from lab_agent.shared.values import Coding
from lab_sandbox.faults.plan import FaultPlan, FaultRule
from tests.fakes.hl7_lis import build_oru
from tests.harness.clock import VirtualClock
from tests.harness.databases import InlineStore, create_staging_tables
from tests.harness.documents import PDF
from tests.harness.hl7_wire import dialled, framed, running
from tests.harness.order_ends import OrderRun, TimedPoll
from tests.harness.paths import CATALOGUE
from tests.harness.world import World

_DAY = timedelta(days=1)
_WHO: dict[str, Any] = {"by": "ann", "note": "seen, and mended"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many came through and within which CPU time of ours, what was told of the others, and what was open in the end."""

    passed: int
    seconds: float
    told: tuple[str, ...]
    left_open: tuple[str, ...]
    repaired: int = 0
    """How many came through once the poison was mended."""


PoisonKind = Callable[[int, int | None, Path], Awaitable[Outcome]]
"""Takes so many, of which the one with that number is bad, in a folder of its own."""


# --- what is ordered and reported, through the workflow


async def order(count: int, poison: int | None, folder: Path) -> Outcome:
    """A Task whose JSON nobody can read, wherever it is listed or read."""
    del folder
    world, run, poll = _open_world(count)
    faults = world.service.faults
    if poison is not None:
        faults.activate(FaultPlan(faults=(FaultRule(kind="poison_task", route="GET /fhir/*", ids=(world.placed[poison],)),)))
    begun = time.process_time()
    await _work_until(world, run, poll, lambda: _closed(world) >= count - (poison is not None))
    seconds, passed = time.process_time() - begun, _closed(world)
    await poll.work(run, seconds=150)
    alerts = {each.key: each for each in await _open_alerts(world.store)}
    told = tuple(str(each) for each in alerts)
    if poison is not None:
        assert world.placed[poison] in alerts[UNREADABLE_TASKS_ALERT].detail, "told which"
        faults.activate(FaultPlan())
        await _work_until(world, run, poll, lambda: _closed(world) == count)
        await poll.work(run, seconds=150)
    return Outcome(passed, seconds, told, await _left_open(world), _closed(world) - passed)


async def result(count: int, poison: int | None, folder: Path) -> Outcome:
    """A value under a code of the laboratory's that no table has."""
    del folder
    return await _report_all(count, poison, lambda report: _with_code(report, Coding(code="NOBODY-KNOWS")))


async def document(count: int, poison: int | None, folder: Path) -> Outcome:
    """A document that is not of its type."""
    del folder
    bad = Document(content=b"hello", content_type="application/pdf")
    return await _report_all(count, poison, lambda report: replace(report, documents=(bad,)))


class _ReportingRun(OrderRun):
    """Orders with a document in each report, one of which is bad until somebody reports anew."""

    def __init__(self, world: World, poison: int | None, spoil: Callable[[LabReport], LabReport]) -> None:
        super().__init__(world)
        self.poison, self.spoil = poison, spoil

    def make_reports(self, order: LabOrder) -> Iterable[LabReport]:
        is_bad = self.poison is not None and order.key == self.world.order_key_of(self.world.placed[self.poison])
        for each in super().make_reports(order):
            report = replace(each, documents=(Document(content=PDF),))
            yield self.spoil(report) if is_bad else report


async def _report_all(count: int, poison: int | None, spoil: Callable[[LabReport], LabReport]) -> Outcome:
    world, _, _ = _open_world(0)
    run, poll = _ReportingRun(world, poison, spoil), TimedPoll(world, world.agent())
    run.place(count, lines=1)
    begun = time.process_time()
    await _work_until(world, run, poll, lambda: _closed(world) >= count - (poison is not None))
    seconds, passed = time.process_time() - begun, _closed(world)
    attention = AttentionAlerts(world.store, world.clock, timedelta(minutes=30), {"folder": None})
    await attention.run()
    told = tuple(str(each.key) for each in await _open_alerts(world.store))
    if poison is not None:
        waits = {ReportState.UNMAPPED, ReportState.HELD}
        (bad,) = (each for each in _records(world, ReportRecord) if each.state in waits)
        await result_actions.dismiss_result(world.store, bad.key, now=world.clock.now(), **_WHO)
        run.reported.discard(run.keys[poison])
        run.poison = None
        inbox = StoreInbox(world.store, world.clock, "folder")
        (order,) = (each for each in world.lis.submitted if each.key == run.keys[poison])
        run.reported.add(order.key)
        for report in run.make_reports(order):
            await inbox.accept("mended", replace(report, report_id="mended"))
        await _work_until(world, run, poll, lambda: _closed(world) == count)
        await attention.run()
    return Outcome(passed, seconds, told, await _left_open(world), _closed(world) - passed)


def _with_code(report: LabReport, code: Coding) -> LabReport:
    return replace(report, observations=tuple(replace(each, code=code) for each in report.observations))


def _open_world(count: int) -> tuple[World, OrderRun, TimedPoll]:
    world = World("poison")
    run = OrderRun(world)
    run.place(count, lines=1)
    return world, run, TimedPoll(world, world.agent())


async def _work_until(world: World, run: OrderRun, poll: TimedPoll, is_done: Callable[[], bool]) -> None:
    """Work until it is done, at most for half an hour of the world's."""
    end = world.clock.now() + timedelta(minutes=30)
    while not is_done() and world.clock.now() < end:
        await poll.work(run, seconds=5)


def _closed(world: World) -> int:
    return sum(each.state is OrderState.CLOSED for each in _records(world, OrderRecord))


def _records(world: World, kind: type[Any]) -> tuple[Any, ...]:
    assert isinstance(world.store, InlineStore)
    return world.store.records(kind)


async def _open_alerts(store: Any) -> Any:
    return await store.run_read_only(lambda uow: uow.alerts.all_open())


async def _left_open(world: World) -> tuple[str, ...]:
    jobs = [each for task in world.placed for each in await world.jobs(task)]
    return tuple(str(each.key) for each in await _open_alerts(world.store)) + tuple(f"{each.kind} {each.state}" for each in jobs)


# --- what a laboratory system gives an adapter


class _Inbox:
    """A store's inbox, and what an operator sees of it."""

    def __init__(self, source: str) -> None:
        self.store, self.clock, self.source = InlineStore(), VirtualClock(), source
        self.inbox = StoreInbox(self.store, self.clock, source)

    async def take_in(self, collect: Callable[[], Awaitable[None]], mend: Callable[[], None] | None) -> Outcome:
        """Collect all; where there is a poison, an operator dismisses it, and it is mended and collected again."""
        begun = time.process_time()
        await collect()
        seconds, passed, told = time.process_time() - begun, self._accepted(), await self._told()
        if mend is not None:
            await RefusedMessageDesk(self.store, self.clock, None).dismiss_all(self.source, **_WHO)  # type: ignore[arg-type]
            mend()
            await collect()
        left = await self._told() + await self.store.transact(self._waiting)
        return Outcome(passed, seconds, told, left, self._accepted() - passed)

    def _accepted(self) -> int:
        return len(self.store.records(ReportRecord))

    async def _told(self) -> tuple[str, ...]:
        return tuple(str(each.key) for each in await _open_alerts(self.store))

    def _waiting(self, uow: Any) -> tuple[str, ...]:
        found, _ = uow.refused_messages.list(source=self.source, states=(RefusedState.WAITING,), limit=10)
        return tuple(each.reason for each in found)


def _reports(count: int) -> list[LabReport]:
    return [replace(make_report(number, make_order(number)), report_id=f"rep-{number}") for number in range(count)]


async def result_file(count: int, poison: int | None, folder: Path) -> Outcome:
    """A file that is no JSON in the folder of results."""
    orders, results = folder / "orders", folder / "results"
    orders.mkdir()
    results.mkdir()
    contents = [dump_message(each) for each in _reports(count)]
    for number, content in enumerate(contents):
        (results / f"{number:05}.json").write_bytes(content[:-20] if number == poison else content)
    mend = None if poison is None else lambda: (results / "mended.json").write_bytes(contents[poison]) and None
    return await _collect_all(FolderAdapter(FolderSettings(orders=orders, results=results, settle=0), "folder"), "folder", mend)


async def sql_row(count: int, poison: int | None, folder: Path) -> Outcome:
    """A row of the staging tables whose document is no result."""
    url = f"sqlite:///{folder / 'lis.db'}"
    engine, tables = create_staging_tables(url)
    contents = [dump_message(each).decode() for each in _reports(count)]
    rows = [
        {"ready": 1, "kind": "report", "document": "{}" if number == poison else each} for number, each in enumerate(contents)
    ]
    with engine.begin() as connection:
        connection.execute(insert(tables.results), rows)

    def mend() -> None:
        with engine.begin() as connection:
            found = connection.execute(select(tables.results.c.id).where(tables.results.c.fault.is_not(None)))
            (faulty,) = found.scalars()  # the laboratory system sees which
            mended = update(tables.results).where(tables.results.c.id == faulty)
            connection.execute(mended.values(document=contents[poison or 0], fault=None))

    adapter = SqlAdapter(SqlSettings.model_validate({"url": url, "time_zone": "Europe/Moscow"}), "sql")
    try:
        return await _collect_all(adapter, "sql", None if poison is None else mend)
    finally:
        engine.dispose()


async def _collect_all(adapter: Any, source: str, mend: Callable[[], None] | None) -> Outcome:
    seen = _Inbox(source)

    async def collect() -> None:
        """Until three times in a row there is nothing: a file is read once it has not changed between two looks."""
        nothing = 0
        while nothing < 3:
            nothing = 0 if await adapter.collect() else nothing + 1
            await asyncio.sleep(0.01)

    await adapter.start(seen.inbox)
    try:
        return await seen.take_in(collect, mend)
    finally:
        await adapter.stop()


async def hl7_message(count: int, poison: int | None, folder: Path) -> Outcome:
    """An HL7 v2 message whose report has a status that there is not."""
    seen = _Inbox("hl7v2")
    contents = [build_oru(each, f"M{number}") for number, each in enumerate(_reports(count))]
    waiting = [_spoil_status(content) if number == poison else content for number, content in enumerate(contents)]
    codes = list[bytes]()
    links = {"orders": {"role": "client", "port": 1}, "results": {"role": "server", "port": 0}}
    async with running(folder, seen.inbox, **links) as adapter, dialled(adapter.ports[1]) as wire:

        async def send() -> None:
            for content in waiting:
                await wire.send(framed(content))
                codes.append(await wire.frame())

        def mend() -> None:
            waiting[:] = [contents[poison or 0]]

        outcome = await seen.take_in(send, None if poison is None else mend)
    refused = [number for number, code in enumerate(codes) if b"MSA|AA" not in code]
    assert refused == ([] if poison is None else [poison]), "acknowledged as what it is, and once mended as good"
    return outcome


def _spoil_status(message: str) -> str:
    assert "|||F\r" in message
    return message.replace("|||F\r", "|||?\r", 1)


# --- the catalogue


async def catalogue(count: int, poison: int | None, folder: Path) -> Outcome:
    """A new version with one bad price among its items: baskets are answered by the version before, and which cell is told."""
    source = Path(shutil.copytree(CATALOGUE, folder / "catalogue"))
    store, clock = InlineStore(), VirtualClock()
    cache = CatalogueCache(store, source, VersionHorizon(_DAY, _DAY), clock)
    await cache.reload()
    items = _orderable_alone(cache)
    prices = source / "contract_items.csv"
    good = prices.read_text()
    if poison is not None:
        prices.write_text(good.replace("480.00", "free", 1))
        clock.advance(60)
        await cache.reload()
    begun, passed = time.process_time(), 0
    for number in range(count):
        if number % 100 == 0:
            await cache.refresh()
        passed += _answer(cache, items[number % len(items)])
    seconds = time.process_time() - begun
    told = tuple(str(each.key) for each in await _open_alerts(store))
    repaired = 0
    if poison is not None:
        passed -= 1  # the version itself
        prices.write_text(good.replace("480.00", "481.00", 1))
        clock.advance(60)
        await cache.reload()
        repaired = int("481.00" in {str(each.price) for each in _active(cache).contract("C-100").items.values()})
    return Outcome(passed, seconds, told, tuple(str(each.key) for each in await _open_alerts(store)), repaired)


def _orderable_alone(cache: CatalogueCache) -> list[str]:
    """Items that need no choice of a specimen."""
    found = list[str]()
    for item in _active(cache).contract("C-100").items:
        with suppress(BasketError):
            _answer(cache, item)
            found.append(item)
    return found


def _answer(cache: CatalogueCache, item: str) -> bool:
    """Whether a basket of one item gets its tubes."""
    active = _active(cache)
    body = {"contract": "C-100", "analyticsrequests": [{"id": item, "guid": str(uuid.UUID(int=1))}]}
    return bool(calculate(active, read_basket(body, active.contracts, 50).lines).tubes)


def _active(cache: CatalogueCache) -> Catalogue:
    view = cache.view()
    assert view is not None
    return view.versions[0].catalogue


KINDS: dict[str, tuple[PoisonKind, str]] = {
    "order": (order, "exchange.unreadable_tasks"),
    "result": (result, "results.unmapped"),
    "document": (document, "results.held/document_mismatch"),
    "result file": (result_file, "lis.refused_messages/folder"),
    "HL7 v2 message": (hl7_message, "lis.refused_messages/hl7v2"),
    "sql row": (sql_row, "lis.refused_messages/sql"),
    "catalogue": (catalogue, "catalogue.invalid"),
}
"""By name: the kind, and the alert that is told of it."""

"""The monitor and its probes: of the service's speed, and of the catalogue in force."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from lab_agent.catalogue.records import CatalogueVersion
from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue.versions import pack_tables
from lab_agent.operations.catalogue import CatalogueProbe
from lab_agent.operations.exchange_probes import CallDurations, SlownessProbe
from lab_agent.operations.monitor import Finding, Monitor
from lab_agent.operations.own_thread import in_own_thread
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import ServiceUnavailable
from lab_agent.shared.metrics import CallOutcome
from lab_agent.store.unit_of_work import Store, UnitOfWork
from tests.harness.clock import DEADLINE, VirtualClock, wait_until
from tests.harness.databases import InlineStore
from tests.harness.paths import CATALOGUE


@pytest.fixture
def store() -> Store:
    return InlineStore()


@dataclass
class HangingProbe:
    """Waits for a file system that does not answer before `gate` is open."""

    gate: threading.Event = field(default_factory=threading.Event)
    looks: int = 0
    conditions: frozenset[ConditionId] = frozenset({ConditionId.DISK_LOW})

    async def look(self) -> Sequence[Finding]:
        self.looks += 1
        await in_own_thread(lambda: self.gate.wait(DEADLINE))
        return ()


@dataclass
class FindingProbe:
    """Finds that there are no new backups, or stumbles over what nobody expects."""

    is_broken: bool = False
    conditions: frozenset[ConditionId] = frozenset({ConditionId.BACKUP_OLD})

    async def look(self) -> Sequence[Finding]:
        if self.is_broken:
            raise ValueError
        return (Finding(condition=ConditionId.BACKUP_OLD),)


async def open_alerts(store: Store) -> set[str]:
    return {str(each.key) for each in await store.run_read_only(lambda uow: uow.alerts.all_open())}


async def test_probe_that_hangs_is_told_and_blocks_no_other(store: Store) -> None:
    hanging = HangingProbe()
    monitor = Monitor(store, VirtualClock(), [hanging, FindingProbe()], host="lab-1", deadline=0.05)
    for _ in range(3):
        await monitor.run()
    assert await open_alerts(store) == {"agent.probe_hangs/disk.low on lab-1", "backup.old"}
    assert hanging.looks == 1, "no second one is begun while the first hangs"
    hanging.gate.set()

    async def is_over() -> bool:
        await monitor.run()
        return await open_alerts(store) == {"backup.old"}

    await wait_until(is_over, "it has returned")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_probe_with_unexpected_error_blocks_no_other(store: Store) -> None:
    broken = FindingProbe(is_broken=True, conditions=frozenset({ConditionId.DISK_LOW}))
    with pytest.raises(ValueError):  # noqa: PT011 - for whoever runs the monitor, who tells it
        await Monitor(store, VirtualClock(), [broken, FindingProbe()], host="lab-1").run()
    assert await open_alerts(store) == {"backup.old"}


@pytest.mark.parametrize(
    ("seconds", "outcome", "later", "detail"),
    [
        ((12.5, 0.1, 13.0, 12.3, 0.2), CallOutcome.OK, 0, "median 12.3 s of the last 5 calls"),
        ((60.0, 0.1, 0.1, 0.2, 0.2), CallOutcome.OK, 0, None),
        ((60.0,) * 4, CallOutcome.OK, 0, "too few"),
        ((60.0,) * 9, CallOutcome.NOT_SENT, 0, "too few"),
        ((60.0,) * 9, CallOutcome.OK, 301, "too few"),
    ],
    ids=["half are slow", "one is slow", "few", "not sent", "long ago"],
)
async def test_service_is_slow_when_half_of_the_calls_are(
    seconds: tuple[float, ...], outcome: str, later: float, detail: str | None
) -> None:
    time = [1000.0]
    calls = CallDurations(lambda: time[0])
    for each in seconds:
        calls.record("GET Task", outcome, each)
    time[0] += later
    probe = SlownessProbe(calls, 10.0)
    if detail == "too few":
        with pytest.raises(ServiceUnavailable):
            await probe.look()
        return
    found = [(each.condition, each.detail) for each in await probe.look()]
    assert found == ([(ConditionId.EXCHANGE_SLOW, detail)] if detail else [])


# --- the catalogue in force

HEADER, *ROWS = (CATALOGUE / "items.csv").read_text(encoding="utf-8").splitlines()
OWN = "777.001,Our own test,,OWN,Own,Group,,,,,"
OTHER = "777.002,Another test,,OTHER,Other,Group,,,,,"
REPLACED, SAMPLE = ConditionId.CATALOGUE_REPLACED, ConditionId.CATALOGUE_SAMPLE


@dataclass
class Catalogues:
    """A store into which catalogues are imported, a minute after each other; each is the sample with these tests."""

    store: Store
    folder: Path
    clock: VirtualClock = field(default_factory=VirtualClock)

    async def add(self, name: str, *rows: str, by: str | None = None) -> None:
        copy = Path(shutil.copytree(CATALOGUE, self.folder / name))
        (copy / "items.csv").write_text("\n".join((HEADER, OWN, *rows)) + "\n", encoding="utf-8")
        self.clock.advance(60)
        now: datetime = self.clock.now()

        def work(uow: UnitOfWork) -> None:
            uow.catalogues.add(
                CatalogueVersion(version=name, since=now, content=pack_tables(read_tables(copy)), origin="x", by=by)
            )

        await self.store.transact(work)

    async def look(self, *, is_production: bool = True) -> list[tuple[ConditionId, str]]:
        probe = CatalogueProbe(self.store, self.clock, is_production=is_production)
        return [(each.condition, each.detail) for each in await probe.look()]


@pytest.fixture
def catalogues(store: Store, tmp_path: Path) -> Catalogues:
    return Catalogues(store, tmp_path)


@pytest.mark.parametrize(
    ("former", "by", "hours", "is_told"),
    [
        ("none", None, 0, False),  # the first one replaces nothing
        ("anna", "anna", 0, False),
        (None, "anna", 0, False),
        (None, None, 23.9, True),
        (None, None, 24, False),
    ],
)
async def test_replacement_by_folder_told_for_a_day(
    catalogues: Catalogues, former: str | None, by: str | None, hours: float, is_told: bool
) -> None:
    if former != "none":
        await catalogues.add("a", ROWS[1], by=former)
    await catalogues.add("b", ROWS[1].replace("ESR", "BSG"), OTHER, by=by)
    catalogues.clock.advance(hours * 3600)
    said = "version b of x took the place of a of x: 1 rows new, 0 gone, 1 changed"
    assert await catalogues.look() == ([(REPLACED, said)] if is_told else [])


async def test_sample_tests_are_told_in_production_until_replaced(catalogues: Catalogues) -> None:
    assert await catalogues.look() == []
    await catalogues.add("a", ROWS[0], ROWS[1], by="anna")
    assert await catalogues.look() == [(SAMPLE, f"2 of 3, such as {ROWS[0].split(',')[0]}")]
    assert await catalogues.look(is_production=False) == []
    await catalogues.add("b", ROWS[1].replace("ESR", "BSG"), by="anna")
    assert await catalogues.look() == [], "a test of another name is another"

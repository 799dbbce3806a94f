"""The probe of the catalogue in force: a replacement by a folder is told for a day, and tests of the sample in production."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue.spreadsheet.schema import SheetTable
from lab_agent.catalogue_service.versions import pack_tables
from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.catalogue_records import CatalogueVersion
from lab_agent.monitoring.catalogue import CatalogueProbe
from lab_agent.ports.repositories import UnitOfWork
from tests.fakes.memory_store import MemoryStore
from tests.harness.clock import VirtualClock
from tests.harness.paths import CATALOGUE

NONE = object()
OTHER = "777.002,Another test,,OTHER,Other,Group,,,,,"
REPLACED, SAMPLE = ConditionId.CATALOGUE_REPLACED, ConditionId.CATALOGUE_SAMPLE
HEADER, *ROWS = (CATALOGUE / "items.csv").read_text(encoding="utf-8").splitlines()
OWN = "777.001,Our own test,,OWN,Own,Group,,,,,"


def tables_with(*rows: str) -> dict[str, SheetTable]:
    """The tables of the sample with these tests alone."""
    with TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(CATALOGUE, Path(folder) / "own"))
        (copy / "items.csv").write_text("\n".join((HEADER, OWN, *rows)) + "\n", encoding="utf-8")
        return read_tables(copy)


async def add_version(store: MemoryStore, name: str, *rows: str, by: str | None, now: datetime) -> None:
    def work(uow: UnitOfWork) -> None:
        content = pack_tables(tables_with(*rows))
        uow.catalogues.add(CatalogueVersion(version=name, since=now, content=content, origin="x", by=by))
        uow.commit()

    await store.run(work)


@pytest.mark.parametrize(
    ("former", "by", "hours", "found"),
    [
        (NONE, None, 0, []),  # the first one replaces nothing
        ("anna", "anna", 0, []),
        (None, "anna", 0, []),
        (None, None, 0, [REPLACED]),
        (None, None, 23.9, [REPLACED]),
        (None, None, 24, []),
    ],
)
async def test_replacement_by_folder_told_for_a_day(former, by, hours, found):
    store, clock = MemoryStore(), VirtualClock()
    if former is not NONE:
        await add_version(store, "a", by=former, now=clock.now())
        clock.advance(60)
    await add_version(store, "b", OTHER, by=by, now=clock.now())
    probe = CatalogueProbe(store, clock, is_production=True)
    clock.advance(hours * 3600)
    assert [each.condition for each in await probe.look()] == found


async def test_replacement_says_versions_and_rows():
    store, clock = MemoryStore(), VirtualClock()
    await add_version(store, "a", ROWS[1], by=None, now=clock.now())
    clock.advance(60)
    await add_version(store, "b", ROWS[1].replace("ESR", "BSG"), OTHER, by=None, now=clock.now())
    (replaced,) = await CatalogueProbe(store, clock, is_production=False).look()
    assert replaced.detail == "version b of x took the place of a of x: 1 rows new, 0 gone, 1 changed"


@pytest.mark.parametrize(
    ("rows", "is_production", "found"),
    [
        ([], True, []),
        ([ROWS[1]], True, [SAMPLE]),
        ([ROWS[1].replace("ESR", "BSG")], True, []),
        ([ROWS[1]], False, []),
    ],
)
async def test_sample_tests_found_in_production(rows, is_production, found):
    store, clock = MemoryStore(), VirtualClock()
    await add_version(store, "a", *rows, by="anna", now=clock.now())
    probe = CatalogueProbe(store, clock, is_production=is_production)
    assert [each.condition for each in await probe.look()] == found


async def test_sample_told_until_other_catalogue_in_force():
    store, clock = MemoryStore(), VirtualClock()
    probe = CatalogueProbe(store, clock, is_production=True)
    assert await probe.look() == ()
    await add_version(store, "a", ROWS[0], ROWS[1], by=None, now=clock.now())
    (sample,) = await probe.look()
    assert (sample.condition, sample.detail) == (SAMPLE, f"2 of 3, such as {ROWS[0].split(',')[0]}")
    clock.advance(60)
    await add_version(store, "b", by="anna", now=clock.now())
    assert await probe.look() == ()

"""Probe of the catalogue in force: whether a folder has replaced another one, and whether it has tests of the sample."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar

from typing_extensions import override

from lab_agent.catalogue.records import CATALOGUE_CHANGE_STAMP, CatalogueVersion
from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue.spreadsheet.diff import diff_tables
from lab_agent.catalogue.spreadsheet.schema import SheetRow, SheetTable
from lab_agent.catalogue.versions import unpack_tables
from lab_agent.operations.monitor import Finding, Probe
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import CatalogueError
from lab_agent.shared.shipped_files import shipped_path
from lab_agent.store.unit_of_work import Store, UnitOfWork

_REPLACED_TOLD_FOR = timedelta(days=1)


def find_sample_items(tables: Mapping[str, SheetTable]) -> tuple[str, ...]:
    """Give the tests of a catalogue whose rows are those of the sample, unchanged."""
    sample = {_filled_cells(row) for row in read_tables(shipped_path("config/catalogue"))["items"].rows}
    return tuple(row.cells["item"] for row in tables["items"].rows if _filled_cells(row) in sample)


def _filled_cells(row: SheetRow) -> frozenset[tuple[str, str]]:
    return frozenset((column, text) for column, text in row.cells.items() if text)


@dataclass(slots=True)
class CatalogueProbe(Probe):
    """Reads the versions again when the catalogue has changed."""

    store: Store
    clock: Clock
    is_production: bool
    conditions: ClassVar[frozenset[ConditionId]] = frozenset({ConditionId.CATALOGUE_REPLACED, ConditionId.CATALOGUE_SAMPLE})
    _read: tuple[datetime, str | None] | None = field(default=None, init=False)
    _found: tuple[Finding, ...] = field(default=(), init=False)

    @override
    async def look(self) -> Sequence[Finding]:
        """Raises `StoreUnreachableError`."""
        active, stamp = await self.store.run_read_only(_read_state)
        if active is None:
            return ()
        _, since = active
        if (since, stamp) != self._read:
            before = since - timedelta(microseconds=1)
            versions = await self.store.run_read_only(lambda uow: uow.catalogues.active_since(before))
            self._found = await asyncio.to_thread(lambda: tuple(self._examine(versions)))
            self._read = since, stamp
        is_new = self.clock.now() - since < _REPLACED_TOLD_FOR
        return tuple(each for each in self._found if is_new or each.condition is not ConditionId.CATALOGUE_REPLACED)

    def _examine(self, versions: Sequence[CatalogueVersion]) -> Iterator[Finding]:
        newest, *former = versions
        try:
            tables = unpack_tables(newest.content)
        except CatalogueError:
            return  # whoever reads it tells that
        if former and newest.by is None and former[0].version != newest.version:
            detail = f"version {newest.version} of {newest.origin} took the place of {former[0].version} of {former[0].origin}"
            detail += _count_changes(former[0], tables)
            yield Finding(condition=ConditionId.CATALOGUE_REPLACED, detail=detail, since=newest.since)
        if self.is_production and (items := find_sample_items(tables)):
            detail = f"{len(items)} of {len(tables['items'].rows)}, such as {items[0]}"
            yield Finding(condition=ConditionId.CATALOGUE_SAMPLE, detail=detail, since=newest.since)


def _read_state(uow: UnitOfWork) -> tuple[tuple[str, datetime] | None, str | None]:
    return uow.catalogues.active(), uow.key_values.get(CATALOGUE_CHANGE_STAMP)


def _count_changes(former: CatalogueVersion, tables: Mapping[str, SheetTable]) -> str:
    """How many rows are new, gone and changed; empty where the former version cannot be read."""
    try:
        kinds = Counter(change.kind for change in diff_tables(unpack_tables(former.content), tables))
    except CatalogueError:
        return ""
    return f": {kinds['new']} rows new, {kinds['gone']} gone, {kinds['changed']} changed"

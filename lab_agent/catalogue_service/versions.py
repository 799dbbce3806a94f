"""Putting a catalogue in force: checked whole, then replaced in one transaction, and every process told by a stamp.

A folder (or workbook) that the settings name is taken over when it has changed since it was last taken from there. So a small
installation keeps its tables in a folder and needs no command; and an import by command is not undone by the next start.

Tables of a catalogue as bytes for the store, and back.

How far back catalogue versions are needed, to judge orders by what their clinics may have seen (interface: Limits).

Both who reads them (`catalogues.shelf`) and who removes old ones (housekeeping) ask here, so that none is gone too early.
"""

from __future__ import annotations

import asyncio
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lab_agent import exact_json
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.spreadsheet.csv_files import content_version, read_tables
from lab_agent.catalogue.spreadsheet.parser import build_catalogue
from lab_agent.catalogue.spreadsheet.schema import SHEETS, SheetRow, SheetTable
from lab_agent.domain.catalogue_records import CATALOGUE_CHANGE_STAMP, CatalogueVersion
from lab_agent.errors import CatalogueError, DataInvalidError, Problem
from lab_agent.ports.repositories import Store, UnitOfWork


def pack_tables(tables: Mapping[str, SheetTable]) -> bytes:
    """Give the tables as bytes: for each sheet its columns, and the cells of each row."""
    sheets = {}
    for sheet in SHEETS:
        names = [column.name for column in sheet.columns]
        rows = [[row.cells.get(name, "") for name in names] for row in tables[sheet.name].rows]
        sheets[sheet.name] = {"columns": names, "rows": rows}
    return zlib.compress(exact_json.dumps(sheets), 6)


def unpack_tables(content: bytes) -> dict[str, SheetTable]:
    """Give the tables back. A sheet or column that this program does not know (any more) is left out.

    Raises `CatalogueError` for bytes that are damaged, or that another program wrote.
    """
    try:
        sheets = exact_json.loads(zlib.decompress(content))
        return {sheet.name: _unpack_table(sheet.name, sheets.get(sheet.name, {})) for sheet in SHEETS}
    except (zlib.error, DataInvalidError, ValueError, TypeError, AttributeError) as exc:
        damaged = Problem("store", "holds a catalogue that cannot be read", "import it again: lab-agent catalogue import SOURCE")
        raise CatalogueError((damaged,)) from exc


def _unpack_table(name: str, packed: Mapping[str, Any]) -> SheetTable:
    columns = packed.get("columns", [])
    rows = [dict(zip(columns, cells, strict=True)) for cells in packed.get("rows", [])]
    if not all(isinstance(text, str) for cells in rows for pair in cells.items() for text in pair):
        raise TypeError("a cell is no text")
    return SheetTable(name, tuple(SheetRow(name, number, cells) for number, cells in enumerate(rows, start=2)))


_LONGEST_LIFETIME_KEY = "catalogue.longest_cache_lifetime"


@dataclass(frozen=True, slots=True)
class VersionHorizon:
    """`look_back` is how long an order may have been under way before we saw it; `cache_lifetime` the installation's."""

    look_back: timedelta
    cache_lifetime: timedelta

    def since(self, uow: UnitOfWork, now: datetime) -> datetime:
        """The moment since which every version is needed: for what comes now, and for each order that still waits for us."""
        oldest = min(now, uow.orders.unassessed_since() or now)
        return oldest - self.look_back - max(self.cache_lifetime, _longest_lifetime(uow))


def store_longest_lifetime(uow: UnitOfWork, catalogue: Catalogue) -> None:
    """Note the longest time for which a contract ever let the nomenclature be kept; call it where a version is put in force."""
    own = max((each.cache_lifetime_seconds or 0 for each in catalogue.contracts.values()), default=0)
    if timedelta(seconds=own) > _longest_lifetime(uow):
        uow.key_values.set(_LONGEST_LIFETIME_KEY, str(own))


def _longest_lifetime(uow: UnitOfWork) -> timedelta:
    return timedelta(seconds=int(uow.key_values.get(_LONGEST_LIFETIME_KEY) or 0))


UNREADABLE_ALERT = "catalogue.unreadable"
"""Name of the alert that the version in force cannot be read; putting a catalogue in force closes it."""
FALLBACK_KEY = "catalogue.fallback"
"""Note of the older version that the API serves since when, while the one in force cannot be read; empty if it does not."""
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
"""Before every catalogue."""
_SOURCE_KEY_PREFIX = "catalogue.source:"
_SOURCE_HINT = "mend its rights or its cells, or write it anew from the template"


def mark_changed(uow: UnitOfWork) -> None:
    """Tell every process that something has changed; call it in the unit of work that changes it."""
    uow.key_values.set(CATALOGUE_CHANGE_STAMP, uuid.uuid4().hex)


async def activate(
    store: Store,
    tables: Mapping[str, SheetTable],
    *,
    origin: str,
    by: str | None,
    now: datetime,
    configured_source: Path | None = None,
) -> bool:
    """Replace the catalogue. False if it is in force already. Raises `CatalogueError`, and then the old one stays.

    `over` is the folder (or workbook) of the settings: as it stands now, it counts as taken, so that no start undoes this.
    """
    made, catalogue = await asyncio.to_thread(_build_version, tables, origin, by, now)
    passed = None if configured_source is None else await asyncio.to_thread(_source_digest, configured_source)

    def work(uow: UnitOfWork) -> bool:
        if configured_source is not None and passed is not None:
            uow.key_values.set(_source_key(configured_source), passed)
        return _activate(uow, made, catalogue)

    return await store.run(work)


async def import_if_changed(store: Store, source: Path, *, now: datetime) -> bool:
    """Take the catalogue of a folder or workbook over, if it has changed since it was last taken from there.

    Also where it has not, if it is the version in force and that cannot be read: then it is written anew. Another version is
    left alone then, since an import by command is not undone by what was there before it.
    Whether it was put in force. Raises `CatalogueError`, and then the old one stays.
    """
    tables = await asyncio.to_thread(_read_source, source)
    key, digest = _source_key(source), content_version(tables)
    taken, newest = await store.run(lambda uow: (uow.key_values.get(key) == digest, uow.catalogues.newest()))
    heals = newest is not None and newest.version == digest and not await asyncio.to_thread(_is_readable, newest)
    if taken and not heals:
        return False
    made, catalogue = await asyncio.to_thread(_build_version_from_source, source, tables, now)

    def work(uow: UnitOfWork) -> bool:
        if uow.key_values.get(key) == digest and not heals:  # another process was quicker
            return False
        uow.key_values.set(key, digest)
        return _activate(uow, made, catalogue)

    return await store.run(work)


async def load_active_tables(store: Store) -> dict[str, SheetTable] | None:
    """The tables of the catalogue in force; None if none was ever imported."""
    newest = await store.run(lambda uow: uow.catalogues.newest())
    return None if newest is None else unpack_tables(newest.content)


async def load_active_catalogue(store: Store) -> Catalogue | None:
    """The catalogue in force; None if none was ever imported. Raises `CatalogueError` as `catalogue_of` does."""
    newest = await store.run(lambda uow: uow.catalogues.newest())
    return None if newest is None else await asyncio.to_thread(unpack_catalogue, newest)


def unpack_catalogue(stored: CatalogueVersion) -> Catalogue:
    """Make the catalogue of a kept version. Raises `CatalogueError` if it is damaged, or this program reads it another way."""
    tables = unpack_tables(stored.content)
    with _wrap_errors("store", "holds a catalogue that cannot be read", "import it again: lab-agent catalogue import SOURCE"):
        return build_catalogue(tables, stored.version)


def _build_version(
    tables: Mapping[str, SheetTable], origin: str, by: str | None, now: datetime
) -> tuple[CatalogueVersion, Catalogue]:
    digest = content_version(tables)
    catalogue = build_catalogue(tables, digest)
    return CatalogueVersion(version=digest, since=now, content=pack_tables(tables), origin=origin, by=by), catalogue


def _source_digest(source: Path) -> str | None:
    try:
        return content_version(_read_source(source))
    except CatalogueError:
        return None  # there is none, or it cannot be read: nothing could be taken from it


def _read_source(source: Path) -> dict[str, SheetTable]:
    with _wrap_errors(str(source), "cannot be read", _SOURCE_HINT):
        return read_tables(source)


def _build_version_from_source(
    source: Path, tables: Mapping[str, SheetTable], now: datetime
) -> tuple[CatalogueVersion, Catalogue]:
    with _wrap_errors(str(source), "cannot be made a catalogue", _SOURCE_HINT):
        return _build_version(tables, str(source), None, now)


@contextmanager
def _wrap_errors(where: str, what: str, hint: str) -> Iterator[None]:
    """Say whatever goes wrong in here of the catalogue: a fault of ours must not keep every program from starting."""
    try:
        yield
    except CatalogueError:
        raise
    except Exception as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else type(exc).__name__
        raise CatalogueError((Problem(where, f"{what} ({why})", hint),)) from exc


def _is_readable(stored: CatalogueVersion) -> bool:
    try:
        unpack_catalogue(stored)
    except CatalogueError:
        return False
    return True


def _source_key(source: Path) -> str:
    return f"{_SOURCE_KEY_PREFIX}{source.resolve()}"


def _activate(uow: UnitOfWork, new_version: CatalogueVersion, catalogue: Catalogue) -> bool:
    told = _record_fallback_period(uow)
    added = uow.catalogues.add(new_version) or told
    uow.alerts.close(UNREADABLE_ALERT, now=new_version.since)
    if added:
        store_longest_lifetime(uow, catalogue)
        mark_changed(uow)
    uow.commit()
    return added


def _record_fallback_period(uow: UnitOfWork) -> bool:
    """Where an older version was served in the meantime, it was in force: no order shall be refused for what it offered."""
    since, _, version = (uow.key_values.get(FALLBACK_KEY) or "").partition(" ")
    if not version:
        return False
    uow.key_values.set(FALLBACK_KEY, "")
    older = next((each for each in uow.catalogues.active_since(EARLIEST) if each.version == version), None)
    return older is not None and uow.catalogues.add(replace(older, since=datetime.fromisoformat(since)))

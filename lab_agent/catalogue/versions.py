"""Catalogue versions: activated, stored as bytes, and kept for as long as orders may have been made by them.

A catalogue is checked whole and replaced in one transaction; a change stamp notifies every process. A folder (or workbook) that
the settings name is imported by itself while the active version came from there, so a small installation needs no command; an
alert says if it is not valid, or not in force. What a person imported is replaced by a person alone.
"""

from __future__ import annotations

import asyncio
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import structlog

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.records import CATALOGUE_CHANGE_STAMP, CatalogueVersion, TurnaroundNotice
from lab_agent.catalogue.spreadsheet.csv_files import content_version, read_tables
from lab_agent.catalogue.spreadsheet.parser import build_catalogue
from lab_agent.catalogue.spreadsheet.schema import SHEETS, SheetRow, SheetTable
from lab_agent.shared import exact_json
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import CatalogueError, DataInvalidError, Problem
from lab_agent.store.alert_log import close_alert, open_alert
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import Store, UnitOfWork

UNREADABLE_ALERT = AlertKey(ConditionId.CATALOGUE_UNREADABLE)
"""Key of the alert that the active version cannot be read; activating a catalogue closes it."""
INVALID_ALERT = AlertKey(ConditionId.CATALOGUE_INVALID)
"""Key of the alert that what was changed is not valid; activating a catalogue closes it."""
UNUSED_ALERT = AlertKey(ConditionId.CATALOGUE_FOLDER_UNUSED)
"""Key of the alert that the folder of the settings holds another catalogue than a person imported; activating closes it."""
FALLBACK_KEY = "catalogue.fallback"
"""Key of the time and the older version that the API serves since then, the active one being unreadable; empty if it does not."""
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
"""Before every catalogue."""
_SOURCE_HINT = "check its permissions and cells, or fill in the template again"
_LONGEST_LIFETIME_KEY = "catalogue.longest_cache_lifetime"


def pack_tables(tables: Mapping[str, SheetTable]) -> bytes:
    """Give the tables as bytes: for each sheet its columns, and the cells of each row."""
    sheets = {}
    for sheet in SHEETS:
        names = [column.name for column in sheet.columns]
        rows = [[row.cells.get(name, "") for name in names] for row in tables[sheet.name].rows]
        sheets[sheet.name] = {"columns": names, "rows": rows}
    return zlib.compress(exact_json.dumps(sheets), 6)


def unpack_tables(content: bytes) -> dict[str, SheetTable]:
    """Give the tables back, without sheets and columns that this program does not know (any more).

    Raises `CatalogueError` for bytes that are damaged, or of another program.
    """
    try:
        sheets = exact_json.loads(zlib.decompress(content))
        return {sheet.name: _unpack_table(sheet.name, sheets.get(sheet.name, {})) for sheet in SHEETS}
    except (zlib.error, DataInvalidError, ValueError, TypeError, AttributeError) as exc:
        damaged = Problem(
            "store", "holds a catalogue that cannot be read", "import it again: `lab-agent catalogue import SOURCE`"
        )
        raise CatalogueError((damaged,)) from exc


def _unpack_table(name: str, packed: Mapping[str, Any]) -> SheetTable:
    columns = packed.get("columns", [])
    rows = [dict(zip(columns, cells, strict=True)) for cells in packed.get("rows", [])]
    if not all(isinstance(text, str) for cells in rows for pair in cells.items() for text in pair):
        raise TypeError("a cell is not text")
    return SheetTable(name, tuple(SheetRow(name, number, cells) for number, cells in enumerate(rows, start=2)))


@dataclass(frozen=True, slots=True)
class VersionHorizon:
    """How far back versions are needed, since clinics order by what they have cached (interface: Limits).

    `look_back` is how long an order may have been under way before we saw it; `cache_lifetime` is the installation's. Both the
    cache and the purge ask here, so that no version is deleted too early.
    """

    look_back: timedelta
    cache_lifetime: timedelta

    def since(self, uow: UnitOfWork, now: datetime) -> datetime:
        """Since when every version is needed: for new orders, and for those that are not assessed yet."""
        oldest = min(now, uow.orders.unassessed_since() or now)
        return oldest - self.look_back - max(self.cache_lifetime, _longest_lifetime(uow))


def store_longest_lifetime(uow: UnitOfWork, catalogue: Catalogue) -> None:
    """Store the longest cache lifetime that a contract ever had; called where a version is activated."""
    own = max((each.cache_lifetime_seconds or 0 for each in catalogue.contracts.values()), default=0)
    if timedelta(seconds=own) > _longest_lifetime(uow):
        uow.key_values.set(_LONGEST_LIFETIME_KEY, str(own))


def _longest_lifetime(uow: UnitOfWork) -> timedelta:
    return timedelta(seconds=int(uow.key_values.get(_LONGEST_LIFETIME_KEY) or 0))


def mark_changed(uow: UnitOfWork) -> None:
    """Notify every process of a change; to be called in the unit of work of the change."""
    uow.key_values.set(CATALOGUE_CHANGE_STAMP, uuid.uuid4().hex)


async def activate(store: Store, tables: Mapping[str, SheetTable], *, origin: str, by: str | None, now: datetime) -> bool:
    """Replace the catalogue. False if it is active already. Raises `CatalogueError`, and then the old one stays.

    `by` is who asked for it: no folder replaces it by itself then.
    """
    made, catalogue = await asyncio.to_thread(_build_version, tables, origin, by, now)
    return await store.transact(lambda uow: _activate(uow, made, catalogue, by))


class SourceState(Enum):
    """What has become of the folder (or workbook) of the settings."""

    IN_FORCE = "in force"  # it holds the active version
    ACTIVATED = "activated"  # it does now
    UNUSED = "unused"  # it holds another one than a person imported, which stays


@dataclass(frozen=True, slots=True)
class SourceImport:
    """How an import of the settings' folder ended; `former` is the version that was replaced, None if there was none."""

    state: SourceState
    former: str | None = None


async def import_if_changed(store: Store, source: Path, *, now: datetime) -> SourceImport:
    """Import a folder or workbook if it holds another catalogue than the active one, and no person imported that.

    If it holds the active version, and that cannot be read, it repairs it. Raises `CatalogueError` for a folder that should be
    imported and is not valid, and then the old one stays.
    """
    newest = await store.transact(lambda uow: uow.catalogues.newest())
    try:
        tables = await asyncio.to_thread(_read_source, source)
    except CatalogueError:
        if newest is not None and newest.by is not None:
            return SourceImport(SourceState.UNUSED)
        raise
    digest = content_version(tables)
    if newest is not None and newest.version == digest and await asyncio.to_thread(_is_readable, newest):
        return SourceImport(SourceState.IN_FORCE)
    if _is_kept(newest, digest):
        return SourceImport(SourceState.UNUSED)
    made, catalogue = await asyncio.to_thread(_build_version_from_source, source, tables, now)

    def work(uow: UnitOfWork) -> SourceImport:
        active = uow.catalogues.newest()  # another process may have been faster
        if _is_kept(active, digest):
            return SourceImport(SourceState.UNUSED)
        if active is None or active.version != digest:
            _activate(uow, made, catalogue, None)
            return SourceImport(SourceState.ACTIVATED, None if active is None else active.version)
        repaired = replace(made, origin=active.origin, by=active.by)
        return SourceImport(SourceState.ACTIVATED if _activate(uow, repaired, catalogue, None) else SourceState.IN_FORCE)

    return await store.transact(work)


def _is_kept(active: CatalogueVersion | None, digest: str) -> bool:
    """Whether a person imported the active version, and `digest` is another one."""
    return active is not None and active.by is not None and active.version != digest


async def activate_copy(store: Store, version: CatalogueVersion, notices: Iterable[TurnaroundNotice]) -> None:
    """Activate a version of another store, with its notices. Raises `CatalogueError` for one that cannot be read."""
    catalogue = await asyncio.to_thread(unpack_catalogue, version)

    def work(uow: UnitOfWork) -> None:
        for notice in notices:
            uow.turnaround_notices.add(notice)
        _activate(uow, version, catalogue, version.by)

    await store.transact(work)


async def load_active_tables(store: Store) -> dict[str, SheetTable] | None:
    """The tables of the active catalogue; None if none was ever imported."""
    newest = await store.transact(lambda uow: uow.catalogues.newest())
    return None if newest is None else unpack_tables(newest.content)


async def load_active_catalogue(store: Store) -> Catalogue | None:
    """The active catalogue; None if none was ever imported. Raises `CatalogueError` as `unpack_catalogue` does."""
    newest = await store.transact(lambda uow: uow.catalogues.newest())
    return None if newest is None else await asyncio.to_thread(unpack_catalogue, newest)


def unpack_catalogue(stored: CatalogueVersion) -> Catalogue:
    """Make the catalogue of a stored version. Raises `CatalogueError` if it is damaged, or not valid for this program."""
    tables = unpack_tables(stored.content)
    with _wrap_errors("store", "holds a catalogue that cannot be read", "import it again: `lab-agent catalogue import SOURCE`"):
        return build_catalogue(tables, stored.version)


def _build_version(
    tables: Mapping[str, SheetTable], origin: str, by: str | None, now: datetime
) -> tuple[CatalogueVersion, Catalogue]:
    digest = content_version(tables)
    catalogue = build_catalogue(tables, digest)
    return CatalogueVersion(version=digest, since=now, content=pack_tables(tables), origin=origin, by=by), catalogue


def _read_source(source: Path) -> dict[str, SheetTable]:
    with _wrap_errors(str(source), "cannot be read", _SOURCE_HINT):
        return read_tables(source)


def _build_version_from_source(
    source: Path, tables: Mapping[str, SheetTable], now: datetime
) -> tuple[CatalogueVersion, Catalogue]:
    with _wrap_errors(str(source), "is not a valid catalogue", _SOURCE_HINT):
        return _build_version(tables, str(source), None, now)


@contextmanager
def _wrap_errors(where: str, what: str, hint: str) -> Iterator[None]:
    """Raise any error as one of the catalogue: a defect of the reader must not keep every program from starting."""
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


def _activate(uow: UnitOfWork, new_version: CatalogueVersion, catalogue: Catalogue, by: str | None) -> bool:
    """Activate it; `by` is who does so, which for a repair is not who imported it."""
    recorded = _record_fallback_period(uow)
    added = uow.catalogues.add(new_version) or recorded
    uow.alerts.close_all([UNREADABLE_ALERT, INVALID_ALERT, UNUSED_ALERT], now=new_version.since)
    if added:
        made = AuditAction.CATALOGUE_ACTIVATED
        uow.audit.add(AuditEntry(at=new_version.since, action=made, subject=new_version.version, by=by))
        store_longest_lifetime(uow, catalogue)
        mark_changed(uow)
    return added


def _record_fallback_period(uow: UnitOfWork) -> bool:
    """An older version that was served meanwhile counts as active then: no order is rejected for what it offered."""
    since, _, version = (uow.key_values.get(FALLBACK_KEY) or "").partition(" ")
    if not version:
        return False
    uow.key_values.set(FALLBACK_KEY, "")
    older = next((each for each in uow.catalogues.active_since(EARLIEST) if each.version == version), None)
    return older is not None and uow.catalogues.add(replace(older, since=datetime.fromisoformat(since)))


log = structlog.get_logger(__name__)

_MAX_DETAIL = 300


async def import_source(store: Store, source: Path, *, now: datetime) -> None:
    """Import a folder or workbook as `import_if_changed` does. Raises `CatalogueError`, and then an alert is open that says why.

    Agent and API both import: the one that succeeds closes the alerts of either.
    """
    try:
        done = await import_if_changed(store, source, now=now)
    except CatalogueError as exc:
        await _update_alerts(store, INVALID_ALERT, _describe(exc), now)
        raise
    if done.former is not None:
        log.warning(
            "catalogue replaced by the one of the settings", action="catalogue_replaced", source=str(source), former=done.former
        )
    if done.state is SourceState.UNUSED:
        await _update_alerts(store, UNUSED_ALERT, str(source), now)
    else:
        await _update_alerts(store, None, "", now)


def _describe(error: CatalogueError) -> str:
    """The first problem, and how many there are; a catalogue names no patient."""
    count, first = len(error.problems), str(error.problems[0])[:_MAX_DETAIL]
    return first if count == 1 else f"{count} problems, the first: {first}"


async def _update_alerts(store: Store, found: AlertKey | None, detail: str, now: datetime) -> None:
    """Open the alert of what was found, and close the other ones."""
    known = await store.run_read_only(lambda uow: uow.alerts.open_among([INVALID_ALERT, UNUSED_ALERT]))
    if found is None and not known:
        return

    def work(uow: UnitOfWork) -> None:
        for key in (INVALID_ALERT, UNUSED_ALERT):
            if key == found:
                open_alert(uow, Alert(condition=key.condition, detail=detail, since=now, opened_at=now))
            else:
                close_alert(uow, key, now)

    await store.transact(work)

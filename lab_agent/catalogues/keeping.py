"""Putting a catalogue in force: checked whole, then replaced in one transaction, and every process told by a stamp.

A folder (or workbook) that the settings name is taken over when it has changed since it was last taken from there. So a small
installation keeps its tables in a folder and needs no command; and an import by command is not undone by the next start.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from lab_agent.catalogue.assemble import assemble
from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogue.load import read, version
from lab_agent.catalogue.sheets import Table
from lab_agent.catalogues.packed import pack, unpack
from lab_agent.catalogues.reach import remember_lifetimes
from lab_agent.domain.offer import OFFER_STAMP, CatalogueVersion
from lab_agent.errors import CatalogueError, Problem
from lab_agent.ports.store import Store, UnitOfWork

UNREADABLE = "catalogue.unreadable"
"""Name of the alert that the version in force cannot be read; putting a catalogue in force closes it."""
SERVED_INSTEAD = "catalogue.served_instead"
"""Note of the older version that the API serves since when, while the one in force cannot be read; empty if it does not."""
EVER = datetime(1970, 1, 1, tzinfo=UTC)
"""Before every catalogue."""
_SOURCE = "catalogue.source:"
_MEND = "mend its rights or its cells, or write it anew from the template"


def touch(uow: UnitOfWork) -> None:
    """Tell every process that something has changed; call it in the unit of work that changes it."""
    uow.book.note(OFFER_STAMP, uuid.uuid4().hex)


async def put_in_force(
    store: Store, tables: Mapping[str, Table], *, origin: str, by: str | None, now: datetime, over: Path | None = None
) -> bool:
    """Replace the catalogue. False if it is in force already. Raises `CatalogueError`, and then the old one stays.

    `over` is the folder (or workbook) of the settings: as it stands now, it counts as taken, so that no start undoes this.
    """
    made, catalogue = await asyncio.to_thread(_made, tables, origin, by, now)
    passed = None if over is None else await asyncio.to_thread(_digest, over)

    def work(uow: UnitOfWork) -> bool:
        if over is not None and passed is not None:
            uow.book.note(_note_of(over), passed)
        return _put(uow, made, catalogue)

    return await store.run(work)


async def take_from(store: Store, source: Path, *, now: datetime) -> bool:
    """Take the catalogue of a folder or workbook over, if it has changed since it was last taken from there.

    Also where it has not, if it is the version in force and that cannot be read: then it is written anew. Another version is
    left alone then, since an import by command is not undone by what was there before it.
    Whether it was put in force. Raises `CatalogueError`, and then the old one stays.
    """
    tables = await asyncio.to_thread(_read, source)
    key, digest = _note_of(source), version(tables)
    taken, newest = await store.run(lambda uow: (uow.book.noted(key) == digest, uow.catalogues.newest()))
    heals = newest is not None and newest.version == digest and not await asyncio.to_thread(_readable, newest)
    if taken and not heals:
        return False
    made, catalogue = await asyncio.to_thread(_made_of, source, tables, now)

    def work(uow: UnitOfWork) -> bool:
        if uow.book.noted(key) == digest and not heals:  # another process was quicker
            return False
        uow.book.note(key, digest)
        return _put(uow, made, catalogue)

    return await store.run(work)


async def tables_in_force(store: Store) -> dict[str, Table] | None:
    """The tables of the catalogue in force; None if none was ever imported."""
    newest = await store.run(lambda uow: uow.catalogues.newest())
    return None if newest is None else unpack(newest.content)


async def catalogue_in_force(store: Store) -> Catalogue | None:
    """The catalogue in force; None if none was ever imported. Raises `CatalogueError` as `catalogue_of` does."""
    newest = await store.run(lambda uow: uow.catalogues.newest())
    return None if newest is None else await asyncio.to_thread(catalogue_of, newest)


def catalogue_of(kept: CatalogueVersion) -> Catalogue:
    """Make the catalogue of a kept version. Raises `CatalogueError` if it is damaged, or this program reads it another way."""
    tables = unpack(kept.content)
    with _whatever("store", "holds a catalogue that cannot be read", "import it again: lab-agent catalogue import SOURCE"):
        return assemble(tables, kept.version)


def _made(tables: Mapping[str, Table], origin: str, by: str | None, now: datetime) -> tuple[CatalogueVersion, Catalogue]:
    digest = version(tables)
    catalogue = assemble(tables, digest)
    return CatalogueVersion(version=digest, since=now, content=pack(tables), origin=origin, by=by), catalogue


def _digest(source: Path) -> str | None:
    try:
        return version(_read(source))
    except CatalogueError:
        return None  # there is none, or it cannot be read: nothing could be taken from it


def _read(source: Path) -> dict[str, Table]:
    with _whatever(str(source), "cannot be read", _MEND):
        return read(source)


def _made_of(source: Path, tables: Mapping[str, Table], now: datetime) -> tuple[CatalogueVersion, Catalogue]:
    with _whatever(str(source), "cannot be made a catalogue", _MEND):
        return _made(tables, str(source), None, now)


@contextmanager
def _whatever(where: str, what: str, mend: str) -> Iterator[None]:
    """Say whatever goes wrong in here of the catalogue: a fault of ours must not keep every program from starting."""
    try:
        yield
    except CatalogueError:
        raise
    except Exception as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else type(exc).__name__
        raise CatalogueError((Problem(where, f"{what} ({why})", mend),)) from exc


def _readable(kept: CatalogueVersion) -> bool:
    try:
        catalogue_of(kept)
    except CatalogueError:
        return False
    return True


def _note_of(source: Path) -> str:
    return f"{_SOURCE}{source.resolve()}"


def _put(uow: UnitOfWork, made: CatalogueVersion, catalogue: Catalogue) -> bool:
    told = _tell_history(uow)
    added = uow.catalogues.add(made) or told
    uow.book.close_alert(UNREADABLE, now=made.since)
    if added:
        remember_lifetimes(uow, catalogue)
        touch(uow)
    uow.commit()
    return added


def _tell_history(uow: UnitOfWork) -> bool:
    """Where an older version was served in the meantime, it was in force: no order shall be refused for what it offered."""
    since, _, version = (uow.book.noted(SERVED_INSTEAD) or "").partition(" ")
    if not version:
        return False
    uow.book.note(SERVED_INSTEAD, "")
    older = next((each for each in uow.catalogues.in_force_since(EVER) if each.version == version), None)
    return older is not None and uow.catalogues.add(replace(older, since=datetime.fromisoformat(since)))

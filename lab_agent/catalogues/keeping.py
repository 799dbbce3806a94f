"""Putting a catalogue in force: checked whole, then replaced in one transaction, and every process told by a stamp.

A folder (or workbook) that the settings name is taken over when it has changed since it was last taken from there. So a small
installation keeps its tables in a folder and needs no command; and an import by command is not undone by the next start.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from lab_agent.catalogue.assemble import assemble
from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogue.load import read, version
from lab_agent.catalogue.sheets import Table
from lab_agent.catalogues.packed import pack, unpack
from lab_agent.catalogues.reach import remember_lifetimes
from lab_agent.domain.offer import OFFER_STAMP, CatalogueVersion
from lab_agent.errors import CatalogueError
from lab_agent.ports.store import Store, UnitOfWork

_SOURCE = "catalogue.source:"


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

    Whether it was put in force. Raises `CatalogueError`, and then the old one stays.
    """
    tables = await asyncio.to_thread(read, source)
    key, digest = _note_of(source), version(tables)
    if await store.run(lambda uow: uow.book.noted(key)) == digest:
        return False
    made, catalogue = await asyncio.to_thread(_made, tables, str(source), None, now)

    def work(uow: UnitOfWork) -> bool:
        if uow.book.noted(key) == digest:  # another process was quicker
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
    """Make the catalogue of a kept version. Raises `CatalogueError` if this program reads its tables another way."""
    return assemble(unpack(kept.content), kept.version)


def _made(tables: Mapping[str, Table], origin: str, by: str | None, now: datetime) -> tuple[CatalogueVersion, Catalogue]:
    digest = version(tables)
    catalogue = assemble(tables, digest)
    return CatalogueVersion(version=digest, since=now, content=pack(tables), origin=origin, by=by), catalogue


def _digest(source: Path) -> str | None:
    try:
        return version(read(source))
    except CatalogueError:
        return None  # there is none, or it cannot be read: nothing could be taken from it


def _note_of(source: Path) -> str:
    return f"{_SOURCE}{source.resolve()}"


def _put(uow: UnitOfWork, made: CatalogueVersion, catalogue: Catalogue) -> bool:
    added = uow.catalogues.add(made)
    if added:
        remember_lifetimes(uow, catalogue)
        touch(uow)
    uow.commit()
    return added

"""Reading through what may name a patient, in portions: all of it is encrypted, so it is found by decrypting it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, func, select

from lab_agent.results.refused_message_repository import refused_contents, refused_messages
from lab_agent.shared.errors import CryptoError
from lab_agent.store.crypto import Cipher
from lab_agent.store.tables import label_uses, lines, orders, reports, work_orders
from lab_agent.store.unit_of_work import Store
from lab_agent.store.vault_tables import identities, reported_patients

_PORTION = 200


@dataclass(frozen=True, slots=True)
class Sealed:
    """One value: its key, its content (None: no key decrypts it), and the adapter of a refused message."""

    key: str
    content: bytes | None
    source: str | None = None


async def count_sealed(store: Store) -> int:
    """How many values there are to read."""

    def count(connection: Connection) -> int:
        tables = (identities, reported_patients, refused_contents)
        return sum(connection.scalar(select(func.count()).select_from(table)) or 0 for table in tables)

    return await store.read(count)


def read_identities(store: Store, cipher: Cipher) -> AsyncIterator[list[Sealed]]:
    """The identification of each order (`pack_identity`), by the order's key."""
    return _read(store, cipher, identities.c.order_key)


def read_reported_patients(store: Store, cipher: Cipher) -> AsyncIterator[list[Sealed]]:
    """Whose each result is, as its laboratory system says, by the result's key."""
    return _read(store, cipher, reported_patients.c.report)


def read_refused_contents(store: Store, cipher: Cipher) -> AsyncIterator[list[Sealed]]:
    """The refused messages that are kept, with the ids that their adapters gave them."""
    return _read(store, cipher, refused_contents.c.refused_key, refused_messages.c.source)


async def _read(store: Store, cipher: Cipher, key: Column[Any], source: Column[Any] | None = None) -> AsyncIterator[list[Sealed]]:
    after = ""
    while portion := await store.read(lambda connection, after=after: _portion(connection, cipher, key, source, after)):  # type: ignore[misc]
        yield portion
        after = portion[-1].key


def _portion(connection: Connection, cipher: Cipher, key: Column[Any], source: Column[Any] | None, after: str) -> list[Sealed]:
    query = select(key, key.table.c.ciphertext).where(key > after).order_by(key).limit(_PORTION)
    rows = connection.execute(query).all()
    sources: dict[str, str] = {}
    if source is not None:
        named = select(source.table.c.key, source).where(source.table.c.key.in_([row[0] for row in rows]))
        sources = {row[0]: row[1] for row in connection.execute(named)}
    return [Sealed(row[0], _decrypt(cipher, row[1]), sources.get(row[0])) for row in rows]


def _decrypt(cipher: Cipher, ciphertext: bytes) -> bytes | None:
    try:
        return cipher.decrypt(ciphertext)
    except CryptoError:
        return None


def find_same_patient(connection: Connection, keys: list[str]) -> set[str]:
    """These orders, and all that refer to the same Patient of the service: the identification of older ones is purged already."""
    mine = select(orders.c.patient_reference).where(orders.c.key.in_(keys), orders.c.patient_reference.is_not(None))
    same = select(orders.c.key).where(orders.c.patient_reference.in_(mine), orders.c.patient_reference != "")
    return {*keys, *connection.scalars(same)}


def find_names(connection: Connection, keys: list[str]) -> list[str | None]:
    """The keys and numbers by which messages name these orders: keys, accession numbers, barcodes."""
    found: list[str | None] = [*keys]
    found += connection.scalars(select(lines.c.key).where(lines.c.order_key.in_(keys)))
    found += connection.scalars(select(lines.c.accession).where(lines.c.order_key.in_(keys)))
    found += connection.scalars(select(work_orders.c.accession).where(work_orders.c.order_key.in_(keys)))
    found += connection.scalars(select(label_uses.c.barcode).where(label_uses.c.order_key.in_(keys)))
    return found


def find_unassigned(connection: Connection, keys: list[str]) -> list[str]:
    """Those of these results that belong to no order."""
    return list(connection.scalars(select(reports.c.key).where(reports.c.key.in_(keys), reports.c.order_key.is_(None))))

"""Key rotation: what an older key encrypted is encrypted with the newest one, in portions, so that the workers go on meanwhile.

What the newest key encrypted already is left alone, so a rotation that was interrupted continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Column, ColumnElement, Connection, Table, func, select, update

from lab_agent.results.refused_message_repository import refused_contents
from lab_agent.shared.errors import CryptoError
from lab_agent.store.audit import rotate_audit_key
from lab_agent.store.audit_tables import audit_notes
from lab_agent.store.crypto import Cipher
from lab_agent.store.progress import Tell, tell_nobody
from lab_agent.store.tables import oauth_tokens
from lab_agent.store.unit_of_work import Store
from lab_agent.store.vault import rotate_index_key, store_key_check
from lab_agent.store.vault_tables import documents, identities, reported_patients, service_messages

_ENCRYPTED_COLUMNS = (
    (identities, identities.c.order_key, "ciphertext"),
    (reported_patients, reported_patients.c.report, "ciphertext"),
    (service_messages, service_messages.c.job_id, "ciphertext"),
    (documents, documents.c.id, "ciphertext"),
    (refused_contents, refused_contents.c.refused_key, "ciphertext"),
    (audit_notes, audit_notes.c.number, "ciphertext"),
    (oauth_tokens, oauth_tokens.c.generation, "access_token"),
    (oauth_tokens, oauth_tokens.c.generation, "refresh_token"),
)
_BATCH_SIZE = 20
"""Values of one transaction: on SQLite nobody else writes meanwhile, and a document may have many megabytes."""


@dataclass(frozen=True, slots=True)
class KeyRotation:
    """What a rotation did, in numbers of values.

    `added_meanwhile` of the `reencrypted` were written with an older key while it ran: some process does not have the newest
    key as its first yet. `unreadable` ones are damaged, or of a key that is not set; they stay as they are.
    """

    reencrypted: int
    added_meanwhile: int
    unreadable: int


async def rotate_keys(store: Store, tell: Tell = tell_nobody) -> KeyRotation:
    """Encrypt everything with the newest key of the store's cipher; the only one needed if nothing was added meanwhile."""
    values = 0 if tell is tell_nobody else await store.write(_count_values)
    first, unreadable = await _rotate_all(store, lambda done: tell(min(done, values), 2 * values))
    first += await store.write(rotate_audit_key)
    first += await store.write(rotate_index_key)
    second, _ = await _rotate_all(store, lambda done: tell(values + min(done, values), 2 * values))
    if not second:
        await store.write(store_key_check)
    return KeyRotation(reencrypted=first + second, added_meanwhile=second, unreadable=unreadable)


async def count_older(store: Store, cipher: Cipher) -> int:
    """Count the values that the newest key did not encrypt: as long as there is one, the older keys are needed."""
    older = 0
    for table, key, name in _ENCRYPTED_COLUMNS:
        after: object = None
        while rows := await store.read(partial(_read_batch, table, key, name, after)):
            after = rows[-1][0]
            older += sum(not cipher.is_current(value) for _, value in rows)
    return older


def _read_batch(
    table: Table, key: Column[object], name: str, after: object, connection: Connection
) -> list[tuple[object, bytes]]:
    some = select(key, table.c[name]).where(table.c[name].is_not(None)).order_by(key).limit(_BATCH_SIZE)
    return [(row[0], row[1]) for row in connection.execute(some if after is None else some.where(key > after))]


def _count_values(connection: Connection, _: Cipher) -> int:
    counts = (select(func.count()).where(table.c[name].is_not(None)) for table, _, name in _ENCRYPTED_COLUMNS)
    return sum(connection.scalar(each) or 0 for each in counts)


async def _rotate_all(store: Store, tell_done: Callable[[int], object]) -> tuple[int, int]:
    """Go through every encrypted value once; the numbers of those encrypted anew and of unreadable ones."""
    reencrypted = unreadable = done = 0
    for table, key, name in _ENCRYPTED_COLUMNS:
        after: object = None
        while portion := await _rotate_batch(store, table, key, name, after):
            after = portion[-1][0]
            done += len(portion)
            tell_done(done)
            reencrypted += sum(outcome is True for _, outcome in portion)
            unreadable += sum(outcome is None for _, outcome in portion)
    return reencrypted, unreadable


async def _rotate_batch(
    store: Store, table: Table, key: Column[object], name: str, after: object
) -> list[tuple[object, bool | None]]:
    """The keys of the next rows, each with whether its value was encrypted anew (None: it cannot be decrypted)."""

    def work(connection: Connection, cipher: Cipher) -> list[tuple[object, bool | None]]:
        some = select(key).where(table.c[name].is_not(None)).order_by(key).limit(_BATCH_SIZE).with_for_update()
        keys = connection.scalars(some if after is None else some.where(key > after)).all()
        return [(each, _rotate_value(connection, cipher, table, key == each, name)) for each in keys]

    return await store.write(work)


def _rotate_value(connection: Connection, cipher: Cipher, table: Table, row: ColumnElement[bool], name: str) -> bool | None:
    ciphertext = connection.scalar(select(table.c[name]).where(row))
    if ciphertext is None or cipher.is_current(ciphertext):
        return False
    try:
        fresh = cipher.reencrypt(ciphertext)
    except CryptoError:
        return None
    connection.execute(update(table).where(row).values({name: fresh}))
    return True

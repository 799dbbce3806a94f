"""Retiring an old key: everything sealed is sealed again with the first key, a portion at a time, so that work goes on beside it.

With the new key set before the old one, run it; afterwards the old key can be taken away. It may be stopped and run again.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, Table, select, update

from lab_agent.crypto import Cipher
from lab_agent.store.tables import documents, identities, oauth_tokens
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.store.vault import store_key_check

_ENCRYPTED_COLUMNS = (
    (identities, identities.c.order_key, "ciphertext"),
    (documents, documents.c.id, "ciphertext"),
    (oauth_tokens, oauth_tokens.c.generation, "access_token"),
    (oauth_tokens, oauth_tokens.c.generation, "refresh_token"),
)
_BATCH_SIZE = 50


async def rotate_keys(store: SqlStore) -> int:
    """Seal everything with the first key of the store's cipher; the number of things sealed. Raises `CryptoError`."""
    sealed = 0
    for table, key, name in _ENCRYPTED_COLUMNS:
        after: object = None
        while portion := await _rotate_batch(store, table, key, name, after):
            sealed += len(portion)
            after = portion[-1]
    await store.write(store_key_check)
    return sealed


async def _rotate_batch(store: SqlStore, table: Table, key: Column[object], name: str, after: object) -> list[object]:
    column = table.c[name]

    def work(connection: Connection, cipher: Cipher) -> list[object]:
        some = select(key, column).where(column.is_not(None)).order_by(key).limit(_BATCH_SIZE).with_for_update()
        rows = connection.execute(some if after is None else some.where(key > after)).all()
        for row in rows:
            connection.execute(update(table).where(key == row[0]).values({name: cipher.reencrypt(row[1])}))
        return [row[0] for row in rows]

    return await store.write(work)

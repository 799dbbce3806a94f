"""Retiring an old key: everything sealed is sealed again with the first key, a portion at a time, so that work goes on beside it.

With the new key set before the old one, run it; afterwards the old key can be taken away. It may be stopped and run again.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, Table, select, update

from lab_agent.crypto import Cipher
from lab_agent.store.tables import documents, identities, tokens
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.store.vault import renew_proof

_SEALED = (
    (identities, identities.c.order_key, "sealed"),
    (documents, documents.c.id, "sealed"),
    (tokens, tokens.c.generation, "access"),
    (tokens, tokens.c.generation, "refresh"),
)
_AT_ONCE = 50


async def reseal(store: SqlStore) -> int:
    """Seal everything with the first key of the store's cipher; the number of things sealed. Raises `CryptoError`."""
    sealed = 0
    for table, key, name in _SEALED:
        after: object = None
        while portion := await _portion(store, table, key, name, after):
            sealed += len(portion)
            after = portion[-1]
    await store.write(renew_proof)
    return sealed


async def _portion(store: SqlStore, table: Table, key: Column[object], name: str, after: object) -> list[object]:
    column = table.c[name]

    def work(connection: Connection, cipher: Cipher) -> list[object]:
        some = select(key, column).where(column.is_not(None)).order_by(key).limit(_AT_ONCE).with_for_update()
        rows = connection.execute(some if after is None else some.where(key > after)).all()
        for row in rows:
            connection.execute(update(table).where(key == row[0]).values({name: cipher.renew(row[1])}))
        return [row[0] for row in rows]

    return await store.write(work)

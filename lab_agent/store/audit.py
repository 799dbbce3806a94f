"""Writing the audit: records are chained at the commit of what they tell of, behind a lock that all writers take last.

The key of the chain is random, and lies in the head, encrypted with a cipher derived from the store's: it stays the same when the
store's keys are rotated, and who has the database alone neither reads it nor replaces it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from lab_agent.shared.errors import CryptoError, StoreError
from lab_agent.store.audit_records import (
    AuditAction,
    AuditChain,
    AuditChannel,
    AuditEntry,
    AuditHead,
    AuditOrigin,
    AuditRecord,
    pack_details,
    short_name,
)
from lab_agent.store.audit_tables import audit_head, audit_notes, audit_records
from lab_agent.store.column_types import indexable_text, storable_text
from lab_agent.store.crypto import Cipher
from lab_agent.store.row_mapping import chunked, insert_new, to_values
from lab_agent.store.session import Session

_PURPOSE = "audit chain"
_HEAD_ID = 1


@dataclass(frozen=True, slots=True)
class OpenedHead:
    """The head with the chain that its key makes; `is_sound` says whether its seal fits."""

    head: AuditHead
    chain: AuditChain
    is_sound: bool


def load_head(connection: Connection, cipher: Cipher, *, lock: bool = False) -> OpenedHead | None:
    """Read the head; None where nothing was ever recorded. Raises `CryptoError` if its key cannot be read."""
    query = select(audit_head).where(audit_head.c.id == _HEAD_ID)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else _open_head(row, cipher)


def _open_head(row: Row[Any], cipher: Cipher) -> OpenedHead:
    chain = AuditChain(cipher.derive(_PURPOSE).decrypt(row.sealed_key))
    head = AuditHead(number=row.number, hash=row.hash, anchor_number=row.anchor_number, anchor_hash=row.anchor_hash)
    return OpenedHead(head, chain, secrets.compare_digest(chain.seal(head).encode(), row.seal.encode()))


def rotate_audit_key(connection: Connection, cipher: Cipher) -> bool:
    """Encrypt the chain's key with the newest of the store's keys; whether an older one had encrypted it."""
    sealed = connection.scalar(select(audit_head.c.sealed_key).where(audit_head.c.id == _HEAD_ID).with_for_update())
    derived = cipher.derive(_PURPOSE)
    if sealed is None or derived.is_current(sealed):
        return False
    connection.execute(update(audit_head).where(audit_head.c.id == _HEAD_ID).values(sealed_key=derived.reencrypt(sealed)))
    return True


class AuditRepository:
    """The audit of one unit of work: what is added is chained by `flush`, which its commit calls last."""

    def __init__(self, session: Session, cipher: Cipher, origin: AuditOrigin) -> None:
        self._session, self._cipher, self._origin = session, cipher, origin
        self._added: list[AuditEntry] = []
        self.reached: AuditHead | None = None
        """Where the chain ends by what was written here; None if nothing was."""

    def add(self, entry: AuditEntry) -> None:
        """Add a record at the commit, behind all others that are committed by then."""
        self._added.append(entry)

    def digest_settings(self, values: Mapping[str, str]) -> Mapping[str, str]:
        """Give digests of settings' values, by which changes show, and the values do not."""
        chain = self._lock_head(self._session.connection()).chain
        return {name: chain.digest_setting(value) for name, value in values.items()}

    def purge(self, *, before: datetime, limit: int = 500) -> int:
        """Cut off the records made before then, oldest first, and anchor the rest; how many. The newest record always stays."""
        connection = self._session.connection()
        opened = self._lock_head(connection)
        if not opened.is_sound:  # what is left is evidence
            return 0
        last = self._find_last(connection, opened.head, before, limit)
        if last is None:
            return 0
        last_number, last_hash = last
        head = AuditHead(number=opened.head.number, hash=opened.head.hash, anchor_number=last_number, anchor_hash=last_hash)
        self._save_head(connection, opened.chain, head)
        connection.execute(delete(audit_notes).where(audit_notes.c.number <= last_number))
        return connection.execute(delete(audit_records).where(audit_records.c.number <= last_number)).rowcount

    def flush(self) -> None:
        """Chain and write what was added. Where the head was altered, a record says so first: nothing hides behind it."""
        if not self._added:
            return
        connection = self._session.connection()
        opened = self._lock_head(connection)
        entries, self._added = self._added, []
        if not opened.is_sound:
            details = {"head_number": opened.head.number}
            entries.insert(0, AuditEntry(at=entries[0].at, action=AuditAction.AUDIT_BROKEN, details=details))
        head = self._write(connection, opened, entries)
        self._save_head(connection, opened.chain, head)
        self.reached = head

    def _lock_head(self, connection: Connection) -> OpenedHead:
        """The head, which nobody else reads for writing until this unit of work has ended."""
        try:
            opened = load_head(connection, self._cipher, lock=True)
        except CryptoError:
            return self._replace_key(connection)
        if opened is None:
            self._make_head(connection)
            opened = load_head(connection, self._cipher, lock=True)
        if opened is None:
            raise StoreError("The head of the audit could not be written; nothing was written.")
        return opened

    def _replace_key(self, connection: Connection) -> OpenedHead:
        """Go on with a new key where the old one was altered: what was recorded before cannot be verified, and that shows."""
        key = secrets.token_bytes(32)
        sealed = self._cipher.derive(_PURPOSE).encrypt(key)
        connection.execute(update(audit_head).where(audit_head.c.id == _HEAD_ID).values(sealed_key=sealed))
        opened = load_head(connection, self._cipher)
        return OpenedHead(AuditHead() if opened is None else opened.head, AuditChain(key), is_sound=False)

    def _make_head(self, connection: Connection) -> None:
        key, head = secrets.token_bytes(32), AuditHead()
        values = {"id": _HEAD_ID, "seal": AuditChain(key).seal(head), "sealed_key": self._cipher.derive(_PURPOSE).encrypt(key)}
        insert_new(connection, audit_head, {**to_values(head), **values})

    def _write(self, connection: Connection, opened: OpenedHead, entries: Sequence[AuditEntry]) -> AuditHead:
        number, last, rows, notes = opened.head.number, opened.head.hash, [], []
        for entry in entries:
            number += 1
            row = to_values(self._to_record(entry, number, last, opened.chain))
            last = str(row["hash"])
            rows.append(row)
            if entry.note is not None:
                sealed = self._cipher.encrypt(entry.note.encode("utf-8", "replace"))
                notes.append({"number": number, "order_key": entry.order, "ciphertext": sealed})
        connection.execute(insert(audit_records), rows)
        if notes:
            connection.execute(insert(audit_notes), notes)
        anchor = opened.head
        return AuditHead(number=number, hash=last, anchor_number=anchor.anchor_number, anchor_hash=anchor.anchor_hash)

    def _to_record(self, entry: AuditEntry, number: int, previous: str, chain: AuditChain) -> AuditRecord:
        channel = self._origin.channel
        if channel is AuditChannel.AGENT and (entry.by is not None or entry.address is not None):
            channel = AuditChannel.PAGE
        values = {
            "number": number,
            "at": entry.at,
            "action": entry.action.value,
            "channel": channel.value,
            "actor": _name(entry.by or ("" if channel is AuditChannel.PAGE else self._origin.person or self._origin.user)),
            "origin": _name(entry.address or ("" if channel is AuditChannel.PAGE else self._origin.user)),
            "subject": _name(entry.subject),
            "details": storable_text(pack_details(entry.details)),
            "note_digest": None if entry.note is None else chain.digest_note(number, _encodable(entry.note)),
        }
        record = AuditRecord(**values, hash="")  # type: ignore[arg-type]
        return AuditRecord(**{**values, "hash": chain.link(previous, record)})  # type: ignore[arg-type]

    def _save_head(self, connection: Connection, chain: AuditChain, head: AuditHead) -> None:
        values = {**to_values(head), "seal": chain.seal(head)}
        connection.execute(update(audit_head).where(audit_head.c.id == _HEAD_ID).values(**values))

    def _find_last(self, connection: Connection, head: AuditHead, before: datetime, limit: int) -> tuple[int, str] | None:
        """The last of the oldest records that may go: clocks go back, so it ends before the first that is too new."""
        too_new = select(func.min(audit_records.c.number)).where(audit_records.c.at >= before)
        end = connection.scalar(too_new)
        last = min(head.number - 1, head.anchor_number + limit, head.number if end is None else end - 1)
        found = select(audit_records.c.number, audit_records.c.hash).where(audit_records.c.number == last)
        row = None if last <= head.anchor_number else connection.execute(found).one_or_none()
        return None if row is None else (row.number, row.hash)


def read_notes(connection: Connection, cipher: Cipher, numbers: Sequence[int]) -> Mapping[int, str]:
    """What people wrote about these records, as far as it was not erased. Raises `CryptoError`."""
    found: dict[int, str] = {}
    for batch in chunked(numbers):
        rows = connection.execute(select(audit_notes.c.number, audit_notes.c.ciphertext).where(audit_notes.c.number.in_(batch)))
        found |= {row.number: cipher.decrypt(row.ciphertext).decode() for row in rows}
    return found


def count_records(connection: Connection, action: AuditAction | None = None) -> int:
    """The number of records, of one action if that is given."""
    which = [] if action is None else [audit_records.c.action == action.value]
    return connection.scalar(select(func.count()).select_from(audit_records).where(*which)) or 0


def _name(text: str) -> str:
    return indexable_text(short_name(text))


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()

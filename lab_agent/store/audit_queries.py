"""The audit as pages read it: from a number downwards, narrowed, and each record compared with the one before it.

However many records there are, a page costs the same. A subject is found by its index, a time by that of the times; an actor or
an action is looked for among the newest `MAX_LOOKED_AT` of what is left.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, func, select

from lab_agent.shared.errors import CryptoError
from lab_agent.store.audit import OpenedHead, load_head
from lab_agent.store.audit_records import AuditAction, AuditRecord
from lab_agent.store.audit_tables import audit_records
from lab_agent.store.audit_verification import read_notes_safely
from lab_agent.store.column_types import indexable_text
from lab_agent.store.crypto import Cipher
from lab_agent.store.query_pages import fetch_records
from lab_agent.store.row_mapping import chunked, unindexed
from lab_agent.store.unit_of_work import Store

MAX_LOOKED_AT = 20_000
"""How many records a page looks at for those that it wants, where no index finds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCriteria:
    """What a list of records is narrowed to; everything that is given must be so, and be the whole name or key.

    `since` and `until` are times of the records, the second one excluded.
    """

    actor: str = ""
    action: AuditAction | None = None
    subject: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditList:
    """A page of records, newest first."""

    records: tuple[AuditRecord, ...]
    older_before: int | None = None
    """Older ones have numbers below this one; None where there are none."""
    is_cut: bool = False
    """Whether `MAX_LOOKED_AT` records were looked at, and older ones that may be wanted were not."""
    broken: frozenset[int] = frozenset()
    """Numbers of records that do not fit the one before them: one of the two was altered, or the one before is missing."""
    is_end_whole: bool = True
    """Whether the audit ends where its sealed head says; without a head that can be read, nothing is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRecord:
    """A record, and whether it fits the one before it."""

    record: AuditRecord
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditNote:
    """What a person wrote about a record: no `text` where it was erased, or (then not `is_whole`) cannot be decrypted."""

    text: str | None
    is_whole: bool


_AROUND = 1_000
"""Records beside a moment of which the furthest number is taken: their times are not quite in the order of their numbers."""
_columns = audit_records.c


class AuditQueries:
    """Reads of the audit. Each call may raise `StoreUnreachableError` and `SchemaMismatchError`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def audit_list(self, criteria: AuditCriteria, *, before: int | None = None, limit: int = 50) -> AuditList:
        """Records, newest first: those with numbers below `before` alone. A page costs the same however many there are."""
        cipher = self._store.cipher
        return await self._store.read(lambda connection: _load_list(connection, cipher, criteria, before, limit))

    async def audit_record(self, number: int) -> CheckedRecord | None:
        """One record; None if there is none of that number (any more)."""
        cipher = self._store.cipher
        return await self._store.read(lambda connection: _load_record(connection, cipher, number))

    async def audit_note(self, number: int) -> AuditNote | None:
        """The note of a record; None where it has none. It may name a patient: record the look first."""
        cipher = self._store.cipher
        return await self._store.read(lambda connection: _load_note(connection, cipher, number))


def _load_list(connection: Connection, cipher: Cipher, criteria: AuditCriteria, before: int | None, limit: int) -> AuditList:
    opened = _open_head(connection, cipher)
    is_end_whole = _is_end_whole(connection, opened)
    low, high = _find_span(connection, criteria, before)
    if low >= high:
        return AuditList(records=(), is_end_whole=is_end_whole)
    floor = low if criteria.subject else max(low, high - MAX_LOOKED_AT)
    wanted = select(audit_records).where(_columns.number >= floor, _columns.number < high, *_conditions(criteria))
    found = fetch_records(connection, AuditRecord, wanted.order_by(_columns.number.desc()).limit(limit + 1))
    page, has_more = found[:limit], len(found) > limit
    is_cut = not has_more and floor > low
    return AuditList(
        records=page,
        older_before=page[-1].number if has_more else floor if is_cut else None,
        is_cut=is_cut,
        broken=_find_broken(connection, opened, page),
        is_end_whole=is_end_whole,
    )


def _conditions(criteria: AuditCriteria) -> list[ColumnElement[bool]]:
    found = [_columns.subject == indexable_text(criteria.subject)] if criteria.subject else []
    found += [_columns.actor == criteria.actor] if criteria.actor else []
    found += [_columns.action == criteria.action.value] if criteria.action is not None else []
    found += [unindexed(_columns.at) >= criteria.since] if criteria.since is not None else []
    found += [unindexed(_columns.at) < criteria.until] if criteria.until is not None else []
    return found


def _find_span(connection: Connection, criteria: AuditCriteria, before: int | None) -> tuple[int, int]:
    """The numbers between which everything wanted is, the second one excluded."""
    low = connection.scalar(select(func.min(_columns.number)))
    newest = connection.scalar(select(func.max(_columns.number)))
    if low is None or newest is None:
        return 0, 0
    high = newest + 1 if before is None else min(before, newest + 1)
    if criteria.since is not None:
        low = max(low, _first_number(connection, criteria.since, high))
    if criteria.until is not None:
        high = min(high, _last_number(connection, criteria.until, low - 1) + 1)
    return low, high


def _first_number(connection: Connection, since: datetime, default: int) -> int:
    near = select(_columns.number).where(_columns.at >= since).order_by(_columns.at).limit(_AROUND).subquery()
    found = connection.scalar(select(func.min(near.c.number)))
    return default if found is None else int(found)


def _last_number(connection: Connection, until: datetime, default: int) -> int:
    near = select(_columns.number).where(_columns.at < until).order_by(_columns.at.desc()).limit(_AROUND).subquery()
    found = connection.scalar(select(func.max(near.c.number)))
    return default if found is None else int(found)


def _load_record(connection: Connection, cipher: Cipher, number: int) -> CheckedRecord | None:
    found = fetch_records(connection, AuditRecord, select(audit_records).where(_columns.number == number))
    if not found:
        return None
    opened = _open_head(connection, cipher)
    is_whole = opened is not None and opened.is_sound and not _find_broken(connection, opened, found)
    return CheckedRecord(record=found[0], is_whole=is_whole)


def _load_note(connection: Connection, cipher: Cipher, number: int) -> AuditNote | None:
    digest = connection.scalar(select(audit_records.c.note_digest).where(_columns.number == number))
    if digest is None:
        return None
    notes = read_notes_safely(connection, cipher, [number])
    if number not in notes:
        return AuditNote(text=None, is_whole=True)
    opened, text = _open_head(connection, cipher), notes[number]
    made = None if opened is None or text is None else opened.chain.digest_note(number, text)
    return AuditNote(text=text, is_whole=made is not None and hmac.compare_digest(made.encode(), digest.encode()))


def _open_head(connection: Connection, cipher: Cipher) -> OpenedHead | None:
    """The head; None where there is none, or its key cannot be read."""
    try:
        return load_head(connection, cipher)
    except CryptoError:
        return None


def _is_end_whole(connection: Connection, opened: OpenedHead | None) -> bool:
    """Whether the newest record is the one that the head names."""
    newest = connection.execute(select(_columns.number, _columns.hash).order_by(_columns.number.desc()).limit(1)).one_or_none()
    if opened is None:
        return newest is None
    named = (opened.head.number, opened.head.hash)
    return opened.is_sound and (named[0] == 0 if newest is None else tuple(newest) == named)


def _find_broken(connection: Connection, opened: OpenedHead | None, records: Sequence[AuditRecord]) -> frozenset[int]:
    """The numbers of those that do not fit the one before them; none where the chain's key cannot be read."""
    if opened is None:
        return frozenset()
    hashes = {opened.head.anchor_number: opened.head.anchor_hash}
    for batch in chunked([each.number - 1 for each in records]):
        before = select(_columns.number, _columns.hash).where(_columns.number.in_(batch))
        hashes |= {row.number: row.hash for row in connection.execute(before)}

    def fits(record: AuditRecord) -> bool:
        previous = hashes.get(record.number - 1)
        made = None if previous is None else opened.chain.link(previous, record)
        return made is not None and hmac.compare_digest(made.encode(), record.hash.encode())

    return frozenset(each.number for each in records if not fits(each))

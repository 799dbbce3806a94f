"""Reading the audit, and verifying it: whether a record was changed, is missing, or was cut off at the end."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, select

from lab_agent.shared.errors import CryptoError
from lab_agent.store.audit import OpenedHead, load_head, read_notes
from lab_agent.store.audit_mark import AuditMark
from lab_agent.store.audit_records import AuditAction, AuditChain, AuditHead, AuditRecord
from lab_agent.store.audit_tables import audit_records
from lab_agent.store.crypto import Cipher
from lab_agent.store.integrity import read_instance
from lab_agent.store.row_mapping import to_record

_BATCH_SIZE = 500


class AuditBreak(StrEnum):
    """What is wrong with the audit."""

    HEAD_MISSING = "head_missing"
    KEY_UNREADABLE = "key_unreadable"
    HEAD_ALTERED = "head_altered"
    RECORD_MISSING = "record_missing"
    RECORD_ALTERED = "record_altered"
    NOTE_ALTERED = "note_altered"
    NOTICED_BEFORE = "noticed_before"
    END_CUT_OFF = "end_cut_off"
    RECORD_ADDED = "record_added"
    BEHIND_MARK = "behind_mark"
    DIFFERS_FROM_MARK = "differs_from_mark"
    OTHER_DATABASE = "other_database"


BREAK_WORDS = {
    AuditBreak.HEAD_MISSING: "the head of the audit is missing, and records or a mark of it are there",
    AuditBreak.KEY_UNREADABLE: "the key of the audit was altered, or no encryption key of the settings reads it",
    AuditBreak.HEAD_ALTERED: "the head of the audit was altered",
    AuditBreak.RECORD_MISSING: "this record is missing",
    AuditBreak.RECORD_ALTERED: "this record, or the one before it, was altered",
    AuditBreak.NOTE_ALTERED: "the note of this record was altered",
    AuditBreak.NOTICED_BEFORE: "the head of the audit, or its key, had been altered: this record says when that was noticed",
    AuditBreak.END_CUT_OFF: "the records from this one to the end of the audit are missing",
    AuditBreak.RECORD_ADDED: "this record was added behind the end of the audit",
    AuditBreak.BEHIND_MARK: "the mark outside the database knows this record and later ones, and the audit ends before: they were"
    " cut off, or the database was restored in another way than by `lab-agent restore`",
    AuditBreak.DIFFERS_FROM_MARK: "this record is another one than the mark outside the database knows",
    AuditBreak.OTHER_DATABASE: "the mark outside the database belongs to another database",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerdict:
    """What a verification found: how many records are whole, and the first break, if there is one, at which record."""

    records: int
    first: int
    last: int
    notes: int = 0
    erased_notes: int = 0
    broken: AuditBreak | None = None
    at_record: int | None = None
    is_marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which records are wanted."""

    since: datetime | None = None
    until: datetime | None = None
    actor: str | None = None
    action: str | None = None
    subject: str | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Give it as conditions on the table."""
        columns = audit_records.c
        equal = {columns.actor: self.actor, columns.action: self.action, columns.subject: self.subject}
        found = [column == value for column, value in equal.items() if value is not None]
        found += [columns.at >= self.since] if self.since is not None else []
        found += [columns.at < self.until] if self.until is not None else []
        return found


def list_records(connection: Connection, wanted: AuditFilter, *, limit: int, offset: int = 0) -> tuple[AuditRecord, ...]:
    """The records, newest first."""
    query = select(audit_records).where(*wanted.conditions()).order_by(audit_records.c.number.desc()).offset(offset).limit(limit)
    return tuple(to_record(AuditRecord, row) for row in connection.execute(query).mappings())


def iterate_records(connection: Connection, wanted: AuditFilter = AuditFilter()) -> Iterator[AuditRecord]:
    """The records in their order, read in portions."""
    after = -1
    while True:
        query = select(audit_records).where(*wanted.conditions(), audit_records.c.number > after)
        rows = connection.execute(query.order_by(audit_records.c.number).limit(_BATCH_SIZE)).mappings().all()
        yield from (to_record(AuditRecord, row) for row in rows)
        if len(rows) < _BATCH_SIZE:
            return
        after = rows[-1]["number"]


def verify_audit(connection: Connection, cipher: Cipher, mark: AuditMark | None) -> AuditVerdict:
    """Read the whole audit, and compare it with its head and its mark."""
    try:
        opened = load_head(connection, cipher)
    except CryptoError:
        return AuditVerdict(records=0, first=0, last=0, broken=AuditBreak.KEY_UNREADABLE)
    if opened is None:
        is_lost = mark is not None or next(iterate_records(connection), None) is not None
        return AuditVerdict(records=0, first=0, last=0, broken=AuditBreak.HEAD_MISSING if is_lost else None)
    return _Verification(connection, cipher, opened, mark).run()


class _Verification:
    """One walk along the chain."""

    def __init__(self, connection: Connection, cipher: Cipher, opened: OpenedHead, mark: AuditMark | None) -> None:
        self._connection, self._cipher = connection, cipher
        self._head: AuditHead = opened.head
        self._chain: AuditChain = opened.chain
        self._is_sound = opened.is_sound
        self._mark = mark
        self._records = self._notes = self._erased = 0

    def run(self) -> AuditVerdict:
        """Walk until the first break, or the end."""
        broken = self._look_at_head() or self._walk() or self._compare_mark()
        return AuditVerdict(
            records=self._records,
            first=self._head.anchor_number + 1,
            last=self._head.number,
            notes=self._notes,
            erased_notes=self._erased,
            broken=None if broken is None else broken[0],
            at_record=None if broken is None else broken[1],
            is_marked=self._mark is not None,
        )

    def _look_at_head(self) -> tuple[AuditBreak, int | None] | None:
        if not self._is_sound:
            return AuditBreak.HEAD_ALTERED, None
        is_other = self._mark is not None and self._mark.instance != read_instance(self._connection)
        return (AuditBreak.OTHER_DATABASE, None) if is_other else None

    def _walk(self) -> tuple[AuditBreak, int] | None:
        number, previous = self._head.anchor_number, self._head.anchor_hash
        for portion in _portions(iterate_records(self._connection)):
            notes = read_notes_safely(self._connection, self._cipher, [each.number for each in portion if each.note_digest])
            for record in portion:
                number += 1
                if (broken := self._check(record, number, previous, notes)) is not None:
                    return broken
                previous = record.hash
                self._records += 1
        if number < self._head.number:
            return AuditBreak.END_CUT_OFF, number + 1
        return None if previous == self._head.hash else (AuditBreak.RECORD_ALTERED, number)

    def _check(
        self, record: AuditRecord, number: int, previous: str, notes: dict[int, str | None]
    ) -> tuple[AuditBreak, int] | None:
        if number > self._head.number or record.number < number:
            return AuditBreak.RECORD_ADDED, record.number
        if record.number > number:
            return AuditBreak.RECORD_MISSING, number
        if not hmac.compare_digest(self._chain.link(previous, record).encode(), record.hash.encode()):
            return AuditBreak.RECORD_ALTERED, number
        if self._mark is not None and self._mark.number == number and self._mark.hash != record.hash:
            return AuditBreak.DIFFERS_FROM_MARK, number
        if record.action == AuditAction.AUDIT_BROKEN:
            return AuditBreak.NOTICED_BEFORE, number
        return None if self._is_note_whole(record, notes) else (AuditBreak.NOTE_ALTERED, number)

    def _is_note_whole(self, record: AuditRecord, notes: dict[int, str | None]) -> bool:
        if record.note_digest is None:
            return True
        self._notes += 1
        if record.number not in notes:
            self._erased += 1
            return True
        note = notes[record.number]
        return note is not None and hmac.compare_digest(
            self._chain.digest_note(record.number, note).encode(), record.note_digest.encode()
        )

    def _compare_mark(self) -> tuple[AuditBreak, int | None] | None:
        is_behind = self._mark is not None and self._mark.number > self._head.number
        return (AuditBreak.BEHIND_MARK, self._head.number + 1) if is_behind else None


def read_notes_safely(connection: Connection, cipher: Cipher, numbers: list[int]) -> dict[int, str | None]:
    """What people wrote about these records; None for what cannot be decrypted, nothing for what was erased."""
    try:
        return dict(read_notes(connection, cipher, numbers))
    except CryptoError:
        found: dict[int, str | None] = {}
        for number in numbers:
            try:
                found |= read_notes(connection, cipher, [number])
            except CryptoError:
                found[number] = None
        return found


def head_mark(connection: Connection, cipher: Cipher) -> AuditMark:
    """The mark that fits the audit as it is now. Raises `CryptoError`."""
    opened = load_head(connection, cipher)
    head = AuditHead() if opened is None else opened.head
    return AuditMark(read_instance(connection), head.number, head.hash)


def _portions(records: Iterator[AuditRecord]) -> Iterator[list[AuditRecord]]:
    portion: list[AuditRecord] = []
    for record in records:
        portion.append(record)
        if len(portion) == _BATCH_SIZE:
            yield portion
            portion = []
    if portion:
        yield portion

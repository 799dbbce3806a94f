"""Refused messages: what is known of each in one table, and, encrypted, what may name a patient in another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Column, ColumnElement, Index, Table, delete, func, select
from sqlmodel import Field

from lab_agent.results.refused_records import RefusedContent, RefusedMessage, RefusedState
from lab_agent.shared.ids import RefusedKey
from lab_agent.store.column_types import EnumText, IndexableText, PlainText, UtcDateTime
from lab_agent.store.crypto import Cipher
from lab_agent.store.event_records import Event
from lab_agent.store.row_mapping import chunked, in_states, states_condition, to_record, to_values, upsert
from lab_agent.store.session import Session
from lab_agent.store.table_base import METADATA, TableRow, partial_index
from lab_agent.store.tables import events, reports


class RefusedMessageRow(TableRow, table=True):
    """A message that an adapter refused (`RefusedMessage`)."""

    __tablename__ = "refused_messages"
    __table_args__ = (
        Index("ix_refused_messages_source_first_seen_at", "source", "first_seen_at"),
        partial_index("ix_refused_messages_waiting", states_condition({RefusedState.WAITING}), "source", "first_seen_at", "key"),
        partial_index("ix_refused_messages_kept", "is_kept", "last_seen_at"),
    )

    key: str = Field(sa_type=PlainText, primary_key=True)
    source: str = Field(sa_type=IndexableText)
    state: RefusedState = Field(sa_column=Column(EnumText(RefusedState), nullable=False))
    reason: str = Field(sa_type=PlainText)
    count: int
    size: int | None = Field(sa_type=BigInteger)
    is_kept: bool
    first_seen_at: datetime = Field(sa_type=UtcDateTime)
    last_seen_at: datetime = Field(sa_type=UtcDateTime)
    changed_at: datetime = Field(sa_type=UtcDateTime)


class RefusedContentRow(TableRow, table=True):
    """The content of a refused message (`RefusedContent`), encrypted."""

    __tablename__ = "refused_contents"
    refused_key: str = Field(sa_type=PlainText, primary_key=True)
    ciphertext: bytes
    kept_at: datetime = Field(sa_type=UtcDateTime)


refused_messages: Table = METADATA.tables["refused_messages"]
refused_contents: Table = METADATA.tables["refused_contents"]

_WAITING = in_states(refused_messages.c.state, {RefusedState.WAITING})
_NO_RAW, _HAS_RAW = b"-", b"+"
"""First byte of a content: whether the adapter gave the bytes of the message, which follow its id and a NUL."""


class RefusedMessageRepository:
    """Refused messages, and their contents in the vault. Reading a content raises `CryptoError`."""

    def __init__(self, session: Session, cipher: Cipher) -> None:
        self._session = session
        self._cipher = cipher

    def get(self, key: RefusedKey) -> RefusedMessage | None:
        """Read one, and lock it until the unit of work ends; None if it is unknown."""
        found = self._fetch(select(refused_messages).where(refused_messages.c.key == key).with_for_update())
        return found[0] if found else None

    def save(self, message: RefusedMessage) -> None:
        """Write or replace one."""
        upsert(self._session, refused_messages, to_values(message), "key")

    def list(
        self, *, source: str | None = None, states: Collection[RefusedState] = (), offset: int = 0, limit: int
    ) -> tuple[tuple[RefusedMessage, ...], int]:
        """Those in `states` (all, if empty) of one adapter or of all, and how many there are in all.

        Newest first; those that wait alone, longest waiting first.
        """
        which = [in_states(refused_messages.c.state, states)] if states else []
        which += [refused_messages.c.source == source] if source is not None else []
        order: tuple[ColumnElement[Any], ...] = (refused_messages.c.last_seen_at.desc(), refused_messages.c.key)
        if set(states) == {RefusedState.WAITING}:
            order = (refused_messages.c.first_seen_at, refused_messages.c.key)
        listed = select(refused_messages).where(*which).order_by(*order).offset(offset).limit(limit)
        total = self._session.scalar(select(func.count()).select_from(refused_messages).where(*which)) or 0
        return self._fetch(listed), total

    def waiting_counts(self) -> Mapping[str, int]:
        """How many wait of each adapter; without those that have none."""
        counted = select(refused_messages.c.source, func.count()).where(_WAITING).group_by(refused_messages.c.source)
        rows: Iterable[Any] = self._session.execute(counted)
        return dict(map(tuple, rows))

    def added_since(self, source: str, since: datetime) -> tuple[int, int]:
        """How many messages of an adapter were new since then, and the bytes of those that are kept."""
        which = (refused_messages.c.source == source, refused_messages.c.first_seen_at >= since)
        number = self._session.scalar(select(func.count()).select_from(refused_messages).where(*which))
        kept = select(func.sum(refused_messages.c.size)).where(*which, refused_messages.c.is_kept)
        return number or 0, int(self._session.scalar(kept) or 0)

    def events(self, key: RefusedKey) -> tuple[Event, ...]:
        """The history of one, oldest first."""
        wanted = select(events).where(events.c.refused_message == key).order_by(events.c.at, events.c.number)
        return tuple(to_record(Event, row) for row in self._session.execute(wanted).mappings())

    def save_content(self, key: RefusedKey, content: RefusedContent, *, at: datetime) -> None:
        """Store or replace the content of one, encrypted."""
        named = content.message_id.replace("\0", "").encode("utf-8", "replace") + b"\0"
        whole = _NO_RAW + named if content.raw is None else _HAS_RAW + named + content.raw
        values = {"refused_key": key, "ciphertext": self._cipher.encrypt(whole), "kept_at": at}
        upsert(self._session, refused_contents, values, "refused_key")

    def content(self, key: RefusedKey) -> RefusedContent | None:
        """The content of one; None once it was purged, or where it was not kept."""
        sealed = self._session.scalar(select(refused_contents.c.ciphertext).where(refused_contents.c.refused_key == key))
        if sealed is None:
            return None
        whole = self._cipher.decrypt(sealed)
        message_id, _, raw = whole[1:].partition(b"\0")
        return RefusedContent(message_id=message_id.decode(), raw=raw if whole.startswith(_HAS_RAW) else None)

    def purge_content(self, key: RefusedKey) -> None:
        """Delete the content of one; nothing happens if there is none."""
        self._session.execute(delete(refused_contents).where(refused_contents.c.refused_key == key))

    def kept_before(self, before: datetime, *, limit: int) -> tuple[RefusedMessage, ...]:
        """Those whose content is kept and that were refused last before then."""
        old = refused_messages.c.is_kept & (refused_messages.c.last_seen_at < before)
        return self._fetch(select(refused_messages).where(old).order_by(refused_messages.c.last_seen_at).limit(limit))

    def purge_finished(self, *, before: datetime, limit: int = 500) -> int:
        """Delete those that do not wait and were changed last before then, with their events and contents; how many."""
        old = ~_WAITING & (refused_messages.c.changed_at < before)
        keys = self._session.scalars(select(refused_messages.c.key).where(old).limit(limit)).all()
        for column in (events.c.refused_message, refused_contents.c.refused_key, refused_messages.c.key):
            for batch in chunked(keys):
                self._session.execute(delete(column.table).where(column.in_(batch)))
        return len(keys)

    def accepted_since(self, source: str, report_id: str, since: datetime, *, except_message: str) -> datetime | None:
        """When another message about that report of the adapter was accepted last, if that was after `since`."""
        accepted = select(func.max(reports.c.received_at)).where(
            reports.c.source == source,
            reports.c.report_id == report_id,
            reports.c.received_at > since,
            reports.c.message != except_message,
        )
        newest: datetime | None = self._session.scalar(accepted)
        return newest

    def _fetch(self, statement: Any) -> tuple[RefusedMessage, ...]:
        return tuple(to_record(RefusedMessage, row) for row in self._session.execute(statement).mappings())

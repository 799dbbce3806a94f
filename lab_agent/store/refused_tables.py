"""The tables of refused messages: what is known of each, and, encrypted, what may name a patient in it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Column, Index, Table
from sqlmodel import Field

from lab_agent.domain.refused_messages import RefusedState
from lab_agent.store.column_types import EnumText, IndexableText, PlainText, UtcDateTime
from lab_agent.store.row_mapping import states_condition
from lab_agent.store.table_base import METADATA, TableRow, partial_index


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

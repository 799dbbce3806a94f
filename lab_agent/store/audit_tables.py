"""The tables of the audit: its records, what people wrote about them (encrypted), and where the chain begins and ends.

Triggers reject changes of records, and deletions of those that the anchor has not passed. They stop mistakes; who may alter the
database may drop them, and is found out by the chain.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Column, Index, Table
from sqlmodel import Field

from lab_agent.store.column_types import IndexableText, PlainText, UtcDateTime
from lab_agent.store.table_base import METADATA, TableRow


class AuditRecordRow(TableRow, table=True):
    """A record (`AuditRecord`)."""

    __tablename__ = "audit_records"
    __table_args__ = (Index("ix_audit_records_at", "at"), Index("ix_audit_records_subject", "subject"))
    number: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    at: datetime = Field(sa_type=UtcDateTime)
    action: str = Field(sa_type=PlainText)
    channel: str = Field(sa_type=PlainText)
    actor: str = Field(sa_type=PlainText)
    origin: str = Field(sa_type=PlainText)
    subject: str = Field(sa_type=IndexableText)
    details: str = Field(sa_type=PlainText)
    note_digest: str | None = Field(sa_type=PlainText)
    hash: str = Field(sa_type=PlainText)


class AuditNoteRow(TableRow, table=True):
    """What a person wrote about a record, encrypted: it may name a patient, so it can be erased, and the record stays whole."""

    __tablename__ = "audit_notes"
    number: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    order_key: str | None = Field(sa_type=IndexableText, index=True)
    ciphertext: bytes


class AuditHeadRow(TableRow, table=True):
    """Where the chain begins and ends (`AuditHead`), its seal, and its key, encrypted. There is one, which writers lock."""

    __tablename__ = "audit_head"
    id: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    number: int = Field(sa_type=BigInteger)
    hash: str = Field(sa_type=PlainText)
    anchor_number: int = Field(sa_type=BigInteger)
    anchor_hash: str = Field(sa_type=PlainText)
    seal: str = Field(sa_type=PlainText)
    sealed_key: bytes


audit_records: Table = METADATA.tables["audit_records"]
audit_notes: Table = METADATA.tables["audit_notes"]
audit_head: Table = METADATA.tables["audit_head"]

"""Tables of identification data and documents, encrypted, apart from everything else."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Column, Table
from sqlmodel import Field

from lab_agent.store.column_types import (
    IndexableText,
    PlainText,
    UtcDateTime,
)
from lab_agent.store.table_base import METADATA, TableRow


# --- identification data and documents, encrypted -------------------------------------------------------------------------
class IdentityRow(TableRow, table=True):
    """The identification data of an order, encrypted."""

    __tablename__ = "identities"
    order_key: str = Field(sa_type=PlainText, primary_key=True)
    ciphertext: bytes
    kept_at: datetime = Field(sa_type=UtcDateTime)


class ReportedPatientRow(TableRow, table=True):
    """Whose result a report is, as the laboratory system says (`ReportedPatient`), encrypted."""

    __tablename__ = "reported_patients"
    report: str = Field(sa_type=PlainText, primary_key=True, foreign_key="reports.key", ondelete="CASCADE")
    ciphertext: bytes
    kept_at: datetime = Field(sa_type=UtcDateTime)


class ServiceMessageRow(TableRow, table=True):
    """What a remote system said to the last attempts at a job (`ServiceMessage`s), encrypted together."""

    __tablename__ = "service_messages"
    job_id: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    order_key: str = Field(sa_type=IndexableText, index=True)
    ciphertext: bytes
    kept_at: datetime = Field(sa_type=UtcDateTime)


class DocumentRow(TableRow, table=True):
    """A document, encrypted; `id` is the SHA-256 of its content."""

    __tablename__ = "documents"
    id: str = Field(sa_type=PlainText, primary_key=True)
    ciphertext: bytes
    content_type: str = Field(sa_type=PlainText)
    kept_at: datetime = Field(sa_type=UtcDateTime, index=True)


class HostedDocumentRow(TableRow, table=True):
    """A document that our own API serves (`HostedDocument`)."""

    __tablename__ = "hosted_documents"
    address: str = Field(sa_type=PlainText, primary_key=True)
    document: str = Field(sa_type=PlainText, index=True)
    content_type: str = Field(sa_type=PlainText)
    order_key: str = Field(sa_type=PlainText, index=True)
    kept_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime | None = Field(sa_type=UtcDateTime)


identities: Table = METADATA.tables["identities"]
reported_patients: Table = METADATA.tables["reported_patients"]
service_messages: Table = METADATA.tables["service_messages"]
documents: Table = METADATA.tables["documents"]
hosted_documents: Table = METADATA.tables["hosted_documents"]

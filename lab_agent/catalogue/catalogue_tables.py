"""The tables of what the laboratory offers: catalogue versions, notices, barcodes."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar

from sqlalchemy import BigInteger, Column, Index, Table
from sqlmodel import Field

from lab_agent.store.column_types import DecimalText, IndexableText, PlainText, RowNumber, UtcDateTime
from lab_agent.store.table_base import METADATA, TableRow


class CatalogueRow(TableRow, table=True):
    """An imported catalogue (`CatalogueVersion`); the one with the highest number is in force."""

    __tablename__ = "catalogues"
    __table_args__: ClassVar[Any] = {"sqlite_autoincrement": True}
    number: int = Field(sa_type=RowNumber, primary_key=True)
    version: str = Field(sa_type=PlainText)
    since: datetime = Field(sa_type=UtcDateTime, index=True)
    content: bytes
    origin: str = Field(sa_type=PlainText)
    actor: str | None = Field(sa_type=PlainText)


class TurnaroundNoticeRow(TableRow, table=True):
    """A stopped or delayed test (`TurnaroundNotice`)."""

    __tablename__ = "turnaround_notices"
    number: int = Field(sa_type=RowNumber, primary_key=True)
    key: str = Field(sa_type=PlainText, unique=True)
    item: str = Field(sa_type=IndexableText, index=True)
    contract: str | None = Field(sa_type=PlainText)
    start_at: datetime = Field(sa_type=UtcDateTime)
    end_at: datetime = Field(sa_type=UtcDateTime, index=True)
    delay_hours: Decimal | None = Field(sa_type=DecimalText)
    caption: str = Field(sa_type=PlainText)
    made_at: datetime = Field(sa_type=UtcDateTime)
    actor: str | None = Field(sa_type=PlainText)
    lifted_at: datetime | None = Field(sa_type=UtcDateTime)


class LabelRangeRow(TableRow, table=True):
    """The next number of a pool of barcodes; it only grows."""

    __tablename__ = "label_ranges"
    pattern: str = Field(sa_type=IndexableText, primary_key=True)
    first: int = Field(sa_column=Column(BigInteger(), primary_key=True, autoincrement=False))
    next_number: int = Field(sa_type=BigInteger)


class IssuedLabelRow(TableRow, table=True):
    """A barcode that was given out (`IssuedLabel`)."""

    __tablename__ = "issued_labels"
    __table_args__ = (Index("ix_issued_labels_pool_issued_at", "pool", "issued_at"),)
    number: int = Field(sa_type=RowNumber, primary_key=True)
    label: str = Field(sa_type=IndexableText, unique=True)
    pool: str = Field(sa_type=IndexableText)
    serial: int = Field(sa_type=BigInteger)
    basket: str | None = Field(sa_type=IndexableText, index=True)
    tube_slot: str = Field(sa_type=PlainText)
    issued_at: datetime = Field(sa_type=UtcDateTime)
    used_at: datetime | None = Field(sa_type=UtcDateTime)
    order_key: str | None = Field(sa_type=PlainText, index=True)


catalogues: Table = METADATA.tables["catalogues"]
turnaround_notices: Table = METADATA.tables["turnaround_notices"]
label_ranges: Table = METADATA.tables["label_ranges"]
issued_labels: Table = METADATA.tables["issued_labels"]

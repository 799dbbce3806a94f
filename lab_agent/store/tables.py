"""Our tables, in four groups that are kept apart: medical data, identification data, documents, tokens; and the accounts.

The classes declare; nothing outside this room sees a row, and within it statements are written on the `Table`s below. Partial
indexes keep claims and lists quick however much finished work lies beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, Table, text
from sqlalchemy.types import Boolean, TypeEngine
from sqlmodel import Field, SQLModel

from lab_agent.domain.records import JobKind
from lab_agent.domain.state_machines import (
    BLOCKING_STATES,
    CLAIMABLE_STATES,
    IN_FLIGHT_STATES,
    JOBS_NEEDING_OPERATOR,
    REPORTS_NEEDING_OPERATOR,
    JobState,
    LineState,
    OrderState,
    ReportState,
)
from lab_agent.domain.values import Identifier
from lab_agent.ports.repositories import Role
from lab_agent.store.column_types import (
    Binary,
    DecimalText,
    EnumText,
    ExactJson,
    IdentifierText,
    IndexableText,
    PlainText,
    TextTuple,
    UtcDateTime,
)

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
_BIG_INTEGER = BigInteger().with_variant(Integer(), "sqlite")


def sql_literals(states: Iterable[StrEnum]) -> str:
    """Write states as a list of SQL literals; a partial index is used only where the query repeats its condition word by word."""
    return ", ".join(f"'{state.value}'" for state in sorted(states))


def _required(column_type: TypeEngine[Any], *extra: Any, **options: Any) -> Any:
    return Field(sa_column=Column(column_type, *extra, nullable=False, **options))


def _optional(column_type: TypeEngine[Any], **options: Any) -> Any:
    return Field(default=None, sa_column=Column(column_type, nullable=True, **options))


def _row_number() -> Any:
    return Field(default=None, sa_column=Column(_BIG_INTEGER, primary_key=True, autoincrement=True))


def _order_key() -> Any:
    return _required(PlainText(), ForeignKey("orders.key", ondelete="CASCADE"), index=True)


def _partial_index(name: str, condition: str, *columns: str, unique: bool = False) -> Index:
    return Index(name, *columns, unique=unique, sqlite_where=text(condition), postgresql_where=text(condition))


class TableRow(SQLModel):
    """What all tables share: one `MetaData` of our own."""

    metadata: ClassVar[MetaData] = METADATA


# --- medical ------------------------------------------------------------------------------------------------------------


class OrderRow(TableRow, table=True):
    """An order (`OrderRecord`)."""

    __tablename__ = "orders"
    __table_args__ = (
        Index("ix_orders_state_changed_at", "state", "changed_at"),
        Index("ix_orders_seen_at_key", "seen_at", "key"),
        _partial_index("ix_orders_open", "state <> 'closed'", "key"),
    )

    key: str = _required(PlainText(), primary_key=True)
    task_id: str = _required(IndexableText(), unique=True)
    state: OrderState = _required(EnumText(OrderState))
    seen_at: datetime = _required(UtcDateTime())
    changed_at: datetime = _required(UtcDateTime())
    contract: str | None = _optional(PlainText())
    requisition: Identifier | None = _optional(IdentifierText())
    requisition_value: str | None = _optional(IndexableText(), index=True)
    counterparty: str | None = _optional(PlainText())
    patient_reference: str | None = _optional(PlainText())
    adapter: str | None = _optional(PlainText())
    accession: str | None = _optional(IndexableText(), index=True)
    expected_at: datetime | None = _optional(UtcDateTime())
    reason: str | None = _optional(PlainText())
    seen_lines: tuple[str, ...] | None = _optional(TextTuple())
    received: bytes | None = _optional(Binary())
    lab_order: bytes | None = _optional(Binary())
    sent_statuses: tuple[str, ...] = _required(TextTuple())


class LineRow(TableRow, table=True):
    """An order line (`LineRecord`); `number` keeps the order in which lines were added."""

    __tablename__ = "lines"
    __table_args__: ClassVar[Any] = {"sqlite_autoincrement": True}

    number: int | None = _row_number()
    key: str = _required(PlainText(), unique=True)
    order_key: str = _order_key()
    task_id: str = _required(IndexableText(), index=True)
    procedure_request_id: str | None = _optional(PlainText())
    item: str | None = _optional(PlainText())
    state: LineState = _required(EnumText(LineState))
    changed_at: datetime = _required(UtcDateTime())
    accession: str | None = _optional(IndexableText(), index=True)
    outputs: tuple[str, ...] = _required(TextTuple())
    sent_statuses: tuple[str, ...] = _required(TextTuple())


class LabelUseRow(TableRow, table=True):
    """A barcode as an order uses it (`LabelUse`)."""

    __tablename__ = "label_uses"

    number: int | None = _row_number()
    barcode: str = _required(IndexableText(), index=True)
    order_key: str = _order_key()
    line: str = _required(PlainText(), index=True)
    specimen_id: str = _required(PlainText())
    patient_reference: str = _required(PlainText())


class JobRow(TableRow, table=True):
    """A row of the outbox (`Effect`)."""

    __tablename__ = "jobs"
    __table_args__ = (
        _partial_index("ix_jobs_claimable", f"state IN ({sql_literals(CLAIMABLE_STATES)})", "due_at", "id"),
        _partial_index("ix_jobs_ordering_key", f"state IN ({sql_literals(BLOCKING_STATES)})", "ordering_key", "id"),
        _partial_index("ix_jobs_leased", f"state IN ({sql_literals(IN_FLIGHT_STATES)})", "lease_until"),
        _partial_index("ix_jobs_needing_operator", f"state IN ({sql_literals(JOBS_NEEDING_OPERATOR)})", "changed_at"),
        Index("ix_jobs_order_key_id", "order_key", "id"),
        Index("ix_jobs_kind_state_id", "kind", "state", "id"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = _row_number()
    kind: JobKind = _required(EnumText(JobKind))
    dedup_key: str = _required(IndexableText(), unique=True)
    ordering_key: str = _required(IndexableText())
    target: str = _required(IndexableText(), index=True)
    order_key: str | None = _optional(IndexableText())
    payload: Mapping[str, Any] = _required(ExactJson())
    state: JobState = _required(EnumText(JobState))
    started: bool = _required(Boolean())
    attempts: int = _required(Integer())
    due_at: datetime = _required(UtcDateTime())
    created_at: datetime = _required(UtcDateTime())
    changed_at: datetime = _required(UtcDateTime())
    reason: str | None = _optional(PlainText())
    owner: str | None = _optional(PlainText())
    fencing_token: int = _required(BigInteger())
    lease_until: datetime | None = _optional(UtcDateTime())


class ReportRow(TableRow, table=True):
    """A message of a LIS (`ReportRecord`)."""

    __tablename__ = "reports"
    __table_args__ = (
        Index("ix_reports_source_message", "source", "message"),
        Index("ix_reports_order_key_report_id", "order_key", "report_id"),
        Index("ix_reports_state", "state", "sequence"),
        _partial_index("ix_reports_needing_operator", f"state IN ({sql_literals(REPORTS_NEEDING_OPERATOR)})", "sequence"),
        {"sqlite_autoincrement": True},
    )

    sequence: int | None = _row_number()
    key: str = _required(PlainText(), unique=True)
    source: str = _required(IndexableText())
    message: str = _required(IndexableText())
    report_id: str | None = _optional(IndexableText())
    version: int | None = _optional(BigInteger())
    issued: datetime | None = _optional(UtcDateTime())
    state: ReportState = _required(EnumText(ReportState))
    order_key: str | None = _optional(IndexableText())
    lines: tuple[str, ...] = _required(TextTuple())
    reason: str | None = _optional(PlainText())
    received_at: datetime = _required(UtcDateTime())
    changed_at: datetime = _required(UtcDateTime())
    body: bytes = _required(Binary())


class UploadRow(TableRow, table=True):
    """A resource of ours on the service (`UploadRecord`)."""

    __tablename__ = "uploads"

    identifier: str = _required(IndexableText(), primary_key=True)
    resource_type: str = _required(PlainText())
    resource_id: str = _required(PlainText())
    version: str = _required(PlainText())
    digest: str = _required(PlainText())
    order_key: str = _required(PlainText(), index=True)
    report: str = _required(PlainText())


class EventRow(TableRow, table=True):
    """A line of an order's timeline, of a report's history, or of both (`Event`)."""

    __tablename__ = "events"

    number: int | None = _row_number()
    order_key: str | None = _optional(PlainText(), index=True)
    report: str | None = _optional(PlainText(), index=True)
    at: datetime = _required(UtcDateTime())
    action: str = _required(PlainText())
    text: str = _required(PlainText())
    actor: str | None = _optional(PlainText())


class RejectionRow(TableRow, table=True):
    """That a rule refused a line of an order."""

    __tablename__ = "rejections"
    __table_args__ = (Index("ix_rejections_rule_at", "rule", "at"),)

    number: int | None = _row_number()
    rule: str = _required(IndexableText())
    order_key: str = _required(PlainText(), index=True)
    at: datetime = _required(UtcDateTime())


class AlertRow(TableRow, table=True):
    """Something worth waking somebody for (`Alert`); at most one of a key is open."""

    __tablename__ = "alerts"
    __table_args__ = (
        _partial_index("uq_alerts_open", "closed_at IS NULL", "key", unique=True),
        Index("ix_alerts_opened_at", "opened_at"),
    )

    number: int | None = _row_number()
    key: str = _required(IndexableText())
    text: str = _required(PlainText())
    opened_at: datetime = _required(UtcDateTime())
    closed_at: datetime | None = _optional(UtcDateTime())


class KeyValueRow(TableRow, table=True):
    """A small fact."""

    __tablename__ = "key_values"

    key: str = _required(IndexableText(), primary_key=True)
    value: str = _required(PlainText())


# --- identification data and documents, encrypted -------------------------------------------------------------------------


class IdentityRow(TableRow, table=True):
    """The identification data of an order, encrypted."""

    __tablename__ = "identities"

    order_key: str = _required(PlainText(), primary_key=True)
    ciphertext: bytes = _required(Binary())
    kept_at: datetime = _required(UtcDateTime())


class DocumentRow(TableRow, table=True):
    """A document, encrypted; `id` is the SHA-256 of its content."""

    __tablename__ = "documents"

    id: str = _required(PlainText(), primary_key=True)
    ciphertext: bytes = _required(Binary())
    content_type: str = _required(PlainText())
    kept_at: datetime = _required(UtcDateTime(), index=True)


class HostedDocumentRow(TableRow, table=True):
    """A document that our own API serves (`HostedDocument`)."""

    __tablename__ = "hosted_documents"

    address: str = _required(PlainText(), primary_key=True)
    document: str = _required(PlainText(), index=True)
    content_type: str = _required(PlainText())
    order_key: str = _required(PlainText(), index=True)
    kept_at: datetime = _required(UtcDateTime())
    expires_at: datetime | None = _optional(UtcDateTime())


# --- tokens and accounts ----------------------------------------------------------------------------------------------------


class OAuthTokenRow(TableRow, table=True):
    """One generation of our sign-in at the service (`StoredToken`), encrypted."""

    __tablename__ = "oauth_tokens"

    generation: int = Field(sa_column=Column(BigInteger(), primary_key=True, autoincrement=False))
    access_token: bytes = _required(Binary())
    refresh_token: bytes | None = _optional(Binary())
    expires_at: datetime | None = _optional(UtcDateTime())


class LeaseRow(TableRow, table=True):
    """A right that one process holds at a time, such as to refresh the sign-in."""

    __tablename__ = "leases"

    name: str = _required(PlainText(), primary_key=True)
    owner: str = _required(PlainText())
    until: datetime = _required(UtcDateTime())


class UserRow(TableRow, table=True):
    """A user of the status page (`UserRecord`)."""

    __tablename__ = "users"

    name: str = _required(PlainText(), primary_key=True)
    role: Role = _required(EnumText(Role))
    password_hash: str = _required(PlainText())
    created_at: datetime = _required(UtcDateTime())
    changed_at: datetime = _required(UtcDateTime())


# --- what the laboratory offers ---------------------------------------------------------------------------------------------


class CatalogueRow(TableRow, table=True):
    """An imported catalogue (`CatalogueVersion`); the one with the highest number is in force."""

    __tablename__ = "catalogues"
    __table_args__: ClassVar[Any] = {"sqlite_autoincrement": True}

    number: int | None = _row_number()
    version: str = _required(PlainText())
    since: datetime = _required(UtcDateTime(), index=True)
    content: bytes = _required(Binary())
    origin: str = _required(PlainText())
    actor: str | None = _optional(PlainText())


class TurnaroundNoticeRow(TableRow, table=True):
    """A stopped or delayed test (`EtaNotice`)."""

    __tablename__ = "turnaround_notices"

    number: int | None = _row_number()
    key: str = _required(PlainText(), unique=True)
    item: str = _required(IndexableText(), index=True)
    contract: str | None = _optional(PlainText())
    start_at: datetime = _required(UtcDateTime())
    end_at: datetime = _required(UtcDateTime(), index=True)
    delay_hours: Decimal | None = _optional(DecimalText())
    caption: str = _required(PlainText())
    made_at: datetime = _required(UtcDateTime())
    actor: str | None = _optional(PlainText())
    lifted_at: datetime | None = _optional(UtcDateTime())


class LabelRangeRow(TableRow, table=True):
    """The next number of a pool of barcodes; it only grows."""

    __tablename__ = "label_ranges"

    pattern: str = _required(IndexableText(), primary_key=True)
    first: int = Field(sa_column=Column(BigInteger(), primary_key=True, autoincrement=False))
    next_number: int = _required(BigInteger())


class IssuedLabelRow(TableRow, table=True):
    """A barcode that was given out (`LabelGiven`)."""

    __tablename__ = "issued_labels"

    number: int | None = _row_number()
    label: str = _required(IndexableText(), unique=True)
    pool: str = _required(IndexableText())
    serial: int = _required(BigInteger())
    basket: str | None = _optional(IndexableText(), index=True)
    tube_slot: str = _required(PlainText())
    issued_at: datetime = _required(UtcDateTime())
    used_at: datetime | None = _optional(UtcDateTime())
    order_key: str | None = _optional(PlainText(), index=True)


class ApiTokenRow(TableRow, table=True):
    """A credential of a caller of the laboratory's API (`ApiToken`)."""

    __tablename__ = "api_tokens"

    id: str = _required(PlainText(), primary_key=True)
    name: str = _required(IndexableText(), index=True)
    sha256: str = _required(PlainText())
    contracts: tuple[str, ...] | None = _optional(TextTuple())
    created_at: datetime = _required(UtcDateTime())
    expires_at: datetime | None = _optional(UtcDateTime())
    revoked_at: datetime | None = _optional(UtcDateTime())


orders: Table = METADATA.tables["orders"]
lines: Table = METADATA.tables["lines"]
label_uses: Table = METADATA.tables["label_uses"]
jobs: Table = METADATA.tables["jobs"]
reports: Table = METADATA.tables["reports"]
uploads: Table = METADATA.tables["uploads"]
events: Table = METADATA.tables["events"]
rejections: Table = METADATA.tables["rejections"]
alerts: Table = METADATA.tables["alerts"]
key_values: Table = METADATA.tables["key_values"]
identities: Table = METADATA.tables["identities"]
documents: Table = METADATA.tables["documents"]
hosted_documents: Table = METADATA.tables["hosted_documents"]
oauth_tokens: Table = METADATA.tables["oauth_tokens"]
leases: Table = METADATA.tables["leases"]
users: Table = METADATA.tables["users"]
catalogues: Table = METADATA.tables["catalogues"]
turnaround_notices: Table = METADATA.tables["turnaround_notices"]
label_ranges: Table = METADATA.tables["label_ranges"]
issued_labels: Table = METADATA.tables["issued_labels"]
api_tokens: Table = METADATA.tables["api_tokens"]

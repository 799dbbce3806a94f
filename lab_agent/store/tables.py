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

from lab_agent.domain.journal import EffectKind
from lab_agent.domain.lifecycle import (
    ASKING_EFFECTS,
    LANE_BLOCKING,
    WAITING_REPORTS,
    EffectState,
    LineState,
    OrderState,
    ReportState,
)
from lab_agent.domain.values import Identifier
from lab_agent.ports.store import Role
from lab_agent.store.states import CLAIMABLE, IN_FLIGHT
from lab_agent.store.types import (
    Binary,
    DecimalText,
    EnumText,
    ExactJson,
    IdentifierText,
    NameText,
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
_NUMBER = BigInteger().with_variant(Integer(), "sqlite")


def words(states: Iterable[StrEnum]) -> str:
    """Write states as a list of SQL literals; a partial index is used only where the query repeats its condition word by word."""
    return ", ".join(f"'{state.value}'" for state in sorted(states))


def _need(kind: TypeEngine[Any], *extra: Any, **options: Any) -> Any:
    return Field(sa_column=Column(kind, *extra, nullable=False, **options))


def _may(kind: TypeEngine[Any], **options: Any) -> Any:
    return Field(default=None, sa_column=Column(kind, nullable=True, **options))


def _number() -> Any:
    return Field(default=None, sa_column=Column(_NUMBER, primary_key=True, autoincrement=True))


def _order() -> Any:
    return _need(PlainText(), ForeignKey("orders.key", ondelete="CASCADE"), index=True)


def _some(name: str, condition: str, *columns: str, unique: bool = False) -> Index:
    return Index(name, *columns, unique=unique, sqlite_where=text(condition), postgresql_where=text(condition))


class Row(SQLModel):
    """What all tables share: one `MetaData` of our own."""

    metadata: ClassVar[MetaData] = METADATA


# --- medical ------------------------------------------------------------------------------------------------------------


class OrderRow(Row, table=True):
    """An order (`OrderRecord`)."""

    __tablename__ = "orders"
    __table_args__ = (
        Index("ix_orders_state_changed_at", "state", "changed_at"),
        Index("ix_orders_seen_at_key", "seen_at", "key"),
        _some("ix_orders_open", "state <> 'closed'", "key"),
    )

    key: str = _need(PlainText(), primary_key=True)
    task_id: str = _need(NameText(), unique=True)
    state: OrderState = _need(EnumText(OrderState))
    seen_at: datetime = _need(UtcDateTime())
    changed_at: datetime = _need(UtcDateTime())
    contract: str | None = _may(PlainText())
    requisition: Identifier | None = _may(IdentifierText())
    requisition_value: str | None = _may(NameText(), index=True)
    counterparty: str | None = _may(PlainText())
    patient_reference: str | None = _may(PlainText())
    adapter: str | None = _may(PlainText())
    accession: str | None = _may(NameText(), index=True)
    expected_at: datetime | None = _may(UtcDateTime())
    reason: str | None = _may(PlainText())
    seen_lines: tuple[str, ...] | None = _may(TextTuple())
    received: bytes | None = _may(Binary())
    lab_order: bytes | None = _may(Binary())
    sent_statuses: tuple[str, ...] = _need(TextTuple())


class LineRow(Row, table=True):
    """An order line (`LineRecord`); `number` keeps the order in which lines were added."""

    __tablename__ = "lines"
    __table_args__: ClassVar[Any] = {"sqlite_autoincrement": True}

    number: int | None = _number()
    key: str = _need(PlainText(), unique=True)
    order_key: str = _order()
    task_id: str = _need(NameText(), index=True)
    procedure_request_id: str | None = _may(PlainText())
    item: str | None = _may(PlainText())
    state: LineState = _need(EnumText(LineState))
    changed_at: datetime = _need(UtcDateTime())
    accession: str | None = _may(NameText(), index=True)
    outputs: tuple[str, ...] = _need(TextTuple())
    sent_statuses: tuple[str, ...] = _need(TextTuple())


class LabelRow(Row, table=True):
    """A barcode as an order uses it (`LabelUse`)."""

    __tablename__ = "labels"

    number: int | None = _number()
    barcode: str = _need(NameText(), index=True)
    order_key: str = _order()
    line: str = _need(PlainText(), index=True)
    specimen_id: str = _need(PlainText())
    patient_reference: str = _need(PlainText())


class EffectRow(Row, table=True):
    """A row of the outbox (`Effect`)."""

    __tablename__ = "effects"
    __table_args__ = (
        _some("ix_effects_claimable", f"state IN ({words(CLAIMABLE)})", "due_at", "id"),
        _some("ix_effects_lane", f"state IN ({words(LANE_BLOCKING)})", "lane", "id"),
        _some("ix_effects_leased", f"state IN ({words(IN_FLIGHT)})", "lease_until"),
        _some("ix_effects_asking", f"state IN ({words(ASKING_EFFECTS)})", "changed_at"),
        Index("ix_effects_order_key_id", "order_key", "id"),
        Index("ix_effects_kind_state_id", "kind", "state", "id"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = _number()
    kind: EffectKind = _need(EnumText(EffectKind))
    once: str = _need(NameText(), unique=True)
    lane: str = _need(NameText())
    subject: str = _need(NameText(), index=True)
    order_key: str | None = _may(NameText())
    payload: Mapping[str, Any] = _need(ExactJson())
    state: EffectState = _need(EnumText(EffectState))
    begun: bool = _need(Boolean())
    attempts: int = _need(Integer())
    due_at: datetime = _need(UtcDateTime())
    created_at: datetime = _need(UtcDateTime())
    changed_at: datetime = _need(UtcDateTime())
    reason: str | None = _may(PlainText())
    owner: str | None = _may(PlainText())
    fence: int = _need(BigInteger())
    lease_until: datetime | None = _may(UtcDateTime())


class ReportRow(Row, table=True):
    """A message of a LIS (`ReportRecord`)."""

    __tablename__ = "reports"
    __table_args__ = (
        Index("ix_reports_source_message", "source", "message"),
        Index("ix_reports_order_key_report_id", "order_key", "report_id"),
        Index("ix_reports_state", "state", "sequence"),
        _some("ix_reports_waiting", f"state IN ({words(WAITING_REPORTS)})", "sequence"),
        {"sqlite_autoincrement": True},
    )

    sequence: int | None = _number()
    key: str = _need(PlainText(), unique=True)
    source: str = _need(NameText())
    message: str = _need(NameText())
    report_id: str | None = _may(NameText())
    version: int | None = _may(BigInteger())
    issued: datetime | None = _may(UtcDateTime())
    state: ReportState = _need(EnumText(ReportState))
    order_key: str | None = _may(NameText())
    lines: tuple[str, ...] = _need(TextTuple())
    reason: str | None = _may(PlainText())
    received_at: datetime = _need(UtcDateTime())
    changed_at: datetime = _need(UtcDateTime())
    body: bytes = _need(Binary())


class UploadRow(Row, table=True):
    """A resource of ours on the service (`UploadRecord`)."""

    __tablename__ = "uploads"

    identifier: str = _need(NameText(), primary_key=True)
    resource_type: str = _need(PlainText())
    resource_id: str = _need(PlainText())
    version: str = _need(PlainText())
    digest: str = _need(PlainText())
    order_key: str = _need(PlainText(), index=True)
    report: str = _need(PlainText())


class EventRow(Row, table=True):
    """A line of an order's timeline, of a report's history, or of both (`Event`)."""

    __tablename__ = "events"

    number: int | None = _number()
    order_key: str | None = _may(PlainText(), index=True)
    report: str | None = _may(PlainText(), index=True)
    at: datetime = _need(UtcDateTime())
    action: str = _need(PlainText())
    text: str = _need(PlainText())
    actor: str | None = _may(PlainText())


class RefusalRow(Row, table=True):
    """That a rule refused a line of an order."""

    __tablename__ = "refusals"
    __table_args__ = (Index("ix_refusals_rule_at", "rule", "at"),)

    number: int | None = _number()
    rule: str = _need(NameText())
    order_key: str = _need(PlainText(), index=True)
    at: datetime = _need(UtcDateTime())


class AlertRow(Row, table=True):
    """Something worth waking somebody for (`Alert`); at most one of a key is open."""

    __tablename__ = "alerts"
    __table_args__ = (_some("uq_alerts_open", "closed_at IS NULL", "key", unique=True), Index("ix_alerts_opened_at", "opened_at"))

    number: int | None = _number()
    key: str = _need(NameText())
    text: str = _need(PlainText())
    opened_at: datetime = _need(UtcDateTime())
    closed_at: datetime | None = _may(UtcDateTime())


class NoteRow(Row, table=True):
    """A small fact."""

    __tablename__ = "notes"

    key: str = _need(NameText(), primary_key=True)
    value: str = _need(PlainText())


# --- identification data and documents, encrypted -------------------------------------------------------------------------


class IdentityRow(Row, table=True):
    """The identification data of an order, encrypted."""

    __tablename__ = "identities"

    order_key: str = _need(PlainText(), primary_key=True)
    sealed: bytes = _need(Binary())
    kept_at: datetime = _need(UtcDateTime())


class DocumentRow(Row, table=True):
    """A document, encrypted; `id` is the SHA-256 of its content."""

    __tablename__ = "documents"

    id: str = _need(PlainText(), primary_key=True)
    sealed: bytes = _need(Binary())
    content_type: str = _need(PlainText())
    kept_at: datetime = _need(UtcDateTime(), index=True)


class HostedRow(Row, table=True):
    """A document that our own API serves (`HostedDocument`)."""

    __tablename__ = "hosted"

    address: str = _need(PlainText(), primary_key=True)
    document: str = _need(PlainText(), index=True)
    content_type: str = _need(PlainText())
    order_key: str = _need(PlainText(), index=True)
    kept_at: datetime = _need(UtcDateTime())
    expires_at: datetime | None = _may(UtcDateTime())


# --- tokens and accounts ----------------------------------------------------------------------------------------------------


class TokenRow(Row, table=True):
    """One generation of our sign-in at the service (`StoredToken`), encrypted."""

    __tablename__ = "tokens"

    generation: int = Field(sa_column=Column(BigInteger(), primary_key=True, autoincrement=False))
    access: bytes = _need(Binary())
    refresh: bytes | None = _may(Binary())
    expires_at: datetime | None = _may(UtcDateTime())


class LeaseRow(Row, table=True):
    """A right that one process holds at a time, such as to refresh the sign-in."""

    __tablename__ = "leases"

    name: str = _need(PlainText(), primary_key=True)
    owner: str = _need(PlainText())
    until: datetime = _need(UtcDateTime())


class UserRow(Row, table=True):
    """A user of the status page (`UserRecord`)."""

    __tablename__ = "users"

    name: str = _need(PlainText(), primary_key=True)
    role: Role = _need(EnumText(Role))
    password_hash: str = _need(PlainText())
    created_at: datetime = _need(UtcDateTime())
    changed_at: datetime = _need(UtcDateTime())


# --- what the laboratory offers ---------------------------------------------------------------------------------------------


class CatalogueRow(Row, table=True):
    """An imported catalogue (`CatalogueVersion`); the one with the highest number is in force."""

    __tablename__ = "catalogues"
    __table_args__: ClassVar[Any] = {"sqlite_autoincrement": True}

    number: int | None = _number()
    version: str = _need(PlainText())
    since: datetime = _need(UtcDateTime(), index=True)
    content: bytes = _need(Binary())
    origin: str = _need(PlainText())
    actor: str | None = _may(PlainText())


class EtaNoticeRow(Row, table=True):
    """A stopped or delayed test (`EtaNotice`)."""

    __tablename__ = "eta_notices"

    number: int | None = _number()
    key: str = _need(PlainText(), unique=True)
    item: str = _need(NameText(), index=True)
    contract: str | None = _may(PlainText())
    start_at: datetime = _need(UtcDateTime())
    end_at: datetime = _need(UtcDateTime(), index=True)
    delay_hours: Decimal | None = _may(DecimalText())
    caption: str = _need(PlainText())
    made_at: datetime = _need(UtcDateTime())
    actor: str | None = _may(PlainText())
    cleared_at: datetime | None = _may(UtcDateTime())


class LabelRangeRow(Row, table=True):
    """The next number of a pool of barcodes; it only grows."""

    __tablename__ = "label_ranges"

    pattern: str = _need(NameText(), primary_key=True)
    first: int = Field(sa_column=Column(BigInteger(), primary_key=True, autoincrement=False))
    following: int = _need(BigInteger())


class LabelGivenRow(Row, table=True):
    """A barcode that was given out (`LabelGiven`)."""

    __tablename__ = "labels_given"

    number: int | None = _number()
    label: str = _need(NameText(), unique=True)
    pool: str = _need(NameText())
    serial: int = _need(BigInteger())
    basket: str | None = _may(NameText(), index=True)
    place: str = _need(PlainText())
    given_at: datetime = _need(UtcDateTime())
    used_at: datetime | None = _may(UtcDateTime())
    order_key: str | None = _may(PlainText(), index=True)


class ApiTokenRow(Row, table=True):
    """A credential of a caller of the laboratory's API (`ApiToken`)."""

    __tablename__ = "api_tokens"

    id: str = _need(PlainText(), primary_key=True)
    name: str = _need(NameText(), index=True)
    sha256: str = _need(PlainText())
    contracts: tuple[str, ...] | None = _may(TextTuple())
    created_at: datetime = _need(UtcDateTime())
    expires_at: datetime | None = _may(UtcDateTime())
    revoked_at: datetime | None = _may(UtcDateTime())


orders: Table = METADATA.tables["orders"]
lines: Table = METADATA.tables["lines"]
labels: Table = METADATA.tables["labels"]
effects: Table = METADATA.tables["effects"]
reports: Table = METADATA.tables["reports"]
uploads: Table = METADATA.tables["uploads"]
events: Table = METADATA.tables["events"]
refusals: Table = METADATA.tables["refusals"]
alerts: Table = METADATA.tables["alerts"]
notes: Table = METADATA.tables["notes"]
identities: Table = METADATA.tables["identities"]
documents: Table = METADATA.tables["documents"]
hosted: Table = METADATA.tables["hosted"]
tokens: Table = METADATA.tables["tokens"]
leases: Table = METADATA.tables["leases"]
users: Table = METADATA.tables["users"]
catalogues: Table = METADATA.tables["catalogues"]
eta_notices: Table = METADATA.tables["eta_notices"]
label_ranges: Table = METADATA.tables["label_ranges"]
labels_given: Table = METADATA.tables["labels_given"]
api_tokens: Table = METADATA.tables["api_tokens"]

"""The tables: medical data, identification data and documents (encrypted), tokens and accounts.

Those of the catalogue are in `catalogue_tables`.

SQLModel makes each `Table` of a class: columns, nullability and keys follow from the annotations and `Field`. It is used for
declaring alone: no row becomes an object, and statements are SQLAlchemy Core on the `Table`s at the end of this module. Partial
indexes keep claims and lists fast however many finished rows lie beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Index, Table, false
from sqlmodel import Field

from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import AttemptRecord, JobKind
from lab_agent.results.records import HoldReason
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.state_machines import (
    BLOCKING_STATES,
    CLAIMABLE_STATES,
    IN_FLIGHT_STATES,
    JOBS_NEEDING_OPERATOR,
    OPEN_JOBS,
    OPEN_LINES,
    REPORTS_NEEDING_OPERATOR,
    JobState,
    LineState,
    OrderState,
    ReportState,
    WorkOrderState,
)
from lab_agent.shared.values import Identifier
from lab_agent.store.column_types import (
    AttemptLog,
    EnumText,
    ExactJson,
    IdentifierText,
    IndexableText,
    PlainText,
    RowNumber,
    TextTuple,
    UtcDateTime,
)
from lab_agent.store.credential_records import Role
from lab_agent.store.read_models import DOCUMENT_ORPHAN_ACTION
from lab_agent.store.row_mapping import states_condition
from lab_agent.store.table_base import METADATA, TableRow, partial_index

_FAILURE_COLUMNS = ("failure_cause", "system", "kind", "state", "first_due_at", "failing_since", "failures", "id")
"""What failing jobs are grouped and counted by: all of it is read from the index."""
_WAITING_COLUMNS = ("state", "hold_reason", "source", "received_at", "sequence")
"""The same of results that wait for a person."""


# --- medical ------------------------------------------------------------------------------------------------------------
class OrderRow(TableRow, table=True):
    """An order (`OrderRecord`)."""

    __tablename__ = "orders"
    __table_args__ = (
        Index("ix_orders_state_changed_at", "state", "changed_at"),
        Index("ix_orders_seen_at_key", "seen_at", "key"),
        Index("ix_orders_contract_seen_at_key", "contract", "seen_at", "key"),
        partial_index("ix_orders_open", "state <> 'closed'", "key"),
        partial_index("ix_orders_expected", "state <> 'closed'", "expected_at", "key"),
        partial_index("ix_orders_recheck", "recheck_at IS NOT NULL", "recheck_at"),
        partial_index("ix_orders_held", states_condition({OrderState.HELD}), "held_since", "key"),
        partial_index("ix_orders_hold_cause", states_condition({OrderState.HELD}), "hold_cause", "held_since", "key"),
        partial_index("ix_orders_task_unreadable", "task_unreadable_since IS NOT NULL", "task_unreadable_since"),
    )

    key: str = Field(sa_type=PlainText, primary_key=True)
    task_id: str = Field(sa_type=IndexableText, unique=True)
    state: OrderState = Field(sa_column=Column(EnumText(OrderState), nullable=False))
    seen_at: datetime = Field(sa_type=UtcDateTime)
    changed_at: datetime = Field(sa_type=UtcDateTime)
    contract: str | None = Field(sa_type=PlainText)
    requisition: Identifier | None = Field(sa_type=IdentifierText)
    requisition_value: str | None = Field(sa_type=IndexableText, index=True)
    counterparty: str | None = Field(sa_type=PlainText)
    patient_reference: str | None = Field(sa_type=PlainText)
    released_findings: tuple[str, ...] = Field(sa_type=TextTuple)
    expected_at: datetime | None = Field(sa_type=UtcDateTime)
    reason: str | None = Field(sa_type=PlainText)
    seen_lines: tuple[str, ...] | None = Field(sa_type=TextTuple)
    received: bytes | None
    lab_order: bytes | None
    sent_statuses: tuple[str, ...] = Field(sa_type=TextTuple)
    ended_as: str | None = Field(sa_type=PlainText)
    recheck_at: datetime | None = Field(sa_type=UtcDateTime)
    reopened: int
    unreadable_since: datetime | None = Field(sa_type=UtcDateTime)
    held_since: datetime | None = Field(sa_type=UtcDateTime)
    hold_cause: str | None = Field(sa_type=IndexableText)
    task_unreadable_since: datetime | None = Field(sa_type=UtcDateTime)


class WorkOrderRow(TableRow, table=True):
    """The part of an order that goes to one laboratory system (`WorkOrder`)."""

    __tablename__ = "work_orders"
    __table_args__ = (
        partial_index("ix_work_orders_to_hand_over", states_condition({WorkOrderState.ACCEPTED}), "adapter"),
        partial_index("ix_work_orders_waiting", "waits_since IS NOT NULL", "adapter", "waits_since"),
    )

    order_key: str = Field(sa_type=PlainText, foreign_key="orders.key", ondelete="CASCADE", primary_key=True)
    adapter: str = Field(sa_type=PlainText, primary_key=True)
    state: WorkOrderState = Field(sa_column=Column(EnumText(WorkOrderState), nullable=False))
    changed_at: datetime = Field(sa_type=UtcDateTime)
    accession: str | None = Field(sa_type=IndexableText, index=True)
    reason: str | None = Field(sa_type=PlainText)
    waits_since: datetime | None = Field(sa_type=UtcDateTime)


class LineRow(TableRow, table=True):
    """An order line (`LineRecord`); `number` keeps the order in which lines were added."""

    __tablename__ = "lines"
    __table_args__ = (
        Index("ix_lines_item_order_key", "item", "order_key"),
        partial_index("ix_lines_open", states_condition(OPEN_LINES), "state", "adapter"),
        partial_index("ix_lines_task_unreadable", "task_unreadable_since IS NOT NULL", "task_unreadable_since"),
        {"sqlite_autoincrement": True},
    )

    number: int = Field(sa_type=RowNumber, primary_key=True)
    key: str = Field(sa_type=PlainText, unique=True)
    order_key: str = Field(sa_type=PlainText, foreign_key="orders.key", ondelete="CASCADE", index=True)
    task_id: str = Field(sa_type=IndexableText, index=True)
    procedure_request_id: str | None = Field(sa_type=PlainText, index=True)
    item: str | None = Field(sa_type=PlainText)
    state: LineState = Field(sa_column=Column(EnumText(LineState), nullable=False))
    changed_at: datetime = Field(sa_type=UtcDateTime)
    adapter: str | None = Field(sa_type=PlainText)
    accession: str | None = Field(sa_type=IndexableText, index=True)
    outputs: tuple[str, ...] = Field(sa_type=TextTuple)
    sent_statuses: tuple[str, ...] = Field(sa_type=TextTuple)
    ended_as: str | None = Field(sa_type=PlainText)
    reopened: int
    task_unreadable_since: datetime | None = Field(sa_type=UtcDateTime)


class LabelUseRow(TableRow, table=True):
    """A barcode as an order uses it (`LabelUse`)."""

    __tablename__ = "label_uses"
    number: int = Field(sa_type=RowNumber, primary_key=True)
    barcode: str = Field(sa_type=IndexableText, index=True)
    order_key: str = Field(sa_type=PlainText, foreign_key="orders.key", ondelete="CASCADE", index=True)
    line: str = Field(sa_type=PlainText, index=True)
    specimen_id: str = Field(sa_type=PlainText)
    patient_reference: str = Field(sa_type=PlainText)


class JobRow(TableRow, table=True):
    """A row of the outbox (`Job`)."""

    __tablename__ = "jobs"
    __table_args__ = (
        partial_index("ix_jobs_claimable", states_condition(CLAIMABLE_STATES), "kind", "gives_way", "due_at", "id"),
        partial_index("ix_jobs_ordering_key", states_condition(BLOCKING_STATES), "ordering_key", "id"),
        partial_index("ix_jobs_leased", states_condition(IN_FLIGHT_STATES), "lease_until"),
        partial_index("ix_jobs_open", states_condition(OPEN_JOBS), "first_due_at", "id", "kind", "state"),
        partial_index("ix_jobs_needing_operator", states_condition(JOBS_NEEDING_OPERATOR), "first_due_at", "id"),
        partial_index("ix_jobs_order_key_id", "order_key IS NOT NULL", "order_key", "id"),
        Index("ix_jobs_kind_state_id", "kind", "state", "id"),
        partial_index("ix_jobs_without_order", "order_key IS NULL", "changed_at"),
        partial_index("ix_jobs_failing", "failing_since IS NOT NULL", *_FAILURE_COLUMNS),
        {"sqlite_autoincrement": True},
    )

    id: int = Field(sa_type=RowNumber, primary_key=True)
    kind: JobKind = Field(sa_column=Column(EnumText(JobKind), nullable=False))
    dedup_key: str = Field(sa_type=IndexableText, unique=True)
    ordering_key: str = Field(sa_type=IndexableText)
    target: str = Field(sa_type=IndexableText, index=True)
    order_key: str | None = Field(sa_type=IndexableText)
    payload: Mapping[str, Any] = Field(sa_type=ExactJson)
    state: JobState = Field(sa_column=Column(EnumText(JobState), nullable=False))
    started: bool
    attempts: int
    due_at: datetime = Field(sa_type=UtcDateTime)
    gives_way: bool = Field(sa_column=Column(Boolean(), nullable=False, server_default=false()))
    system: str = Field(sa_type=IndexableText)
    first_due_at: datetime = Field(sa_type=UtcDateTime)
    created_at: datetime = Field(sa_type=UtcDateTime)
    changed_at: datetime = Field(sa_type=UtcDateTime)
    reason: str | None = Field(sa_type=PlainText)
    owner: str | None = Field(sa_type=PlainText)
    fencing_token: int = Field(sa_type=BigInteger)
    lease_until: datetime | None = Field(sa_type=UtcDateTime)
    failing_since: datetime | None = Field(sa_type=UtcDateTime)
    failure_cause: FailureCause | None = Field(sa_column=Column(EnumText(FailureCause), nullable=True))
    failures: int
    attempt_log: tuple[AttemptRecord, ...] = Field(sa_column=Column(AttemptLog(), nullable=True))
    in_place_of: int | None = Field(sa_type=RowNumber)


class ReportRow(TableRow, table=True):
    """A message of a LIS (`ReportRecord`)."""

    __tablename__ = "reports"
    __table_args__ = (
        Index("ix_reports_source_message", "source", "message"),
        partial_index("ix_reports_source_report_id", "report_id IS NOT NULL", "source", "report_id", "sequence"),
        Index("ix_reports_source_received_at", "source", "received_at"),
        partial_index("ix_reports_order_key_report_id", "order_key IS NOT NULL", "order_key", "report_id"),
        Index("ix_reports_state", "state", "sequence"),
        partial_index("ix_reports_without_order", "order_key IS NULL", "changed_at"),
        partial_index("ix_reports_needing_operator", states_condition(REPORTS_NEEDING_OPERATOR), "sequence"),
        partial_index("ix_reports_waiting", states_condition(REPORTS_NEEDING_OPERATOR), *_WAITING_COLUMNS),
        {"sqlite_autoincrement": True},
    )

    sequence: int = Field(sa_type=RowNumber, primary_key=True)
    key: str = Field(sa_type=PlainText, unique=True)
    source: str = Field(sa_type=IndexableText)
    message: str = Field(sa_type=IndexableText)
    report_id: str | None = Field(sa_type=IndexableText)
    version: int | None = Field(sa_type=BigInteger)
    issued: datetime | None = Field(sa_type=UtcDateTime)
    state: ReportState = Field(sa_column=Column(EnumText(ReportState), nullable=False))
    order_key: str | None = Field(sa_type=IndexableText)
    patient_confirmed_for: str | None = Field(sa_type=PlainText)
    matched_adapter: str | None = Field(sa_type=PlainText)
    lines: tuple[str, ...] = Field(sa_type=TextTuple)
    hold_reason: HoldReason | None = Field(sa_column=Column(EnumText(HoldReason), nullable=True))
    reason: str | None = Field(sa_type=PlainText)
    received_at: datetime = Field(sa_type=UtcDateTime)
    changed_at: datetime = Field(sa_type=UtcDateTime)
    body: bytes
    outgoing_body: bytes | None


class AwaitedNameRow(TableRow, table=True):
    """A name of an order by which a report was unmatched, so that it is found when an order of that name comes."""

    __tablename__ = "awaited_names"
    __table_args__ = (Index("ix_awaited_names_report", "report"),)

    name: str = Field(sa_type=IndexableText, primary_key=True)
    report: str = Field(sa_type=PlainText, foreign_key="reports.key", ondelete="CASCADE", primary_key=True)


class UploadRow(TableRow, table=True):
    """A resource of ours on the service (`UploadRecord`)."""

    __tablename__ = "uploads"
    identifier: str = Field(sa_type=IndexableText, primary_key=True)
    resource_type: str = Field(sa_type=PlainText)
    resource_id: str = Field(sa_type=PlainText)
    version: str = Field(sa_type=PlainText)
    digest: str = Field(sa_type=PlainText)
    order_key: str = Field(sa_type=PlainText, index=True)
    report: str = Field(sa_type=PlainText)


class EventRow(TableRow, table=True):
    """A line of an order's timeline, of a report's history, of both, or of a refused message's history (`Event`)."""

    __tablename__ = "events"
    __table_args__ = (
        partial_index("ix_events_order_key", "order_key IS NOT NULL", "order_key"),
        partial_index("ix_events_report", "report IS NOT NULL", "report"),
        partial_index("ix_events_refused_message", "refused_message IS NOT NULL", "refused_message"),
        partial_index("ix_events_without_order", "order_key IS NULL", "at"),
        partial_index("ix_events_document_orphans", f"action = '{DOCUMENT_ORPHAN_ACTION}'", "at", "number"),
    )

    number: int = Field(sa_type=RowNumber, primary_key=True)
    order_key: str | None = Field(sa_type=PlainText)
    report: str | None = Field(sa_type=PlainText)
    refused_message: str | None = Field(sa_type=PlainText)
    at: datetime = Field(sa_type=UtcDateTime)
    action: str = Field(sa_type=PlainText)
    text: str = Field(sa_type=PlainText)
    actor: str | None = Field(sa_type=PlainText)


class RejectionRow(TableRow, table=True):
    """That a rule rejected a line of an order."""

    __tablename__ = "rejections"
    __table_args__ = (Index("ix_rejections_rule_at", "rule", "at"),)

    number: int = Field(sa_type=RowNumber, primary_key=True)
    rule: str = Field(sa_type=IndexableText)
    order_key: str = Field(sa_type=PlainText, index=True)
    at: datetime = Field(sa_type=UtcDateTime, index=True)


class AlertRow(TableRow, table=True):
    """Something worth waking somebody for (`Alert`); at most one of a key is open."""

    __tablename__ = "alerts"
    __table_args__ = (partial_index("uq_alerts_open", "closed_at IS NULL", "condition", "subject", unique=True),)
    number: int = Field(sa_type=RowNumber, primary_key=True)
    condition: ConditionId = Field(sa_column=Column(EnumText(ConditionId), nullable=False))
    subject: str = Field(sa_type=IndexableText)
    detail: str = Field(sa_type=PlainText)
    since: datetime = Field(sa_type=UtcDateTime)
    opened_at: datetime = Field(sa_type=UtcDateTime, index=True)
    closed_at: datetime | None = Field(sa_type=UtcDateTime)
    count: int | None


class KeyValueRow(TableRow, table=True):
    """A value by its key."""

    __tablename__ = "key_values"
    key: str = Field(sa_type=IndexableText, primary_key=True)
    value: str = Field(sa_type=PlainText)


# --- tokens and accounts ----------------------------------------------------------------------------------------------------
class OAuthTokenRow(TableRow, table=True):
    """One generation of our sign-in at the service (`StoredToken`), encrypted."""

    __tablename__ = "oauth_tokens"
    generation: int = Field(sa_column=Column(BigInteger(), primary_key=True, autoincrement=False))
    access_token: bytes
    refresh_token: bytes | None
    expires_at: datetime | None = Field(sa_type=UtcDateTime)
    signed_in_at: datetime | None = Field(sa_type=UtcDateTime)
    obtained_at: datetime | None = Field(sa_type=UtcDateTime)


class LeaseRow(TableRow, table=True):
    """A right that one process holds at a time, such as to refresh the sign-in."""

    __tablename__ = "leases"
    name: str = Field(sa_type=PlainText, primary_key=True)
    owner: str = Field(sa_type=PlainText)
    until: datetime = Field(sa_type=UtcDateTime)


class UserRow(TableRow, table=True):
    """A user of the status page (`UserRecord`)."""

    __tablename__ = "users"
    name: str = Field(sa_type=PlainText, primary_key=True)
    role: Role = Field(sa_column=Column(EnumText(Role), nullable=False))
    password_hash: str = Field(sa_type=PlainText)
    created_at: datetime = Field(sa_type=UtcDateTime)
    changed_at: datetime = Field(sa_type=UtcDateTime)
    may_reveal: bool = Field(sa_column=Column(Boolean(), nullable=False, server_default=false()))
    must_change_password: bool = Field(sa_column=Column(Boolean(), nullable=False, server_default=false()))


class ApiTokenRow(TableRow, table=True):
    """A credential of a caller of the laboratory's API (`ApiToken`)."""

    __tablename__ = "api_tokens"
    id: str = Field(sa_type=PlainText, primary_key=True)
    name: str = Field(sa_type=IndexableText, index=True)
    sha256: str = Field(sa_type=PlainText)
    contracts: tuple[str, ...] | None = Field(sa_type=TextTuple)
    created_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime | None = Field(sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(sa_type=UtcDateTime)


orders: Table = METADATA.tables["orders"]
work_orders: Table = METADATA.tables["work_orders"]
lines: Table = METADATA.tables["lines"]
label_uses: Table = METADATA.tables["label_uses"]
jobs: Table = METADATA.tables["jobs"]
reports: Table = METADATA.tables["reports"]
awaited_names: Table = METADATA.tables["awaited_names"]
uploads: Table = METADATA.tables["uploads"]
events: Table = METADATA.tables["events"]
rejections: Table = METADATA.tables["rejections"]
alerts: Table = METADATA.tables["alerts"]
key_values: Table = METADATA.tables["key_values"]
oauth_tokens: Table = METADATA.tables["oauth_tokens"]
leases: Table = METADATA.tables["leases"]
users: Table = METADATA.tables["users"]
api_tokens: Table = METADATA.tables["api_tokens"]

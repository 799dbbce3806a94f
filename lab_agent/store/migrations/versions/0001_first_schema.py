"""The first schema: journal, job queue, identification data, documents, sign-in, accounts, catalogue."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
oldest_program: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:
    op.create_table(
        "alerts",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("condition", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("count", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_alerts"),
    )
    op.create_index("ix_alerts_opened_at", "alerts", ["opened_at"])
    op.create_index("uq_alerts_open", "alerts", ["condition", "subject"], unique=True, **_where("closed_at IS NULL"))

    op.create_table(
        "api_refusals",
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("client", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("start", "reason", "client", name="pk_api_refusals"),
    )

    op.create_table(
        "api_tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("contracts", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_tokens"),
    )
    op.create_index("ix_api_tokens_name", "api_tokens", ["name"])

    op.create_table(
        "catalogues",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_catalogues"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_catalogues_since", "catalogues", ["since"])

    op.create_table(
        "documents",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_documents"),
    )
    op.create_index("ix_documents_kept_at", "documents", ["kept_at"])

    op.create_table(
        "events",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("order_key", sa.Text(), nullable=True),
        sa.Column("report", sa.Text(), nullable=True),
        sa.Column("refused_message", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_events"),
    )
    op.create_index("ix_events_order_key", "events", ["order_key"], **_where("order_key IS NOT NULL"))
    op.create_index("ix_events_refused_message", "events", ["refused_message"], **_where("refused_message IS NOT NULL"))
    op.create_index("ix_events_report", "events", ["report"], **_where("report IS NOT NULL"))
    op.create_index("ix_events_without_order", "events", ["at"], **_where("order_key IS NULL"))
    op.create_index("ix_events_document_orphans", "events", ["at", "number"], **_where("action = 'document_orphan'"))

    op.create_table(
        "hosted_documents",
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=False),
        sa.Column("order_key", sa.Text(), nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("address", name="pk_hosted_documents"),
    )
    op.create_index("ix_hosted_documents_document", "hosted_documents", ["document"])
    op.create_index("ix_hosted_documents_order_key", "hosted_documents", ["order_key"])

    op.create_table(
        "identities",
        sa.Column("order_key", sa.Text(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("order_key", name="pk_identities"),
    )

    op.create_table(
        "issued_labels",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("serial", sa.BigInteger(), nullable=False),
        sa.Column("basket", sa.Text(), nullable=True),
        sa.Column("tube_slot", sa.Text(), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("order_key", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_issued_labels"),
        sa.UniqueConstraint("label", name="uq_issued_labels_label"),
    )
    op.create_index("ix_issued_labels_basket", "issued_labels", ["basket"])
    op.create_index("ix_issued_labels_order_key", "issued_labels", ["order_key"])

    op.create_table(
        "jobs",
        sa.Column("id", _NUMBER, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("dedup_key", sa.Text(), nullable=False),
        sa.Column("ordering_key", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("order_key", sa.Text(), nullable=True),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started", sa.Boolean(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("system", sa.Text(), nullable=False),
        sa.Column("first_due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("fencing_token", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failure_cause", sa.Text(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("dedup_key", name="uq_jobs_dedup_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_jobs_claimable", "jobs", ["kind", "due_at", "id"], **_where("state IN ('due', 'outcome_unknown')"))
    op.create_index("ix_jobs_without_order", "jobs", ["changed_at"], **_where("order_key IS NULL"))
    op.create_index(
        "ix_jobs_failing",
        "jobs",
        ["failure_cause", "system", "kind", "state", "first_due_at", "failing_since", "failures", "id"],
        **_where("failing_since IS NOT NULL"),
    )
    op.create_index("ix_jobs_kind_state_id", "jobs", ["kind", "state", "id"])
    op.create_index("ix_jobs_leased", "jobs", ["lease_until"], **_where("state IN ('in_flight')"))
    op.create_index(
        "ix_jobs_needing_operator", "jobs", ["first_due_at", "id"], **_where("state IN ('dead_letter', 'needs_review')")
    )
    op.create_index(
        "ix_jobs_open",
        "jobs",
        ["first_due_at", "id", "kind", "state"],
        **_where("state IN ('dead_letter', 'due', 'in_flight', 'needs_review', 'outcome_unknown')"),
    )
    op.create_index("ix_jobs_order_key_id", "jobs", ["order_key", "id"], **_where("order_key IS NOT NULL"))
    op.create_index(
        "ix_jobs_ordering_key",
        "jobs",
        ["ordering_key", "id"],
        **_where("state IN ('due', 'in_flight', 'needs_review', 'outcome_unknown')"),
    )
    op.create_index("ix_jobs_target", "jobs", ["target"])

    op.create_table(
        "key_values",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_key_values"),
    )

    op.create_table(
        "label_ranges",
        sa.Column("pattern", sa.Text(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("next_number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pattern", "first", name="pk_label_ranges"),
    )

    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )

    op.create_table(
        "notification_channels",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reminded_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("sent_at", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_notification_channels"),
    )

    op.create_table(
        "notifications",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("condition", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("noticed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("affected", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("channel", "condition", "subject", name="pk_notifications"),
    )

    op.create_table(
        "oauth_tokens",
        sa.Column("generation", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("access_token", sa.LargeBinary(), nullable=False),
        sa.Column("refresh_token", sa.LargeBinary(), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("generation", name="pk_oauth_tokens"),
    )

    op.create_table(
        "orders",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("contract", sa.Text(), nullable=True),
        sa.Column("requisition", sa.Text(), nullable=True),
        sa.Column("requisition_value", sa.Text(), nullable=True),
        sa.Column("counterparty", sa.Text(), nullable=True),
        sa.Column("patient_reference", sa.Text(), nullable=True),
        sa.Column("released_findings", sa.Text(), nullable=False),
        sa.Column("expected_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("seen_lines", sa.Text(), nullable=True),
        sa.Column("received", sa.LargeBinary(), nullable=True),
        sa.Column("lab_order", sa.LargeBinary(), nullable=True),
        sa.Column("sent_statuses", sa.Text(), nullable=False),
        sa.Column("ended_as", sa.Text(), nullable=True),
        sa.Column("recheck_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reopened", sa.Integer(), nullable=False),
        sa.Column("unreadable_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("held_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("hold_cause", sa.Text(), nullable=True),
        sa.Column("task_unreadable_since", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("key", name="pk_orders"),
        sa.UniqueConstraint("task_id", name="uq_orders_task_id"),
    )
    op.create_index("ix_orders_expected", "orders", ["expected_at", "key"], **_where("state <> 'closed'"))
    op.create_index("ix_orders_recheck", "orders", ["recheck_at"], **_where("recheck_at IS NOT NULL"))
    op.create_index("ix_orders_open", "orders", ["key"], **_where("state <> 'closed'"))
    op.create_index("ix_orders_requisition_value", "orders", ["requisition_value"])
    op.create_index("ix_orders_seen_at_key", "orders", ["seen_at", "key"])
    op.create_index("ix_orders_state_changed_at", "orders", ["state", "changed_at"])
    op.create_index("ix_orders_held", "orders", ["held_since", "key"], **_where("state IN ('held')"))
    op.create_index("ix_orders_hold_cause", "orders", ["hold_cause", "held_since", "key"], **_where("state IN ('held')"))
    op.create_index(
        "ix_orders_task_unreadable", "orders", ["task_unreadable_since"], **_where("task_unreadable_since IS NOT NULL")
    )

    op.create_table(
        "refused_contents",
        sa.Column("refused_key", sa.Text(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("refused_key", name="pk_refused_contents"),
    )

    op.create_table(
        "refused_messages",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("is_kept", sa.Boolean(), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_refused_messages"),
    )
    op.create_index("ix_refused_messages_kept", "refused_messages", ["last_seen_at"], **_where("is_kept"))
    op.create_index("ix_refused_messages_source_first_seen_at", "refused_messages", ["source", "first_seen_at"])
    op.create_index(
        "ix_refused_messages_waiting", "refused_messages", ["source", "first_seen_at", "key"], **_where("state IN ('waiting')")
    )

    op.create_table(
        "work_orders",
        sa.Column("order_key", sa.Text(), nullable=False),
        sa.Column("adapter", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("accession", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("waits_since", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("order_key", "adapter", name="pk_work_orders"),
        sa.ForeignKeyConstraint(["order_key"], ["orders.key"], name="fk_work_orders_order_key", ondelete="CASCADE"),
    )
    op.create_index("ix_work_orders_accession", "work_orders", ["accession"])
    op.create_index("ix_work_orders_to_hand_over", "work_orders", ["adapter"], **_where("state IN ('accepted')"))
    op.create_index("ix_work_orders_waiting", "work_orders", ["adapter", "waits_since"], **_where("waits_since IS NOT NULL"))

    op.create_table(
        "rejections",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("order_key", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_rejections"),
    )
    op.create_index("ix_rejections_at", "rejections", ["at"])
    op.create_index("ix_rejections_order_key", "rejections", ["order_key"])
    op.create_index("ix_rejections_rule_at", "rejections", ["rule", "at"])

    op.create_table(
        "reports",
        sa.Column("sequence", _NUMBER, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("report_id", sa.Text(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=True),
        sa.Column("issued", sa.DateTime(timezone=True), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("order_key", sa.Text(), nullable=True),
        sa.Column("patient_confirmed_for", sa.Text(), nullable=True),
        sa.Column("matched_adapter", sa.Text(), nullable=True),
        sa.Column("lines", sa.Text(), nullable=False),
        sa.Column("hold_reason", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("outgoing_body", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("sequence", name="pk_reports"),
        sa.UniqueConstraint("key", name="uq_reports_key"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_reports_needing_operator", "reports", ["sequence"], **_where("state IN ('held', 'unmapped', 'unmatched')")
    )
    op.create_index(
        "ix_reports_waiting",
        "reports",
        ["state", "hold_reason", "source", "received_at", "sequence"],
        **_where("state IN ('held', 'unmapped', 'unmatched')"),
    )
    op.create_index("ix_reports_order_key_report_id", "reports", ["order_key", "report_id"], **_where("order_key IS NOT NULL"))
    op.create_index("ix_reports_source_message", "reports", ["source", "message"])
    op.create_index("ix_reports_source_received_at", "reports", ["source", "received_at"])
    op.create_index("ix_reports_without_order", "reports", ["changed_at"], **_where("order_key IS NULL"))
    op.create_index("ix_reports_state", "reports", ["state", "sequence"])

    op.create_table(
        "reported_patients",
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["report"], ["reports.key"], name="fk_reported_patients_report", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("report", name="pk_reported_patients"),
    )

    op.create_table(
        "service_messages",
        sa.Column("job_id", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("order_key", sa.Text(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name="pk_service_messages"),
    )
    op.create_index("ix_service_messages_order_key", "service_messages", ["order_key"])

    op.create_table(
        "turnaround_notices",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        sa.Column("contract", sa.Text(), nullable=True),
        sa.Column("start_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("end_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delay_hours", sa.Text(), nullable=True),
        sa.Column("caption", sa.Text(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column("lifted_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_turnaround_notices"),
        sa.UniqueConstraint("key", name="uq_turnaround_notices_key"),
    )
    op.create_index("ix_turnaround_notices_end_at", "turnaround_notices", ["end_at"])
    op.create_index("ix_turnaround_notices_item", "turnaround_notices", ["item"])

    op.create_table(
        "uploads",
        sa.Column("identifier", sa.Text(), nullable=False),
        sa.Column("resource_type", sa.Text(), nullable=False),
        sa.Column("resource_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("order_key", sa.Text(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("identifier", name="pk_uploads"),
    )
    op.create_index("ix_uploads_order_key", "uploads", ["order_key"])

    op.create_table(
        "users",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_users"),
    )

    op.create_table(
        "workers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("beat_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("loop_lag_ms", sa.Integer(), nullable=False),
        sa.Column("stalled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stalled_ms", sa.Integer(), nullable=False),
        sa.Column("ended_part", sa.Text(), nullable=True),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("stopped_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stopped_by", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_workers"),
    )
    op.create_index("ix_workers_beat_at", "workers", ["beat_at"])

    op.create_table(
        "label_uses",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("barcode", sa.Text(), nullable=False),
        sa.Column("order_key", sa.Text(), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.Column("specimen_id", sa.Text(), nullable=False),
        sa.Column("patient_reference", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_label_uses"),
        sa.ForeignKeyConstraint(["order_key"], ["orders.key"], name="fk_label_uses_order_key", ondelete="CASCADE"),
    )
    op.create_index("ix_label_uses_barcode", "label_uses", ["barcode"])
    op.create_index("ix_label_uses_line", "label_uses", ["line"])
    op.create_index("ix_label_uses_order_key", "label_uses", ["order_key"])

    op.create_table(
        "lines",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("order_key", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("procedure_request_id", sa.Text(), nullable=True),
        sa.Column("item", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("adapter", sa.Text(), nullable=True),
        sa.Column("accession", sa.Text(), nullable=True),
        sa.Column("outputs", sa.Text(), nullable=False),
        sa.Column("sent_statuses", sa.Text(), nullable=False),
        sa.Column("ended_as", sa.Text(), nullable=True),
        sa.Column("reopened", sa.Integer(), nullable=False),
        sa.Column("task_unreadable_since", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_lines"),
        sa.ForeignKeyConstraint(["order_key"], ["orders.key"], name="fk_lines_order_key", ondelete="CASCADE"),
        sa.UniqueConstraint("key", name="uq_lines_key"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_lines_open", "lines", ["state", "adapter"], **_where("state IN ('accepted', 'held', 'requested', 'resulted')")
    )
    op.create_index("ix_lines_accession", "lines", ["accession"])
    op.create_index("ix_lines_task_unreadable", "lines", ["task_unreadable_since"], **_where("task_unreadable_since IS NOT NULL"))
    op.create_index("ix_lines_order_key", "lines", ["order_key"])
    op.create_index("ix_lines_procedure_request_id", "lines", ["procedure_request_id"])
    op.create_index("ix_lines_task_id", "lines", ["task_id"])

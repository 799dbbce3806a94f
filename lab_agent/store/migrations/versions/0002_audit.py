"""The audit: its records, which triggers keep from being changed, the notes about them, and the head of the chain."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None
oldest_program: str = "0001"

_MAY_GO = "{row}.number <= COALESCE((SELECT anchor_number FROM audit_head WHERE id = 1), 0)"
_SQLITE_UPDATE = """
CREATE TRIGGER audit_records_no_update BEFORE UPDATE ON audit_records
BEGIN SELECT RAISE(ABORT, 'records of the audit are never changed'); END
"""
_SQLITE_DELETE = f"""
CREATE TRIGGER audit_records_no_delete BEFORE DELETE ON audit_records WHEN NOT ({_MAY_GO.format(row="OLD")})
BEGIN SELECT RAISE(ABORT, 'records of the audit are not deleted before they are purged'); END
"""
_POSTGRESQL_FUNCTION = f"""
CREATE FUNCTION reject_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
IF TG_OP = 'DELETE' AND {_MAY_GO.format(row="OLD")} THEN RETURN OLD; END IF;
RAISE EXCEPTION 'records of the audit are neither changed, nor deleted before they are purged'; END $$
"""
_POSTGRESQL_TRIGGER = """
CREATE TRIGGER audit_records_no_change BEFORE UPDATE OR DELETE ON audit_records
FOR EACH ROW EXECUTE FUNCTION reject_audit_change()
"""
_TRIGGERS = {"sqlite": (_SQLITE_UPDATE, _SQLITE_DELETE), "postgresql": (_POSTGRESQL_FUNCTION, _POSTGRESQL_TRIGGER)}


def upgrade() -> None:
    op.create_table(
        "audit_records",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("note_digest", sa.Text(), nullable=True),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit_records"),
    )
    op.create_index("ix_audit_records_at", "audit_records", ["at"])
    op.create_index("ix_audit_records_subject", "audit_records", ["subject"])
    op.create_table(
        "audit_notes",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("order_key", sa.Text(), nullable=True),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit_notes"),
    )
    op.create_index("ix_audit_notes_order_key", "audit_notes", ["order_key"])
    op.create_table(
        "audit_head",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("anchor_number", sa.BigInteger(), nullable=False),
        sa.Column("anchor_hash", sa.Text(), nullable=False),
        sa.Column("seal", sa.Text(), nullable=False),
        sa.Column("sealed_key", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_head"),
    )
    for statement in _TRIGGERS[op.get_bind().dialect.name]:
        op.execute(statement)

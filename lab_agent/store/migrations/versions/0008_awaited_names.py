"""Reports found by their id, and unmatched ones by the names of the order that they wait for."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None
oldest_program: str = "0001"


def upgrade() -> None:
    has_id = sa.text("report_id IS NOT NULL")
    op.create_index(
        "ix_reports_source_report_id",
        "reports",
        ["source", "report_id", "sequence"],
        sqlite_where=has_id,
        postgresql_where=has_id,
    )
    op.create_table(
        "awaited_names",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["report"], ["reports.key"], name="fk_awaited_names_report_reports", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("name", "report", name="pk_awaited_names"),
    )
    op.create_index("ix_awaited_names_report", "awaited_names", ["report"])

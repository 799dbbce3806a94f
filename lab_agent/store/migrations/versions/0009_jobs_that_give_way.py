"""Jobs that are claimed when nothing else of their kind is due."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None
oldest_program: str = "0001"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("gives_way", sa.Boolean(), nullable=False, server_default=sa.false()))
    claimable = sa.text("state IN ('due', 'outcome_unknown')")
    op.drop_index("ix_jobs_claimable", "jobs")
    op.create_index(
        "ix_jobs_claimable",
        "jobs",
        ["kind", "gives_way", "due_at", "id"],
        sqlite_where=claimable,
        postgresql_where=claimable,
    )

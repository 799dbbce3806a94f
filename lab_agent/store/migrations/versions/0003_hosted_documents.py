"""Documents that the laboratory's API serves under an unguessable address."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "hosted",
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=False),
        sa.Column("order_key", sa.Text(), nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("address", name="pk_hosted"),
    )
    op.create_index("ix_hosted_document", "hosted", ["document"])
    op.create_index("ix_hosted_order_key", "hosted", ["order_key"])


def downgrade() -> None:
    op.drop_table("hosted")

"""The history of a report: who decided about it, also while its order is not known."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    with op.batch_alter_table("events") as events:
        events.alter_column("order_key", existing_type=sa.Text(), nullable=True)
        events.add_column(sa.Column("report", sa.Text(), nullable=True))
    op.create_index("ix_events_report", "events", ["report"])

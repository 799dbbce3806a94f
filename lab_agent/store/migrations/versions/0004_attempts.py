"""The newest attempts at each job."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None
oldest_program: str = "0001"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("attempt_log", sa.Text(), nullable=True))

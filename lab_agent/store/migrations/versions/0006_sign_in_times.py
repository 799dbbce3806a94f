"""When somebody signed in at the service, and when the token was last refreshed."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None
oldest_program: str = "0001"


def upgrade() -> None:
    for name in ("signed_in_at", "obtained_at"):
        op.add_column("oauth_tokens", sa.Column(name, sa.DateTime(timezone=True), nullable=True))

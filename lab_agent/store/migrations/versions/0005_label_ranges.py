"""How far labels were given, by pattern and beginning of the range, so that a new range of a pool may lie anywhere.

The table of the pools knew neither; nothing is taken over. What was given stands in `labels_given`, and is given to nobody else.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.drop_table("label_pools")
    op.create_table(
        "label_ranges",
        sa.Column("pattern", sa.Text(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("following", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pattern", "first", name="pk_label_ranges"),
    )


def downgrade() -> None:
    op.drop_table("label_ranges")
    op.create_table(
        "label_pools",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("following", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pool", name="pk_label_pools"),
    )

"""What the laboratory offers: catalogue versions, turnaround notices, labels, tokens of the callers of its API."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _moment(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "catalogues",
        sa.Column("number", _NUMBER, nullable=False),
        _text("version"),
        _moment("since"),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        _text("origin"),
        _text("actor", nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_catalogues"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_catalogues_since", "catalogues", ["since"])

    op.create_table(
        "eta_notices",
        sa.Column("number", _NUMBER, nullable=False),
        _text("key"),
        _text("item"),
        _text("contract", nullable=True),
        _moment("start_at"),
        _moment("end_at"),
        _text("delay_hours", nullable=True),
        _text("caption"),
        _moment("made_at"),
        _text("actor", nullable=True),
        _moment("cleared_at", nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_eta_notices"),
        sa.UniqueConstraint("key", name="uq_eta_notices_key"),
    )
    op.create_index("ix_eta_notices_item", "eta_notices", ["item"])
    op.create_index("ix_eta_notices_end_at", "eta_notices", ["end_at"])

    op.create_table(
        "label_pools",
        _text("pool"),
        sa.Column("following", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pool", name="pk_label_pools"),
    )

    op.create_table(
        "labels_given",
        sa.Column("number", _NUMBER, nullable=False),
        _text("label"),
        _text("pool"),
        sa.Column("serial", sa.BigInteger(), nullable=False),
        _text("basket", nullable=True),
        _text("place"),
        _moment("given_at"),
        _moment("used_at", nullable=True),
        _text("order_key", nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_labels_given"),
        sa.UniqueConstraint("label", name="uq_labels_given_label"),
    )
    op.create_index("ix_labels_given_basket", "labels_given", ["basket"])
    op.create_index("ix_labels_given_order_key", "labels_given", ["order_key"])

    op.create_table(
        "api_tokens",
        _text("id"),
        _text("name"),
        _text("sha256"),
        _text("contracts", nullable=True),
        _moment("created_at"),
        _moment("expires_at", nullable=True),
        _moment("revoked_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_tokens"),
    )
    op.create_index("ix_api_tokens_name", "api_tokens", ["name"])

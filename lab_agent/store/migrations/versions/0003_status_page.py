"""What the status page reads: numbers of orders by any part, digests of patients, sessions, hours, and the right to reveal."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None
oldest_program: str = "0001"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_SEPARATOR = {"sqlite": "char(10)", "postgresql": "chr(10)"}
_JOIN = {"sqlite": "group_concat", "postgresql": "string_agg"}
_FILL = """
INSERT INTO order_search (order_key, terms)
SELECT o.key, o.key || {nl} || o.task_id || COALESCE({nl} || o.requisition_value, '')
  || COALESCE({nl} || (SELECT {join}(l.key || {nl} || l.task_id || COALESCE({nl} || l.accession, ''), {nl}) FROM lines l
                       WHERE l.order_key = o.key), '')
  || COALESCE({nl} || (SELECT {join}(u.barcode, {nl}) FROM label_uses u WHERE u.order_key = o.key), '')
  || COALESCE({nl} || (SELECT {join}(w.accession, {nl}) FROM work_orders w WHERE w.order_key = o.key), '')
FROM orders o WHERE o.state <> 'seen' ORDER BY o.seen_at, o.key
"""
_SQLITE = (
    """CREATE VIRTUAL TABLE order_search_index
    USING fts5(terms, content='order_search', content_rowid='number', tokenize='trigram')""",
    """CREATE TRIGGER order_search_added AFTER INSERT ON order_search
    BEGIN INSERT INTO order_search_index (rowid, terms) VALUES (NEW.number, NEW.terms); END""",
    """CREATE TRIGGER order_search_removed AFTER DELETE ON order_search
    BEGIN INSERT INTO order_search_index (order_search_index, rowid, terms) VALUES ('delete', OLD.number, OLD.terms); END""",
    """CREATE TRIGGER order_search_changed AFTER UPDATE OF terms ON order_search
    BEGIN INSERT INTO order_search_index (order_search_index, rowid, terms) VALUES ('delete', OLD.number, OLD.terms);
    INSERT INTO order_search_index (rowid, terms) VALUES (NEW.number, NEW.terms); END""",
)
_POSTGRESQL = (
    """CREATE FUNCTION search_grams(terms text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT array(SELECT DISTINCT substr(lower(terms), place, 3) FROM generate_series(1, length(terms) - 2) AS place) $$""",
    "CREATE INDEX ix_order_search_grams ON order_search USING gin (search_grams(terms))",
)
_INDEXES = {"sqlite": _SQLITE, "postgresql": _POSTGRESQL}


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    op.add_column("users", sa.Column("may_reveal", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "status_sessions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_status_sessions"),
    )
    op.create_index("ix_status_sessions_account", "status_sessions", ["account"])
    op.create_index("ix_status_sessions_expires_at", "status_sessions", ["expires_at"])
    op.create_table(
        "hourly_activity",
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("measure", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("median", sa.Float(), nullable=True),
        sa.Column("percentile_95", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("hour", "measure", name="pk_hourly_activity"),
    )
    op.create_table(
        "patient_digests",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("order_key", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", "order_key", name="pk_patient_digests"),
    )
    op.create_index("ix_patient_digests_order_key", "patient_digests", ["order_key"])
    op.create_table(
        "order_search",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("order_key", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_order_search"),
        sa.ForeignKeyConstraint(["order_key"], ["orders.key"], name="fk_order_search_order_key", ondelete="CASCADE"),
        sa.UniqueConstraint("order_key", name="uq_order_search_order_key"),
        sqlite_autoincrement=True,
    )
    for statement in _INDEXES[dialect]:
        op.execute(statement)
    op.execute(_FILL.format(nl=_SEPARATOR[dialect], join=_JOIN[dialect]))
    op.create_index("ix_orders_contract_seen_at_key", "orders", ["contract", "seen_at", "key"])
    op.create_index("ix_lines_item_order_key", "lines", ["item", "order_key"])
    op.create_index("ix_issued_labels_pool_issued_at", "issued_labels", ["pool", "issued_at"])

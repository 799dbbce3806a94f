"""Fills a database with copies of an order, by SQL alone, so that years of work are there in a minute."""

from __future__ import annotations

from sqlalchemy import Connection, DateTime, Engine, inspect, text

_TABLES = ("orders", "work_orders", "lines", "label_uses", "jobs", "reports", "uploads", "events", "identities", "order_search")
"""Those that hold something of an order, the referenced one first."""
_NUMBERED = frozenset(
    (
        *("key", "order_key", "task_id", "procedure_request_id", "requisition_value", "line", "barcode", "specimen_id"),
        *("patient_reference", "dedup_key", "ordering_key", "target", "message", "report_id", "identifier", "report", "terms"),
    )
)
"""Columns that tell one order from another: a copy has its number behind the value."""
_SHIFTS = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f000', {{column}}, ((copy - :newest) * {apart}) || ' seconds')",
    "postgresql": "{{column}} + (copy - :newest) * interval '{apart} seconds'",
}
"""An older time, as the database writes it."""
_CHUNK = 5000


def copy_order(engine: Engine, state: str, first: int, copies: int, *, apart: float = 0.0) -> None:
    """Copy an order of this state, with all that belongs to it, as often as wanted; `first` is the number of the first copy.

    The times of the last copy are those of the original; each copy before it is so many seconds older than the next.
    """
    with engine.connect() as connection:
        original = connection.execute(
            text("SELECT key FROM orders WHERE state = :state AND key NOT LIKE '%.%' ORDER BY seen_at LIMIT 1"), {"state": state}
        ).scalar_one()
        statements = [_copy_statement(connection, table, apart) for table in _TABLES]
    for begin in range(first, first + copies, _CHUNK):
        last = min(begin + _CHUNK, first + copies) - 1
        with engine.begin() as connection:
            for statement in statements:
                numbers = {"original": original, "first": begin, "last": last}
                connection.execute(text(statement), numbers | ({"newest": first + copies - 1} if apart else {}))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(
            text("VACUUM ANALYZE" if engine.dialect.name == "postgresql" else "ANALYZE")
        )  # as its autovacuum would


def _copy_statement(connection: Connection, table: str, apart: float) -> str:
    columns = [each for each in inspect(connection).get_columns(table) if not _is_generated(table, each["name"])]
    names = [each["name"] for each in columns]
    times = {each["name"] for each in columns if isinstance(each["type"], DateTime)} if apart else set[str]()
    shift = _SHIFTS[connection.dialect.name].format(apart=apart)
    copied = (shift.format(column=f"original.{each}") if each in times else _expression(each) for each in names)
    order = "key" if table == "orders" else "order_key"
    return (
        f"INSERT INTO {table} ({', '.join(names)}) "  # noqa: S608 - names of our own schema
        "WITH RECURSIVE numbers(copy) AS "
        "(SELECT CAST(:first AS BIGINT) UNION ALL SELECT copy + 1 FROM numbers WHERE copy < :last) "
        f"SELECT {', '.join(copied)} FROM numbers CROSS JOIN {table} original WHERE original.{order} = :original"
    )


def _is_generated(table: str, column: str) -> bool:
    """Whether the database numbers the rows by this column."""
    return (table, column) in {("lines", "number"), ("label_uses", "number"), ("jobs", "id"), ("reports", "sequence"),
                               ("events", "number"), ("order_search", "number")}  # fmt: skip


def _expression(column: str) -> str:
    if column == "recheck_at":  # checks after an order's end are due once; years of them at the same moment are no load of a day
        return "NULL"
    return f"original.{column} || '.' || copy" if column in _NUMBERED else f"original.{column}"

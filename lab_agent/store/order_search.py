"""Orders by any of their numbers, or by a part of one."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, column, select, text, union

from lab_agent.store.column_types import PlainText
from lab_agent.store.read_models import MAX_MATCHED
from lab_agent.store.tables import label_uses, lines, orders, work_orders

_SHORTEST_PART = 3
_SEARCH = bindparam("search", type_=PlainText)
_UPPER = bindparam("upper", type_=PlainText)
_HAVE_WHOLE = (
    select(orders.c.key).where(orders.c.key == _UPPER),
    select(orders.c.key).where(orders.c.task_id == _SEARCH),
    select(orders.c.key).where(orders.c.requisition_value == _SEARCH),
    select(lines.c.order_key).where(lines.c.key == _UPPER),
    select(lines.c.order_key).where(lines.c.task_id == _SEARCH),
    select(lines.c.order_key).where(lines.c.accession == _SEARCH),
    select(work_orders.c.order_key).where(work_orders.c.accession == _SEARCH),
    select(label_uses.c.order_key).where(label_uses.c.barcode == _SEARCH),
)
"""Orders that have this key, Task id, requisition, accession or barcode, themselves or on a line."""
_HAVE_PART = {
    "sqlite": text("""
        SELECT s.order_key FROM order_search_index i JOIN order_search s ON s.number = i.rowid
        WHERE order_search_index MATCH :phrase ORDER BY i.rowid DESC LIMIT :at_most
    """),
    "postgresql": text("""
        WITH newest AS MATERIALIZED (
            SELECT count(*) AS hits FROM (SELECT terms FROM order_search ORDER BY number DESC LIMIT 100) AS of_late
            WHERE position(lower(CAST(:search AS text) COLLATE "C") IN lower(terms COLLATE "C")) > 0
        ), recent AS MATERIALIZED (
            SELECT order_key FROM (SELECT * FROM order_search ORDER BY number DESC LIMIT 25000) AS of_late
            WHERE (SELECT hits FROM newest) >= 4 AND position(lower(:search) IN lower(terms)) > 0
            ORDER BY number DESC LIMIT :at_most
        ), indexed AS MATERIALIZED (
            SELECT number, order_key FROM order_search
            WHERE (SELECT count(*) FROM recent) < :at_most
            AND search_grams(terms) @> search_grams(:search) AND position(lower(:search) IN lower(terms)) > 0
        )
        SELECT order_key FROM recent WHERE (SELECT count(*) FROM recent) >= :at_most
        UNION ALL (SELECT order_key FROM indexed ORDER BY number DESC LIMIT :at_most)
    """),
}
"""Orders of which a number has this part, the newest first.

PostgreSQL's index gives all of them in no order, which is slow where every order has the part: so the newest orders are looked
through first, if a sample of 100 says that enough of them have it (4 of 100 fill the list within 25,000). The sample compares by
the letters of ASCII, in half the time: what it misses, the index finds.
"""


def select_found(dialect: str, search: str) -> Select[Any]:
    """Select the keys of orders of which a number is this, or has it as a part, then the newest.

    Its values are those of `search_values`; of the text, only its length matters here.
    """
    return _select_found_by(dialect, by_part=len(search) >= _SHORTEST_PART)


@cache
def _select_found_by(dialect: str, *, by_part: bool) -> Select[Any]:
    each: list[Select[Any]] = list(_HAVE_WHOLE)
    if by_part:
        each.append(select(_HAVE_PART[dialect].columns(column("order_key")).cte("having_part").c[0]))
    return select(union(*each).subquery().c[0])


def search_values(search: str) -> dict[str, Any]:
    """Give the values of a select of `select_found`."""
    phrase = '"' + search.replace('"', '""') + '"'
    return {"search": search, "upper": search.upper(), "phrase": phrase, "at_most": MAX_MATCHED + 1}

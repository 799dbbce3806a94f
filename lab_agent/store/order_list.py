"""The list of orders: narrowed, searched by any part of a number or by patient, and read page by page from where one ended.

However many orders there are, a page costs the same: what is searched for is looked up in an index of its own and gives at most
`MAX_MATCHED` orders; everything else is read in the order of an index.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select, text, union_all

from lab_agent.crypto import Cipher
from lab_agent.domain.state_machines import ENDED_LINES, JOBS_NEEDING_OPERATOR, OPEN_JOBS, REPORTS_NEEDING_OPERATOR, OrderState
from lab_agent.domain.work_orders import WorkOrder
from lab_agent.ports.queries import MAX_MATCHED, OrderCriteria, OrderCursor, OrderList, OrderSummary
from lab_agent.store.query_pages import fetch_records, is_in
from lab_agent.store.row_mapping import in_states
from lab_agent.store.tables import jobs, label_uses, lines, orders, reports, work_orders
from lab_agent.store.vault import find_by_terms

HELD_STATES = frozenset({OrderState.HELD})
_SHORTEST_PART = 3
_ITEMS_SHOWN = 4
"""Tests of an order that a list names."""
_PARTS = {
    "sqlite": text(
        "SELECT s.order_key FROM order_search_index i JOIN order_search s ON s.number = i.rowid"
        " WHERE order_search_index MATCH :phrase ORDER BY i.rowid DESC LIMIT :at_most"
    ),
    "postgresql": text(
        "SELECT order_key FROM order_search WHERE search_grams(terms) @> search_grams(:part)"
        " AND position(lower(:part) IN lower(terms)) > 0 ORDER BY number DESC LIMIT :at_most"
    ),
}


@dataclass(frozen=True, slots=True)
class _Matches:
    """The orders that have what was searched for; `is_cut` if there are more."""

    keys: frozenset[str]
    is_cut: bool


def load_order_list(
    connection: Connection, cipher: Cipher, criteria: OrderCriteria, cursor: OrderCursor | None, limit: int
) -> OrderList:
    """Give what `Queries.order_list` promises."""
    matches = _find_matches(connection, cipher, criteria)
    if matches is not None and not matches.keys:
        return OrderList(orders=(), has_before=False, has_after=False)
    is_held = criteria.cause is not None or criteria.states == HELD_STATES
    which = _conditions(criteria)
    if matches is not None:
        which.append(orders.c.key.in_(sorted(matches.keys)))
    backwards = cursor is not None and cursor.backwards
    at = orders.c.held_since if is_held else orders.c.seen_at
    ascending = is_held is not backwards
    found = select_order_summaries().where(*which)
    if cursor is not None:
        found = found.where(_beyond(at, cursor, ascending=ascending))
    place = (at, orders.c.key) if ascending else (at.desc(), orders.c.key.desc())
    rows = connection.execute(found.order_by(*place).limit(limit + 1)).mappings().all()
    has_more = len(rows) > limit
    page = rows[:limit][::-1] if backwards else rows[:limit]
    return OrderList(
        orders=complete_summaries(connection, [to_order_summary(row) for row in page]),
        has_before=has_more if backwards else cursor is not None,
        has_after=True if backwards else has_more,
        is_cut=matches is not None and matches.is_cut,
    )


def _beyond(at: ColumnElement[Any], cursor: OrderCursor, *, ascending: bool) -> ColumnElement[bool]:
    key = orders.c.key
    if ascending:
        return and_(at >= cursor.at, or_(at > cursor.at, key > cursor.key))
    return and_(at <= cursor.at, or_(at < cursor.at, key < cursor.key))


def _find_matches(connection: Connection, cipher: Cipher, criteria: OrderCriteria) -> _Matches | None:
    """The orders that have what is searched for; None where nothing is."""
    found: list[_Matches] = []
    if criteria.search:
        keys = set(connection.scalars(_select_exact(criteria.search)))
        parts = _find_parts(connection, criteria.search)
        found.append(_Matches(frozenset(keys.union(parts[:MAX_MATCHED])), len(parts) > MAX_MATCHED))
    if criteria.patient is not None:
        query = find_by_terms(connection, cipher, criteria.patient.search_terms)
        known = [] if query is None else connection.scalars(query.limit(MAX_MATCHED + 1)).all()
        found.append(_Matches(frozenset(known[:MAX_MATCHED]), len(known) > MAX_MATCHED))
    if criteria.item:
        having = select(lines.c.order_key).where(lines.c.item == criteria.item).limit(MAX_MATCHED + 1)
        known = connection.scalars(having).all()
        if len(known) <= MAX_MATCHED:  # of more, the list is read in its own order
            found.append(_Matches(frozenset(known), is_cut=False))
    if not found:
        return None
    keys_of_all = frozenset.intersection(*(each.keys for each in found))
    return _Matches(keys_of_all, any(each.is_cut for each in found))


def _find_parts(connection: Connection, search: str) -> list[str]:
    """Orders of which a number has this part, the newest first."""
    if len(search) < _SHORTEST_PART:
        return []
    phrase = '"' + search.replace('"', '""') + '"'
    asked = {"part": search, "phrase": phrase, "at_most": MAX_MATCHED + 1}
    statement = _PARTS[connection.dialect.name]
    named = {name: value for name, value in asked.items() if f":{name}" in statement.text}
    return list(connection.scalars(statement, named))


def _select_exact(search: str) -> Select[Any]:
    """Orders that have this key, Task id, requisition, accession or barcode, themselves or on a line."""
    upper = search.upper()
    each = (
        select(orders.c.key).where(orders.c.key == upper),
        select(orders.c.key).where(orders.c.task_id == search),
        select(orders.c.key).where(orders.c.requisition_value == search),
        select(lines.c.order_key).where(lines.c.key == upper),
        select(lines.c.order_key).where(lines.c.task_id == search),
        select(lines.c.order_key).where(lines.c.accession == search),
        select(work_orders.c.order_key).where(work_orders.c.accession == search),
        select(label_uses.c.order_key).where(label_uses.c.barcode == search),
    )
    return select(union_all(*each).subquery().c[0]).limit(MAX_MATCHED)


def _conditions(criteria: OrderCriteria) -> list[ColumnElement[bool]]:
    states = HELD_STATES if criteria.cause is not None else criteria.states
    which: list[ColumnElement[bool]] = []
    if states:
        which.append(is_in(orders.c.state, states, many=OrderState.CLOSED in states))
    if criteria.cause is not None:
        which.append(orders.c.hold_cause == criteria.cause)
    if criteria.contract:
        which.append(orders.c.contract == criteria.contract)
    if criteria.seen_from is not None:
        which.append(orders.c.seen_at >= criteria.seen_from)
    if criteria.seen_before is not None:
        which.append(orders.c.seen_at < criteria.seen_before)
    if criteria.item:
        of_item: Select[Any] = select(lines.c.number).where(lines.c.order_key == orders.c.key, lines.c.item == criteria.item)
        which.append(of_item.correlate(orders).exists())
    if criteria.adapter:
        at_system = (work_orders.c.order_key == orders.c.key, work_orders.c.adapter == criteria.adapter)
        which.append(select(work_orders.c.adapter).where(*at_system).correlate(orders).exists())
    return which


def select_order_summaries() -> Select[Any]:
    """Select what `to_order_summary` makes a summary of."""
    own = {"work_orders", "lines", "ended_lines", "open_jobs", "attention_count", "items"}
    columns = [orders.c[field.name] for field in fields(OrderSummary) if field.name not in own]
    its_lines = select(func.count()).select_from(lines).where(lines.c.order_key == orders.c.key)
    its_jobs = select(func.count()).select_from(jobs).where(jobs.c.order_key == orders.c.key)
    its_reports = select(func.count()).select_from(reports).where(reports.c.order_key == orders.c.key)
    asking = its_jobs.where(in_states(jobs.c.state, JOBS_NEEDING_OPERATOR)).scalar_subquery()
    waiting = its_reports.where(in_states(reports.c.state, REPORTS_NEEDING_OPERATOR)).scalar_subquery()
    return select(
        *columns,
        its_lines.scalar_subquery().label("lines"),
        its_lines.where(in_states(lines.c.state, ENDED_LINES)).scalar_subquery().label("ended_lines"),
        its_jobs.where(in_states(jobs.c.state, OPEN_JOBS)).scalar_subquery().label("open_jobs"),
        (asking + waiting).label("attention_count"),
    )


def to_order_summary(row: Any) -> OrderSummary:
    """Make a summary of a row; its work orders and tests are added by `complete_summaries`."""
    return OrderSummary(**row, work_orders=())


def complete_summaries(connection: Connection, found: Collection[OrderSummary]) -> tuple[OrderSummary, ...]:
    """Add the work orders and the tests of a page's orders."""
    keys = [each.key for each in found]
    if not keys:
        return ()
    parts = load_work_orders(connection, keys)
    items: dict[str, list[str]] = {}
    named = select(lines.c.order_key, lines.c.item).where(lines.c.order_key.in_(keys), lines.c.item.is_not(None))
    for key, item in connection.execute(named.order_by(lines.c.number)):
        items.setdefault(key, []).append(item)
    return tuple(
        replace(
            each,
            work_orders=tuple(part for part in parts if part.order == each.key),
            items=tuple(items.get(each.key, ())[:_ITEMS_SHOWN]),
        )
        for each in found
    )


def load_work_orders(connection: Connection, keys: Collection[str]) -> tuple[WorkOrder, ...]:
    """The parts of these orders, by the names of their laboratory systems."""
    found = select(work_orders).where(work_orders.c.order_key.in_(keys)).order_by(work_orders.c.adapter)
    return fetch_records(connection, WorkOrder, found)

"""The list of orders: narrowed, searched by any part of a number or by patient, and read page by page from where one ended.

However many orders there are, a page costs the same: what is searched for is looked up in an index of its own and gives at most
`MAX_MATCHED` orders; everything else is read in the order of an index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any

from sqlalchemy import (
    CTE,
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    case,
    column,
    func,
    or_,
    select,
    text,
    union,
)

from lab_agent.crypto import Cipher
from lab_agent.domain.state_machines import ENDED_LINES, JOBS_NEEDING_OPERATOR, OPEN_JOBS, REPORTS_NEEDING_OPERATOR, OrderState
from lab_agent.domain.work_orders import WorkOrder
from lab_agent.ports.queries import MAX_MATCHED, OrderCriteria, OrderCursor, OrderList, OrderSummary
from lab_agent.store.column_types import PlainText
from lab_agent.store.query_pages import is_in
from lab_agent.store.row_mapping import in_states, to_record, unindexed
from lab_agent.store.tables import jobs, label_uses, lines, orders, reports, work_orders
from lab_agent.store.vault import find_by_terms

HELD_STATES = frozenset({OrderState.HELD})
_SHORTEST_PART = 3
_ITEMS_SHOWN = 4
"""Tests of an order that a list names."""
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
            WHERE position(lower(:search) IN lower(terms)) > 0
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
through first, if a sample of 100 says that enough of them have it (4 of 100 fill the list within 25,000).
"""


def load_order_list(
    connection: Connection, cipher: Cipher, criteria: OrderCriteria, cursor: OrderCursor | None, limit: int
) -> OrderList:
    """Give what `Queries.order_list` promises."""
    matches = _Matches()
    if criteria.search:
        matches.add(_select_found(connection.dialect.name, criteria.search), _search_values(criteria.search))
    if criteria.patient is not None:
        of_patient = find_by_terms(connection, cipher, criteria.patient.search_terms)
        if of_patient is None:
            return OrderList(orders=(), has_before=False, has_after=False)
        matches.add(select(of_patient.subquery().c[0]))
    if criteria.item:
        having = select(lines.c.order_key).where(lines.c.item == criteria.item)
        some = having.limit(MAX_MATCHED + 1).subquery()
        if (connection.scalar(select(func.count()).select_from(some)) or 0) <= MAX_MATCHED:
            matches.add(having)  # of more, the list is read in its own order
    keys = _find_keys(connection, matches, criteria, cursor, limit)
    backwards = cursor is not None and cursor.backwards
    has_more = len(keys) > limit
    return OrderList(
        orders=load_order_summaries(connection, keys[:limit][::-1] if backwards else keys[:limit]),
        has_before=has_more if backwards else cursor is not None,
        has_after=True if backwards else has_more,
        is_cut=matches.is_cut,
    )


class _Matches:
    """The orders that have all that is searched for: of each, `MAX_MATCHED` and one more at most."""

    def __init__(self) -> None:
        self._each: list[CTE] = []
        self._values: dict[str, Any] = {}
        self._counted = 0

    def add(self, keys: Select[Any], values: Mapping[str, Any] = {}) -> None:
        """Narrow them to the orders of these keys."""
        self._each.append(keys.limit(MAX_MATCHED + 1).cte(f"matched_{len(self._each)}"))
        self._values |= values

    def fetch_keys(self, connection: Connection, found: Select[Any], *, narrowed: bool) -> list[str]:
        """Run a select of keys, which is `narrowed` by something else already."""
        if not self._each:
            return list(connection.scalars(found))
        for each in self._each:
            found = found.where(orders.c.key.in_(select(each.c[0])))
        rows = connection.execute(found.add_columns(self._count()), self._values).all()
        if rows:
            self._counted = rows[0][1]
        elif narrowed or len(self._each) > 1:  # there is no row to count beside
            self._counted = connection.scalar(select(self._count()), self._values) or 0
        return [row[0] for row in rows]

    @property
    def is_cut(self) -> bool:
        """Whether there are more than were looked at."""
        return self._counted > MAX_MATCHED

    def _count(self) -> ColumnElement[int]:
        """The number of those that most orders have."""
        numbers = [select(func.count()).select_from(each).scalar_subquery() for each in self._each]
        return numbers[0] if len(numbers) == 1 else case(*((each > MAX_MATCHED, each) for each in numbers), else_=0)

    def __bool__(self) -> bool:
        return bool(self._each)


def _find_keys(
    connection: Connection, matches: _Matches, criteria: OrderCriteria, cursor: OrderCursor | None, limit: int
) -> list[str]:
    """The keys of a page's orders, and of one more."""
    is_held = criteria.cause is not None or criteria.states == HELD_STATES
    at = orders.c.held_since if is_held else orders.c.seen_at
    ascending = is_held is not (cursor is not None and cursor.backwards)
    which = _conditions(criteria)
    if cursor is not None:
        which.append(_beyond(at, cursor, ascending=ascending))
    place = (unindexed(at) if matches else at, orders.c.key)  # few are sorted; all are read in the order of an index
    found = select(orders.c.key).where(*which).order_by(*(place if ascending else (each.desc() for each in place)))
    return matches.fetch_keys(connection, found.limit(limit + 1), narrowed=bool(which))


def _beyond(at: ColumnElement[Any], cursor: OrderCursor, *, ascending: bool) -> ColumnElement[bool]:
    key = orders.c.key
    if ascending:
        return and_(at >= cursor.at, or_(at > cursor.at, key > cursor.key))
    return and_(at <= cursor.at, or_(at < cursor.at, key < cursor.key))


@cache
def _select_found_by(dialect: str, *, by_part: bool) -> Select[Any]:
    each: list[Select[Any]] = list(_HAVE_WHOLE)
    if by_part:
        each.append(select(_HAVE_PART[dialect].columns(column("order_key")).cte("having_part").c[0]))
    return select(union(*each).subquery().c[0])


def _select_found(dialect: str, search: str) -> Select[Any]:
    """Orders of which a number is this, or has it as a part, then the newest."""
    return _select_found_by(dialect, by_part=len(search) >= _SHORTEST_PART)


def _search_values(search: str) -> Mapping[str, Any]:
    phrase = '"' + search.replace('"', '""') + '"'
    return {"search": search, "upper": search.upper(), "phrase": phrase, "at_most": MAX_MATCHED + 1}


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


@cache
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


@cache
def _select_by_keys() -> tuple[Select[Any], Select[Any], Select[Any]]:
    """Summaries, work orders and the tests of orders."""
    of_keys: BindParameter[Any] = bindparam("keys", expanding=True)
    return (
        select_order_summaries().where(orders.c.key.in_(of_keys)),
        select(work_orders).where(work_orders.c.order_key.in_(of_keys)).order_by(work_orders.c.adapter),
        select(lines.c.order_key, lines.c.item)
        .where(lines.c.order_key.in_(of_keys), lines.c.item.is_not(None))
        .order_by(lines.c.number),
    )


def load_order_summaries(connection: Connection, keys: Sequence[str]) -> tuple[OrderSummary, ...]:
    """The summaries of these orders, in this order."""
    if not keys:
        return ()
    rows = connection.execute(_select_by_keys()[0], {"keys": keys}).mappings()
    found = {row["key"]: to_order_summary(row) for row in rows}
    return complete_summaries(connection, [found[key] for key in keys])


def complete_summaries(connection: Connection, found: Sequence[OrderSummary]) -> tuple[OrderSummary, ...]:
    """Add the work orders and the tests of a page's orders."""
    keys = [each.key for each in found]
    if not keys:
        return ()
    parts: dict[str, list[WorkOrder]] = {}
    for part in load_work_orders(connection, keys):
        parts.setdefault(part.order, []).append(part)
    items: dict[str, list[str]] = {}
    for key, item in connection.execute(_select_by_keys()[2], {"keys": keys}):
        items.setdefault(key, []).append(item)
    return tuple(
        replace(each, work_orders=tuple(parts.get(each.key, ())), items=tuple(items.get(each.key, ())[:_ITEMS_SHOWN]))
        for each in found
    )


def load_work_orders(connection: Connection, keys: Sequence[str]) -> tuple[WorkOrder, ...]:
    """The parts of these orders, by the names of their laboratory systems."""
    rows = connection.execute(_select_by_keys()[1], {"keys": keys}).mappings()
    return tuple(to_record(WorkOrder, row) for row in rows)

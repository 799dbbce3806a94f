"""The list of orders: narrowed, searched by any part of a number or by patient, and read page by page from where one ended.

However many orders there are, a page costs the same: what is searched for is looked up in an index of its own and gives at most
`MAX_MATCHED` orders; everything else is read in the order of an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    CTE,
    BindParameter,
    ColumnElement,
    Connection,
    Integer,
    Select,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
)

from lab_agent.shared.state_machines import OrderState
from lab_agent.store.column_types import PlainText, UtcDateTime
from lab_agent.store.crypto import Cipher
from lab_agent.store.order_search import search_values, select_found
from lab_agent.store.order_summaries import select_order_summaries, to_order_summary
from lab_agent.store.query_pages import is_in
from lab_agent.store.read_models import MAX_MATCHED, OrderCriteria, OrderCursor, OrderList
from lab_agent.store.row_mapping import unindexed
from lab_agent.store.tables import lines, orders, work_orders
from lab_agent.store.vault import find_by_terms

HELD_STATES = frozenset({OrderState.HELD})
_ANY, _ANY_TIME = "any", datetime(1970, 1, 1, tzinfo=UTC)
"""Values of a shape, where only says something that there is one."""
_SHAPES = 256
"""How many statements are kept: people narrow a list in few ways."""
_MOST_MATCHED: ColumnElement[Any] = literal_column(str(MAX_MATCHED + 1))  # a number, so that PostgreSQL knows how few they are
_ITEM = bindparam("of_item", type_=lines.c.item.type)
_HAVING_ITEM = select(lines.c.order_key).where(lines.c.item == _ITEM)
_COUNT_HAVING_ITEM = select(func.count()).select_from(_HAVING_ITEM.limit(_MOST_MATCHED).subquery())


def is_one_statement(criteria: OrderCriteria, cursor: OrderCursor | None) -> bool:
    """Whether one statement gives the whole page: nothing has to be asked before or after it."""
    is_narrowed = cursor is not None or bool(_conditions(_shape_of(criteria)))
    return criteria.patient is None and not criteria.item and not (criteria.search and is_narrowed)


def load_order_list(
    connection: Connection, cipher: Cipher, criteria: OrderCriteria, cursor: OrderCursor | None, limit: int
) -> OrderList:
    """Give what `Queries.order_list` promises."""
    dialect = connection.dialect.name
    of_patient = None
    if criteria.patient is not None:
        of_patient = find_by_terms(connection, cipher, criteria.patient.search_terms, criteria.patient.birth_terms)
        if of_patient is None:
            return OrderList(orders=(), has_before=False, has_after=False)
    backwards = None if cursor is None else cursor.backwards
    shape = _PageShape(_shape_of(criteria), backwards, limit, bool(criteria.item) and _is_rare(connection, criteria.item))
    page = _select_page(dialect, shape) if of_patient is None else _make_page(dialect, shape, of_patient)
    values = _values_of(criteria, cursor)
    rows = connection.execute(page.orders, values).mappings().all()
    counted = rows[0]["counted"] if rows else 0
    if not rows and page.counted is not None:  # there is no row to count beside
        counted = connection.scalar(page.counted, values) or 0
    found = tuple(map(to_order_summary, rows[:limit]))
    has_more = len(rows) > limit
    return OrderList(
        orders=found[::-1] if backwards else found,
        has_before=has_more if backwards else cursor is not None,
        has_after=True if backwards else has_more,
        is_cut=counted > MAX_MATCHED,
    )


def _is_rare(connection: Connection, item: str) -> bool:
    """Whether few orders have a test: of more, the list is read in its own order."""
    return (connection.scalar(_COUNT_HAVING_ITEM, {"of_item": item}) or 0) <= MAX_MATCHED


@dataclass(frozen=True, slots=True)
class _PageShape:
    """What the statement of a page depends on, beside its values: `backwards` is None for a first page."""

    criteria: OrderCriteria
    backwards: bool | None
    limit: int
    by_rare_item: bool

    @property
    def is_held(self) -> bool:
        return self.criteria.cause is not None or self.criteria.states == HELD_STATES

    @property
    def ascending(self) -> bool:
        return self.is_held is not bool(self.backwards)


@dataclass(frozen=True, slots=True)
class _PageStatements:
    """The orders of a page and one more, each with how many `counted` orders have all that is searched for; the same number
    alone, where a page without orders says nothing about it.
    """

    orders: Select[Any]
    counted: Select[Any] | None


def _shape_of(criteria: OrderCriteria) -> OrderCriteria:
    """The same criteria without their values: of one shape, there is one statement."""
    return OrderCriteria(
        search=criteria.search and _ANY[: len(criteria.search)],
        states=criteria.states,
        cause=None if criteria.cause is None else _ANY,
        contract=criteria.contract and _ANY,
        item=criteria.item and _ANY,
        adapter=criteria.adapter and _ANY,
        seen_from=criteria.seen_from and _ANY_TIME,
        seen_before=criteria.seen_before and _ANY_TIME,
    )


def _values_of(criteria: OrderCriteria, cursor: OrderCursor | None) -> dict[str, Any]:
    given = {
        "of_cause": criteria.cause,
        "of_contract": criteria.contract,
        "of_item": criteria.item,
        "at_system": criteria.adapter,
        "seen_from": criteria.seen_from,
        "seen_before": criteria.seen_before,
        "from_time": None if cursor is None else cursor.at,
        "from_key": None if cursor is None else cursor.key,
    }
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return values | search_values(criteria.search) if criteria.search else values


@lru_cache(maxsize=_SHAPES)
def _select_page(dialect: str, shape: _PageShape) -> _PageStatements:
    return _make_page(dialect, shape, None)


def _make_page(dialect: str, shape: _PageShape, of_patient: Select[Any] | None) -> _PageStatements:
    criteria = shape.criteria
    matches: list[Select[Any]] = []
    if criteria.search:
        matches.append(select_found(dialect, criteria.search))
    if of_patient is not None:
        matches.append(select(of_patient.subquery().c[0]))
    if shape.by_rare_item:
        matches.append(_HAVING_ITEM)
    matched = [each.limit(_MOST_MATCHED).cte(f"matched_{number}") for number, each in enumerate(matches)]
    at = orders.c.held_since if shape.is_held else orders.c.seen_at
    which = _conditions(criteria)
    if shape.backwards is not None:
        which.append(_beyond(at, ascending=shape.ascending))
    counted = _count(matched)
    is_told = len(matched) > 1 or bool(matched and which)
    which += [orders.c.key.in_(select(each.c[0])) for each in matched]
    place = (unindexed(at) if matched else at, orders.c.key)  # few are sorted; all are read in the order of an index
    keys = select(orders.c.key).where(*which).order_by(*_ordered(place, shape)).limit(literal_column(str(shape.limit + 1)))
    page = keys.cte("page")
    listed = (
        select_order_summaries(dialect).add_columns(counted.label("counted")).join_from(orders, page, page.c.key == orders.c.key)
    )
    return _PageStatements(listed.order_by(*_ordered((at, orders.c.key), shape)), select(counted) if is_told else None)


def _ordered(place: Sequence[ColumnElement[Any]], shape: _PageShape) -> Sequence[ColumnElement[Any]]:
    return place if shape.ascending else [each.desc() for each in place]


def _count(matched: Sequence[CTE]) -> ColumnElement[int]:
    """The number of those that most orders have; 0 where nothing is searched for."""
    numbers = [select(func.count()).select_from(each).scalar_subquery() for each in matched]
    if not numbers:
        return literal_column("0", Integer)
    return numbers[0] if len(numbers) == 1 else case(*((each > MAX_MATCHED, each) for each in numbers), else_=0)


def _beyond(at: ColumnElement[Any], *, ascending: bool) -> ColumnElement[bool]:
    key, from_key = orders.c.key, bindparam("from_key", type_=PlainText)
    from_time: BindParameter[datetime] = bindparam("from_time", type_=UtcDateTime)
    if ascending:
        return and_(at >= from_time, or_(at > from_time, key > from_key))
    return and_(at <= from_time, or_(at < from_time, key < from_key))


def _conditions(criteria: OrderCriteria) -> list[ColumnElement[bool]]:
    states = HELD_STATES if criteria.cause is not None else criteria.states
    which: list[ColumnElement[bool]] = []
    if states:
        which.append(is_in(orders.c.state, states, many=OrderState.CLOSED in states))
    if criteria.cause is not None:
        which.append(orders.c.hold_cause == bindparam("of_cause"))
    if criteria.contract:
        which.append(orders.c.contract == bindparam("of_contract"))
    if criteria.seen_from is not None:
        which.append(orders.c.seen_at >= bindparam("seen_from"))
    if criteria.seen_before is not None:
        which.append(orders.c.seen_at < bindparam("seen_before"))
    if criteria.item:
        of_item: Select[Any] = select(lines.c.number).where(lines.c.order_key == orders.c.key, lines.c.item == _ITEM)
        which.append(of_item.correlate(orders).exists())
    if criteria.adapter:
        at_system = (work_orders.c.order_key == orders.c.key, work_orders.c.adapter == bindparam("at_system"))
        which.append(select(work_orders.c.adapter).where(*at_system).correlate(orders).exists())
    return which

"""Which laboratory systems owe results: counted from the orders whose turnaround is over, by an index of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, func, literal_column, select

from lab_agent.shared.state_machines import ORDERS_AWAITING_RESULTS, WAITING_LINES, WorkOrderState
from lab_agent.store.read_models import OverdueResults
from lab_agent.store.row_mapping import in_states, unindexed
from lab_agent.store.tables import lines, orders, reports, work_orders

MAX_OVERDUE_ORDERS = 10_000
"""Of more overdue orders, the oldest are counted."""
_HANDED_OVER: frozenset[WorkOrderState] = frozenset({WorkOrderState.HANDED_OVER})


def select_overdue_orders(before: datetime) -> Select[Any]:
    """Orders whose results should have come before then, longest due first; read by `ix_orders_expected` alone."""
    is_awaited = (orders.c.state != literal_column("'closed'")) & in_states(unindexed(orders.c.state), ORDERS_AWAITING_RESULTS)
    return (
        select(orders.c.key, orders.c.expected_at).where(is_awaited, orders.c.expected_at < before).order_by(orders.c.expected_at)
    )


def load_overdue_results(connection: Connection, before: datetime) -> tuple[OverdueResults, ...]:
    """Count what should have been reported before then, for each laboratory system that has the order and owes a result."""
    overdue = select_overdue_orders(before).limit(MAX_OVERDUE_ORDERS).subquery("overdue")
    owed = (
        select(
            lines.c.adapter,
            overdue.c.key.label("order_key"),
            func.count().label("number"),
            overdue.c.expected_at,
        )
        .join_from(overdue, lines, lines.c.order_key == overdue.c.key)
        .join(work_orders, (work_orders.c.order_key == overdue.c.key) & (work_orders.c.adapter == lines.c.adapter))
        .where(in_states(lines.c.state, WAITING_LINES), in_states(work_orders.c.state, _HANDED_OVER))
        .group_by(lines.c.adapter, overdue.c.key, overdue.c.expected_at)
    )
    found: dict[str, list[tuple[int, datetime]]] = {}
    for adapter, _, number, expected_at in connection.execute(owed):
        found.setdefault(adapter, []).append((number, expected_at))
    return tuple(_sum_up(adapter, owing, _last_result(connection, adapter)) for adapter, owing in sorted(found.items()))


def _sum_up(adapter: str, owed: list[tuple[int, datetime]], last: datetime | None) -> OverdueResults:
    since_last = [(number, at) for number, at in owed if last is None or at > last]
    return OverdueResults(
        adapter=adapter,
        orders=len(owed),
        since=min(at for _, at in owed),
        last_result_at=last,
        lines_since_last=sum(number for number, _ in since_last),
        since_last=min((at for _, at in since_last), default=None),
    )


def _last_result(connection: Connection, adapter: str) -> datetime | None:
    newest = select(reports.c.received_at).where(reports.c.source == adapter).order_by(reports.c.received_at.desc())
    return connection.scalar(newest.limit(literal_column("1")))

"""What waits for the same cause, counted: read from indexes that hold nothing else, however many orders lie beside."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    RowMapping,
    Select,
    Table,
    bindparam,
    func,
    literal_column,
    select,
    type_coerce,
    union_all,
)

from lab_agent.results.records import HoldReason, result_alert_key
from lab_agent.results.refused_message_repository import refused_messages
from lab_agent.results.refused_records import RefusedState
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.state_machines import OPEN_LINES, REPORTS_NEEDING_OPERATOR, LineState, OrderState, ReportState
from lab_agent.store.column_types import PlainText, UtcDateTime
from lab_agent.store.event_records import WaitingGroup
from lab_agent.store.row_mapping import in_states
from lab_agent.store.session import Query, Session
from lab_agent.store.tables import lines, orders, reports, work_orders

_IS_HELD = in_states(orders.c.state, {OrderState.HELD})
_IS_HELD_LINE = in_states(lines.c.state, OPEN_LINES) & in_states(lines.c.state, {LineState.HELD})
_NO_SUBJECT: ColumnElement[str] = literal_column("''")
_NO_STATE: ColumnElement[Any] = literal_column("NULL")
_SUBJECT: BindParameter[str] = bindparam("of_subject")


def _one_group(table: Table) -> ColumnElement[bool]:
    """What is the same for all rows of a table: PostgreSQL groups by no constant."""
    return table.c["order_key" if "order_key" in table.c else "key"].is_(None)


def _select_group(
    condition: ConditionId, table: Table, subject: ColumnElement[Any], since: ColumnElement[Any], which: ColumnElement[bool]
) -> Select[Any]:
    return (
        select(
            literal_column(f"'{condition.value}'").label("condition"),
            _NO_STATE.label("state"),
            type_coerce(subject, PlainText).label("subject"),
            func.count().label("count"),
            func.min(since, type_=UtcDateTime).label("since"),
        )
        .select_from(table)
        .where(which)
        .group_by(_one_group(table) if subject is _NO_SUBJECT else subject)
    )


_RESULT_GROUPS: Any = (
    select(
        literal_column("''").label("condition"),
        type_coerce(reports.c.state, PlainText).label("state"),
        type_coerce(reports.c.hold_reason, PlainText).label("subject"),
        func.count().label("count"),
        func.min(reports.c.received_at, type_=UtcDateTime).label("since"),
    )
    .where(in_states(reports.c.state, REPORTS_NEEDING_OPERATOR))
    .group_by(reports.c.state, reports.c.hold_reason)
)
GROUPS = Query(
    union_all(
        _select_group(ConditionId.ORDERS_HELD, orders, orders.c.hold_cause, orders.c.held_since, _IS_HELD),
        _select_group(ConditionId.LINES_HELD, lines, _NO_SUBJECT, lines.c.changed_at, _IS_HELD_LINE),
        _select_group(
            ConditionId.ORDERS_PART_WAITS,
            work_orders,
            work_orders.c.adapter,
            work_orders.c.waits_since,
            work_orders.c.waits_since.is_not(None),
        ),
        _select_group(
            ConditionId.ORDERS_TASK_UNREADABLE,
            orders,
            _NO_SUBJECT,
            orders.c.task_unreadable_since,
            orders.c.task_unreadable_since.is_not(None),
        ),
        _select_group(
            ConditionId.LINES_TASK_UNREADABLE,
            lines,
            _NO_SUBJECT,
            lines.c.task_unreadable_since,
            lines.c.task_unreadable_since.is_not(None),
        ),
        _RESULT_GROUPS,
        _select_group(
            ConditionId.LIS_REFUSED_MESSAGES,
            refused_messages,
            refused_messages.c.source,
            refused_messages.c.first_seen_at,
            in_states(refused_messages.c.state, {RefusedState.WAITING}),
        ),
    )
)
_NO_REASON: ColumnElement[Any] = literal_column("NULL")
_OLDEST = {
    ConditionId.ORDERS_HELD: select(orders.c.key, orders.c.reason)
    .where(_IS_HELD, orders.c.hold_cause == _SUBJECT)
    .order_by(orders.c.held_since, orders.c.key),
    ConditionId.LINES_HELD: select(lines.c.order_key, _NO_REASON).where(_IS_HELD_LINE).order_by(lines.c.changed_at),
    ConditionId.ORDERS_PART_WAITS: select(work_orders.c.order_key, _NO_REASON)
    .where(work_orders.c.waits_since.is_not(None), work_orders.c.adapter == _SUBJECT)
    .order_by(work_orders.c.waits_since),
    ConditionId.ORDERS_TASK_UNREADABLE: select(orders.c.key, _NO_REASON)
    .where(orders.c.task_unreadable_since.is_not(None))
    .order_by(orders.c.task_unreadable_since),
    ConditionId.LINES_TASK_UNREADABLE: select(lines.c.order_key, _NO_REASON)
    .where(lines.c.task_unreadable_since.is_not(None))
    .order_by(lines.c.task_unreadable_since),
}
_OLDEST_OF = {condition: Query(wanted.limit(literal_column("1"))) for condition, wanted in _OLDEST.items()}


def load_waiting_groups(session: Session) -> tuple[WaitingGroup, ...]:
    """Give what `UnitOfWork.waiting_groups` promises: one statement, and one more for the oldest order of each group of them."""
    return tuple(to_group(session, each) for each in session.execute(GROUPS).mappings().all())


def to_group(session: Session, row: RowMapping) -> WaitingGroup:
    """Make the record of a row of `GROUPS`, with its oldest order."""
    subject, count, since = row["subject"] or "", row["count"], row["since"]
    if row["state"] is not None:
        key = result_alert_key(ReportState(row["state"]), HoldReason(subject) if subject else None)
        return WaitingGroup(key=key, count=count, since=since)
    key = AlertKey(ConditionId(row["condition"]), subject)
    oldest: Any = None
    if key.condition in _OLDEST_OF:
        oldest = session.execute(_OLDEST_OF[key.condition], {"of_subject": subject} if subject else {}).first()
    order, reason = oldest or (None, None)
    return WaitingGroup(key=key, count=count, since=since, order=None if order is None else OrderKey(order), reason=reason)

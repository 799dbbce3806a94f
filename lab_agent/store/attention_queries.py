"""What needs a person, one by one, the longest waiting first.

Each part of the list is read from an index in its own order, no farther than the page goes, however much waits.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, String, cast, func, literal_column, null, select, union_all

from lab_agent.queue.failure_causes import FailureCause
from lab_agent.results.records import HoldReason
from lab_agent.results.refused_message_repository import refused_messages
from lab_agent.results.refused_records import RefusedState
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.state_machines import (
    JOBS_NEEDING_OPERATOR,
    OPEN_LINES,
    REPORTS_NEEDING_OPERATOR,
    LineState,
    OrderState,
    ReportState,
)
from lab_agent.store.read_models import MAX_COUNTED, AttentionItem, AttentionKind, Page, WaitingSpan
from lab_agent.store.row_mapping import in_states
from lab_agent.store.tables import jobs, lines, orders, reports

_IS_HELD = in_states(orders.c.state, {OrderState.HELD})
_IS_HELD_LINE = in_states(lines.c.state, OPEN_LINES) & in_states(lines.c.state, {LineState.HELD})
_IS_SET_ASIDE = in_states(jobs.c.state, JOBS_NEEDING_OPERATOR)
_IS_WAITING = in_states(reports.c.state, REPORTS_NEEDING_OPERATOR)
_IS_REFUSED = in_states(refused_messages.c.state, {RefusedState.WAITING})
_NOTHING = cast(null(), String)


def _text(value: str) -> ColumnElement[str]:
    return literal_column(f"'{value}'", String)


_NAMES = (
    *("attention_kind", "ref", "state", "kind", "order_key", "target"),
    *("hold_reason", "reason", "since", "attempts", "cause", "system"),
)


def _select_item(*columns: ColumnElement[Any]) -> Select[Any]:
    """Select these columns, by the names that all parts of the list give them."""
    return select(*(column.label(name) for name, column in zip(_NAMES, columns, strict=True)))


_JOB_COLUMNS = (
    _text(AttentionKind.JOB),
    cast(jobs.c.id, String),
    cast(jobs.c.state, String),
    cast(jobs.c.kind, String),
    jobs.c.order_key,
    jobs.c.target,
    _NOTHING,
    jobs.c.reason,
    jobs.c.first_due_at,
    jobs.c.attempts,
    cast(jobs.c.failure_cause, String),
    jobs.c.system,
)
_FAILING_JOBS = _select_item(*_JOB_COLUMNS).where(jobs.c.failing_since.is_not(None))
_ITEMS: tuple[tuple[AttentionKind, Select[Any], tuple[ColumnElement[Any], ...]], ...] = (
    (
        AttentionKind.ORDER,
        _select_item(
            _text(AttentionKind.ORDER),
            orders.c.key,
            cast(orders.c.state, String),
            orders.c.contract,
            orders.c.key,
            _NOTHING,
            _NOTHING,
            orders.c.reason,
            orders.c.held_since,
            literal_column("0"),
            orders.c.hold_cause,
            _text(""),
        ).where(_IS_HELD),
        (orders.c.held_since, orders.c.key),
    ),
    (
        AttentionKind.LINE,
        _select_item(
            _text(AttentionKind.LINE),
            lines.c.key,
            cast(lines.c.state, String),
            lines.c.item,
            lines.c.order_key,
            _NOTHING,
            _NOTHING,
            _NOTHING,
            lines.c.changed_at,
            literal_column("0"),
            _text(AttentionKind.LINE),
            _text(""),
        ).where(_IS_HELD_LINE),
        (lines.c.changed_at, lines.c.key),
    ),
    (
        AttentionKind.JOB,
        _select_item(*_JOB_COLUMNS).where(_IS_SET_ASIDE),
        (jobs.c.first_due_at, jobs.c.id),
    ),
    (
        AttentionKind.REPORT,
        _select_item(
            _text(AttentionKind.REPORT),
            reports.c.key,
            cast(reports.c.state, String),
            reports.c.source,
            reports.c.order_key,
            reports.c.report_id,
            cast(reports.c.hold_reason, String),
            reports.c.reason,
            reports.c.received_at,
            literal_column("0"),
            func.coalesce(cast(reports.c.hold_reason, String), cast(reports.c.state, String)),
            reports.c.source,
        ).where(_IS_WAITING),
        (reports.c.sequence,),
    ),
    (
        AttentionKind.REFUSED,
        _select_item(
            _text(AttentionKind.REFUSED),
            refused_messages.c.key,
            cast(refused_messages.c.state, String),
            refused_messages.c.source,
            _NOTHING,
            _NOTHING,
            _NOTHING,
            refused_messages.c.reason,
            refused_messages.c.first_seen_at,
            literal_column("0"),
            _text(AttentionKind.REFUSED),
            refused_messages.c.source,
        ).where(_IS_REFUSED),
        (refused_messages.c.first_seen_at, refused_messages.c.key),
    ),
)
"""What needs a person, by kind: the rows, and the order in which they have waited."""


def load_attention_items(
    connection: Connection, cause: AlertKey | None, offset: int, limit: int, span: WaitingSpan | None = None
) -> Page[AttentionItem]:
    """Give a page of the list; of what waits for one cause alone, where that is given.

    With a `span` also what is tried again by itself, and only what has failed or waited since then.
    """
    end = offset + limit + 1
    wanted_of = [(wanted, waited) for _, wanted, waited in _ITEMS] if cause is None else [_of_cause(cause, span)]
    if span is not None:
        wanted_of = [(_within(wanted, span), waited) for wanted, waited in wanted_of]
    parts = [select(wanted.order_by(*waited).limit(end).subquery()) for wanted, waited in wanted_of]
    found = union_all(*parts).subquery()
    listed = select(found).order_by(found.c.since, found.c.attention_kind, found.c.ref).offset(offset).limit(limit + 1)
    rows = connection.execute(listed).mappings().all()
    total = sum(_count(connection, wanted) for wanted, _ in wanted_of)
    return Page(
        items=tuple(_to_attention_item(row) for row in rows[:limit]),
        total=min(total, MAX_COUNTED),
        offset=offset,
        is_total_exact=total <= MAX_COUNTED,
        has_more=len(rows) > limit,
    )


def _within(wanted: Select[Any], span: WaitingSpan) -> Select[Any]:
    since = wanted.selected_columns["since"]
    at: Any = getattr(since, "element", since)
    limits = [at > span.after] if span.after is not None else []
    limits += [at <= span.until] if span.until is not None else []
    return wanted.where(*limits)


def _of_cause(cause: AlertKey, span: WaitingSpan | None = None) -> tuple[Select[Any], tuple[ColumnElement[Any], ...]]:
    """The part of the list that an alert tells of: by its condition, and its subject."""
    condition, subject = cause
    parts = {kind: (wanted, waited) for kind, wanted, waited in _ITEMS}
    if condition is ConditionId.LIS_REFUSED_MESSAGES:
        wanted, waited = parts[AttentionKind.REFUSED]
        return wanted.where(refused_messages.c.source == subject), waited
    if condition is ConditionId.ORDERS_HELD:
        wanted, waited = parts[AttentionKind.ORDER]
        return wanted.where(orders.c.hold_cause == subject), waited
    if condition is ConditionId.LINES_HELD:
        return parts[AttentionKind.LINE]
    subject_of, _, code = condition.value.partition(".")
    if subject_of == "results":
        wanted, waited = parts[AttentionKind.REPORT]
        reason = HoldReason(subject) if subject else None
        return wanted.where(reports.c.state == ReportState(code), reports.c.hold_reason.is_not_distinct_from(reason)), waited
    wanted, waited = parts[AttentionKind.JOB] if span is None else (_FAILING_JOBS, parts[AttentionKind.JOB][1])
    of_system = [jobs.c.system == subject] if subject else []
    return wanted.where(jobs.c.failure_cause == FailureCause(code), *of_system), waited


def _count(connection: Connection, wanted: Select[Any]) -> int:
    one = wanted.with_only_columns(literal_column("1").label("one")).limit(MAX_COUNTED + 1).subquery()
    return connection.scalar(select(func.count()).select_from(one)) or 0


def _to_attention_item(row: Any) -> AttentionItem:
    values = dict(row)
    hold_reason = values.pop("hold_reason")
    return AttentionItem(
        order=values.pop("order_key"),
        attention_kind=AttentionKind(values.pop("attention_kind")),
        hold_reason=HoldReason(hold_reason) if hold_reason else None,
        **values,
    )

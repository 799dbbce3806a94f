"""What needs a person: one by one, the longest waiting first, and put together by what they wait for.

Each part of the list is read from an index in its own order, no farther than the page goes, however much waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, String, cast, func, literal_column, null, select, union_all

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.refused_messages import RefusedState
from lab_agent.domain.report_records import HoldReason, result_alert_key
from lab_agent.domain.state_machines import JOBS_NEEDING_OPERATOR, REPORTS_NEEDING_OPERATOR, OrderState, ReportState
from lab_agent.ports.queries import MAX_COUNTED, AttentionGroup, AttentionItem, AttentionKind, Page
from lab_agent.store.column_types import UtcDateTime
from lab_agent.store.refused_tables import refused_messages
from lab_agent.store.row_mapping import in_states
from lab_agent.store.tables import jobs, orders, reports

_EXAMPLES = 3
_IS_HELD = in_states(orders.c.state, {OrderState.HELD})
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
        AttentionKind.JOB,
        _select_item(
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
        ).where(_IS_SET_ASIDE),
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


def load_attention_items(connection: Connection, cause: AlertKey | None, offset: int, limit: int) -> Page[AttentionItem]:
    """Give a page of the list; of what waits for one cause alone, where that is given."""
    end = offset + limit + 1
    wanted_of = [(wanted, waited) for _, wanted, waited in _ITEMS] if cause is None else [_of_cause(cause)]
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


def _of_cause(cause: AlertKey) -> tuple[Select[Any], tuple[ColumnElement[Any], ...]]:
    """The part of the list that an alert tells of: by its condition, and its subject."""
    condition, subject = cause
    parts = {kind: (wanted, waited) for kind, wanted, waited in _ITEMS}
    if condition is ConditionId.LIS_REFUSED_MESSAGES:
        wanted, waited = parts[AttentionKind.REFUSED]
        return wanted.where(refused_messages.c.source == subject), waited
    if condition is ConditionId.ORDERS_HELD:
        wanted, waited = parts[AttentionKind.ORDER]
        return wanted.where(orders.c.hold_cause == subject), waited
    subject_of, _, code = condition.value.partition(".")
    if subject_of == "results":
        wanted, waited = parts[AttentionKind.REPORT]
        reason = HoldReason(subject) if subject else None
        return wanted.where(reports.c.state == ReportState(code), reports.c.hold_reason.is_not_distinct_from(reason)), waited
    wanted, waited = parts[AttentionKind.JOB]
    of_system = [jobs.c.system == subject] if subject else []
    return wanted.where(jobs.c.failure_cause == FailureCause(code), *of_system), waited


def count_attention_items(connection: Connection) -> Mapping[AttentionKind, int]:
    """Count them by kind; of each, no farther than `MAX_COUNTED` and one."""
    counts = {kind: _count(connection, wanted) for kind, wanted, _ in _ITEMS}
    return {kind: number for kind, number in counts.items() if number}


def load_attention_groups(connection: Connection) -> tuple[AttentionGroup, ...]:
    """Put together what waits for the same, the longest waiting first."""
    groups = (*_order_groups(connection), *_job_groups(connection), *_report_groups(connection), *_refused_groups(connection))
    return tuple(sorted(groups, key=lambda each: (each.since, each.attention_kind, each.cause, each.system)))


def _count(connection: Connection, wanted: Select[Any]) -> int:
    one = wanted.with_only_columns(literal_column("1").label("one")).limit(MAX_COUNTED + 1).subquery()
    return connection.scalar(select(func.count()).select_from(one)) or 0


def _order_groups(connection: Connection) -> Iterator[AttentionGroup]:
    since = func.min(orders.c.held_since, type_=UtcDateTime)
    counted = select(orders.c.hold_cause, func.count(), since).where(_IS_HELD).group_by(orders.c.hold_cause)
    for cause, number, oldest in connection.execute(counted).all():
        wanted = select(orders.c.key).where(_IS_HELD, orders.c.hold_cause == cause).order_by(orders.c.held_since, orders.c.key)
        yield AttentionGroup(
            attention_kind=AttentionKind.ORDER,
            cause=cause or "",
            condition=ConditionId.ORDERS_HELD,
            subject=cause or "",
            number=number,
            since=oldest,
            examples=_examples(connection, wanted),
        )


def _job_groups(connection: Connection) -> Iterator[AttentionGroup]:
    is_failing = jobs.c.failing_since.is_not(None)
    found: dict[tuple[FailureCause, str], list[Any]] = {}
    counted = select(
        jobs.c.failure_cause,
        jobs.c.system,
        func.count(),
        func.min(jobs.c.first_due_at, type_=UtcDateTime),
        func.count().filter(_IS_SET_ASIDE),
    )
    for cause, system, *numbers in connection.execute(
        counted.where(is_failing).group_by(jobs.c.failure_cause, jobs.c.system)
    ).all():
        found.setdefault((cause, system if cause.is_about_system else ""), []).append(numbers)
    for (cause, system), parts in found.items():
        wanted = select(jobs.c.id).where(is_failing, jobs.c.failure_cause == cause).order_by(jobs.c.first_due_at, jobs.c.id)
        yield AttentionGroup(
            attention_kind=AttentionKind.JOB,
            cause=cause.value,
            system=system,
            condition=cause.condition,
            subject=system,
            number=sum(number for number, _, _ in parts),
            set_aside=sum(set_aside for _, _, set_aside in parts),
            since=min(since for _, since, _ in parts),
            examples=_examples(connection, wanted.where(jobs.c.system == system) if system else wanted),
        )


def _report_groups(connection: Connection) -> Iterator[AttentionGroup]:
    since = func.min(reports.c.received_at, type_=UtcDateTime)
    counted = select(reports.c.state, reports.c.hold_reason, func.count(), since).where(_IS_WAITING)
    state: ReportState
    reason: HoldReason | None
    for state, reason, number, oldest in connection.execute(counted.group_by(reports.c.state, reports.c.hold_reason)).all():
        alert = result_alert_key(state, reason)
        alike = (_IS_WAITING, reports.c.state == state, reports.c.hold_reason.is_not_distinct_from(reason))
        yield AttentionGroup(
            attention_kind=AttentionKind.REPORT,
            cause=(reason or state).value,
            condition=alert.condition,
            subject=alert.subject,
            number=number,
            since=oldest,
            examples=_examples(connection, select(reports.c.key).where(*alike).order_by(reports.c.sequence)),
        )


def _refused_groups(connection: Connection) -> Iterator[AttentionGroup]:
    since = func.min(refused_messages.c.first_seen_at, type_=UtcDateTime)
    counted = select(refused_messages.c.source, func.count(), since).where(_IS_REFUSED).group_by(refused_messages.c.source)
    for source, number, oldest in connection.execute(counted).all():
        wanted = select(refused_messages.c.key).where(_IS_REFUSED, refused_messages.c.source == source)
        yield AttentionGroup(
            attention_kind=AttentionKind.REFUSED,
            cause=AttentionKind.REFUSED.value,
            system=source,
            condition=ConditionId.LIS_REFUSED_MESSAGES,
            subject=source,
            number=number,
            since=oldest,
            examples=_examples(connection, wanted.order_by(refused_messages.c.first_seen_at, refused_messages.c.key)),
        )


def _examples(connection: Connection, wanted: Select[Any]) -> tuple[str, ...]:
    return tuple(str(ref) for ref in connection.scalars(wanted.limit(_EXAMPLES)))


def _to_attention_item(row: Any) -> AttentionItem:
    values = dict(row)
    hold_reason = values.pop("hold_reason")
    return AttentionItem(
        order=values.pop("order_key"),
        attention_kind=AttentionKind(values.pop("attention_kind")),
        hold_reason=HoldReason(hold_reason) if hold_reason else None,
        **values,
    )

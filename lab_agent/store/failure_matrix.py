"""What fails or waits for a person, counted by cause and by how long it has; read from the indexes of what waits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, literal_column, select

from lab_agent.queue.failure_causes import FailureCause
from lab_agent.results.records import result_alert_key
from lab_agent.results.refused_message_repository import refused_messages
from lab_agent.results.refused_records import RefusedState
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.state_machines import OPEN_LINES, REPORTS_NEEDING_OPERATOR, LineState, OrderState
from lab_agent.store.read_models import AGE_LIMITS, AgedFailures
from lab_agent.store.row_mapping import in_states
from lab_agent.store.tables import jobs, lines, orders, reports


def load_failure_matrix(connection: Connection, now: datetime) -> tuple[AgedFailures, ...]:
    """Give what `Queries.failures_by_age` promises."""
    bounds = [now - limit for limit in AGE_LIMITS]
    found: dict[AlertKey, list[int]] = {}

    def add(key: AlertKey, counts: Sequence[Any]) -> None:
        known = found.setdefault(key, [0] * (len(bounds) + 1))
        for place, number in enumerate(counts):
            known[place] += number or 0

    for cause, system, *counts in connection.execute(
        _by_age((jobs.c.failure_cause, jobs.c.system), jobs.c.first_due_at, jobs.c.failing_since.is_not(None), bounds)
    ):
        add(FailureCause(cause).alert_key(system), counts)
    held = in_states(orders.c.state, {OrderState.HELD})
    for cause, *counts in connection.execute(_by_age((orders.c.hold_cause,), orders.c.held_since, held, bounds)):
        add(AlertKey(ConditionId.ORDERS_HELD, cause or ""), counts)
    held_line = in_states(lines.c.state, OPEN_LINES) & in_states(lines.c.state, {LineState.HELD})
    for _, *counts in connection.execute(_by_age((lines.c.state,), lines.c.changed_at, held_line, bounds)):
        add(AlertKey(ConditionId.LINES_HELD), counts)
    waits = in_states(reports.c.state, REPORTS_NEEDING_OPERATOR)
    of_reports = _by_age((reports.c.state, reports.c.hold_reason), reports.c.received_at, waits, bounds)
    for state, reason, *counts in connection.execute(of_reports):
        add(result_alert_key(state, reason), counts)
    refused = in_states(refused_messages.c.state, {RefusedState.WAITING})
    of_messages = _by_age((refused_messages.c.source,), refused_messages.c.first_seen_at, refused, bounds)
    for source, *counts in connection.execute(of_messages):
        add(AlertKey(ConditionId.LIS_REFUSED_MESSAGES, source), counts)
    rows = (AgedFailures(key=key, counts=tuple(counts)) for key, counts in found.items())
    return tuple(sorted(rows, key=lambda each: (-sum(each.counts), each.key)))


def _by_age(
    group: tuple[ColumnElement[Any], ...], since: ColumnElement[Any], which: ColumnElement[bool], bounds: Sequence[datetime]
) -> Select[Any]:
    """Count by the columns of `group`, and in columns by age: younger than the first bound, …, older than the last."""
    one: ColumnElement[int] = literal_column("1")
    zero: ColumnElement[int] = literal_column("0")
    counts = [func.sum(case((since > bounds[0], one), else_=zero))]
    for younger, older in pairwise(bounds):
        counts.append(func.sum(case(((since <= younger) & (since > older), one), else_=zero)))
    counts.append(func.sum(case((since <= bounds[-1], one), else_=zero)))
    return select(*group, *counts).where(which).group_by(*group)

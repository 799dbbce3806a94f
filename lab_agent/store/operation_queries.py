"""What the pages about operation read: what rules did, traffic of laboratory systems, versions of the catalogue, labels."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, literal_column, select

from lab_agent.catalogue.catalogue_tables import catalogues, issued_labels, label_ranges
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.state_machines import JobState, OrderState
from lab_agent.store.read_models import MAX_COUNTED, CatalogueVersionSummary, LisTraffic, RuleTrial
from lab_agent.store.row_mapping import in_states
from lab_agent.store.tables import jobs, orders, rejections, reports

_NEWEST_JOBS = 2_000
"""So many of the newest handovers are looked through for one of a laboratory system."""


def load_rule_hits(connection: Connection, since: datetime) -> Mapping[str, int]:
    """Give what `Queries.rule_hits` promises."""
    counted = select(rejections.c.rule, func.count()).where(rejections.c.at >= since).group_by(rejections.c.rule)
    return dict(connection.execute(counted).all())


def load_rule_trial(connection: Connection, rule: str, newest: int) -> RuleTrial:
    """Give what `Queries.rule_trial` promises."""
    looked_at = connection.scalars(
        select(orders.c.key).order_by(orders.c.seen_at.desc(), orders.c.key.desc()).limit(newest)
    ).all()
    known = set(looked_at)
    rejected = connection.scalars(
        select(rejections.c.order_key).where(rejections.c.rule == rule).order_by(rejections.c.at.desc()).limit(MAX_COUNTED)
    )
    held = connection.scalars(
        select(orders.c.key).where(in_states(orders.c.state, {OrderState.HELD}), orders.c.hold_cause == rule)
    )
    return RuleTrial(
        looked_at=len(looked_at),
        rejected=tuple(dict.fromkeys(key for key in rejected if key in known)),
        held=tuple(key for key in held if key in known),
    )


def load_lis_traffic(connection: Connection, adapter: str) -> LisTraffic:
    """Give what `Queries.lis_traffic` promises."""
    done: ColumnElement[Any] = literal_column(f"'{JobState.DONE.value}'")
    newest = (
        select(jobs.c.changed_at, jobs.c.system)
        .where(jobs.c.kind == JobKind.SUBMIT_ORDER, jobs.c.state == done)
        .order_by(jobs.c.id.desc())
        .limit(_NEWEST_JOBS)
        .subquery()
    )
    handed_over = select(newest.c.changed_at).where(newest.c.system == adapter).order_by(newest.c.changed_at.desc()).limit(1)
    received = select(reports.c.received_at).where(reports.c.source == adapter).order_by(reports.c.received_at.desc()).limit(1)
    return LisTraffic(handed_over_at=connection.scalar(handed_over), received_at=connection.scalar(received))


def load_catalogue_versions(connection: Connection, limit: int) -> tuple[CatalogueVersionSummary, ...]:
    """Give what `Queries.catalogue_versions` promises."""
    columns = (catalogues.c.number, catalogues.c.version, catalogues.c.since, catalogues.c.origin, catalogues.c.actor)
    listed = select(*columns).order_by(catalogues.c.number.desc()).limit(limit)
    return tuple(
        CatalogueVersionSummary(number=row.number, version=row.version, since=row.since, origin=row.origin, by=row.actor)
        for row in connection.execute(listed)
    )


def load_catalogue_content(connection: Connection, number: int) -> bytes | None:
    """Give what `Queries.catalogue_content` promises."""
    found: bytes | None = connection.scalar(select(catalogues.c.content).where(catalogues.c.number == number))
    return found


def load_issued_ranges(connection: Connection, pattern: str) -> Mapping[int, int]:
    """Give what `Queries.issued_ranges` promises."""
    found = select(label_ranges.c.first, label_ranges.c.next_number).where(label_ranges.c.pattern == pattern)
    return dict(connection.execute(found).all())


def count_labels_issued(connection: Connection, pool: str, since: datetime) -> int:
    """Give what `Queries.labels_issued` promises."""
    of_pool = (issued_labels.c.pool == pool) & (issued_labels.c.issued_at >= since)
    return connection.scalar(select(func.count()).where(of_pool)) or 0

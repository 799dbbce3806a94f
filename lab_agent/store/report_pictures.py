"""The queries about reports behind `SqlViews`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, Select, func, select

from lab_agent.crypto import size_within
from lab_agent.domain.journal import ReportRecord
from lab_agent.domain.lifecycle import WAITING_REPORTS
from lab_agent.store.rows import among
from lab_agent.store.tables import documents, reports


def report_summaries() -> Select[Any]:
    """Ask for reports without their content."""
    return select(*(column for column in reports.c if column.name != "body"))


def waiting() -> Select[Any]:
    """Ask for what waits at the match desk, longest first, with its content."""
    return select(reports).where(among(reports.c.state, WAITING_REPORTS)).order_by(reports.c.sequence)


def versions(report: ReportRecord) -> Select[Any]:
    """Ask for the messages of the same report."""
    if report.report_id is None:
        return report_summaries().where(reports.c.key == report.key)
    alone = reports.c.order_key.is_(None) & (reports.c.source == report.source)
    same = alone if report.order is None else reports.c.order_key == report.order
    return report_summaries().where(same, reports.c.report_id == report.report_id)


def document_sizes(connection: Connection, wanted: Collection[str]) -> Mapping[str, int]:
    """Say about how large documents are, without opening them."""
    sealed = select(documents.c.id, func.length(documents.c.sealed)).where(documents.c.id.in_(sorted(wanted)))
    return {name: size_within(length) for name, length in connection.execute(sealed)}

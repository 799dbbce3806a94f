"""The queries about reports behind `SqlViews`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, Select, func, select

from lab_agent.crypto import decrypted_size
from lab_agent.domain.journal import ReportRecord
from lab_agent.domain.lifecycle import REPORTS_NEEDING_OPERATOR
from lab_agent.store.rows import in_states
from lab_agent.store.tables import documents, reports


def select_report_summaries() -> Select[Any]:
    """Ask for reports without their content."""
    return select(*(column for column in reports.c if column.name != "body"))


def select_reports_needing_operator() -> Select[Any]:
    """Ask for what waits at the match desk, longest first, with its content."""
    return select(reports).where(in_states(reports.c.state, REPORTS_NEEDING_OPERATOR)).order_by(reports.c.sequence)


def select_report_versions(report: ReportRecord) -> Select[Any]:
    """Ask for the messages of the same report."""
    if report.report_id is None:
        return select_report_summaries().where(reports.c.key == report.key)
    alone = reports.c.order_key.is_(None) & (reports.c.source == report.source)
    same = alone if report.order is None else reports.c.order_key == report.order
    return select_report_summaries().where(same, reports.c.report_id == report.report_id)


def load_document_sizes(connection: Connection, document_ids: Collection[str]) -> Mapping[str, int]:
    """Say about how large documents are, without opening them."""
    sealed = select(documents.c.id, func.length(documents.c.ciphertext)).where(documents.c.id.in_(sorted(document_ids)))
    return {name: decrypted_size(length) for name, length in connection.execute(sealed)}

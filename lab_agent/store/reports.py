"""What laboratory systems have reported (`ports.store.Reports`).

Documents that our own API serves (`ports.store.Hosted`).

Which resources of ours are on the service (`ports.store.Uploads`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, select, update

from lab_agent.domain.ids import OrderKey, ReportKey
from lab_agent.domain.records import HostedDocument, ReportRecord, UploadRecord
from lab_agent.domain.state_machines import REPORTS_NEEDING_OPERATOR
from lab_agent.errors import StoreError
from lab_agent.store.row_mapping import in_states, insert_new, to_record, to_values, upsert
from lab_agent.store.tables import hosted_documents, reports, uploads


class SqlHostedDocumentRepository:
    """Served documents, in the table `hosted`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def save(self, document: HostedDocument) -> None:
        """Serve a document under its address from now on."""
        upsert(self._connection, hosted_documents, to_values(document), "address")

    def get(self, address: str) -> HostedDocument | None:
        """What is served under an address."""
        row = (
            self._connection.execute(select(hosted_documents).where(hosted_documents.c.address == address))
            .mappings()
            .one_or_none()
        )
        return None if row is None else to_record(HostedDocument, row)


class SqlReportRepository:
    """Reports, in the table of that name; the database numbers them as they arrive."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, report: ReportRecord) -> bool:
        """Write a message, giving it the next sequence. False if its key is there already."""
        return insert_new(self._connection, reports, _to_columns(report))

    def get_for_update(self, key: ReportKey) -> ReportRecord:
        """Read a report and hold it until the unit of work ends. Raises `StoreError` if unknown."""
        found = self._fetch(select(reports).where(reports.c.key == key).with_for_update())
        if not found:
            raise _unknown_report(key)
        return found[0]

    def exists(self, source: str, message: str) -> bool:
        """Whether a message of that adapter was kept."""
        found = select(reports.c.sequence).where(reports.c.source == source, reports.c.message == message).limit(1)
        return self._connection.scalar(found) is not None

    def save(self, report: ReportRecord) -> None:
        """Write a changed report; its sequence stays. Raises `StoreError` if unknown."""
        if not self._connection.execute(
            update(reports).where(reports.c.key == report.key).values(**_to_columns(report))
        ).rowcount:
            raise _unknown_report(report.key)

    def versions(self, order: OrderKey, report_id: str) -> tuple[ReportRecord, ...]:
        """All messages of one report of one order, by sequence."""
        return self._fetch(select(reports).where(reports.c.order_key == order, reports.c.report_id == report_id))

    def needing_operator(self) -> tuple[ReportRecord, ...]:
        """Reports that are unmatched, unmapped or held, by sequence."""
        return self._fetch(select(reports).where(in_states(reports.c.state, REPORTS_NEEDING_OPERATOR)))

    def _fetch(self, statement: Select[Any]) -> tuple[ReportRecord, ...]:
        rows = self._connection.execute(statement.order_by(reports.c.sequence)).mappings()
        return tuple(to_record(ReportRecord, row) for row in rows)


def _to_columns(report: ReportRecord) -> dict[str, Any]:
    values = to_values(report)
    del values["sequence"]
    return values


def _unknown_report(key: ReportKey) -> StoreError:
    return StoreError(f"No report {key} is in the journal.")


class SqlUploadRepository:
    """Uploads, in the table of that name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, identifier: str) -> UploadRecord | None:
        """What is known of the resource with this identifier value."""
        row = self._connection.execute(select(uploads).where(uploads.c.identifier == identifier)).mappings().one_or_none()
        return None if row is None else to_record(UploadRecord, row)

    def save(self, upload: UploadRecord) -> None:
        """Write or replace what is known."""
        upsert(self._connection, uploads, to_values(upload), "identifier")

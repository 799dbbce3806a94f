"""Messages of laboratory systems, the resources uploaded for them, and documents that our own API serves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, Select, select, update
from typing_extensions import override

from lab_agent.domain.ids import OrderKey, ReportKey
from lab_agent.domain.records import HostedDocument, ReportRecord, UploadRecord
from lab_agent.domain.state_machines import REPORTS_NEEDING_OPERATOR
from lab_agent.errors import StoreError
from lab_agent.ports.repositories import HostedDocumentRepository, ReportRepository, UploadRepository
from lab_agent.store.row_mapping import in_states, insert_new, to_record, to_values, upsert
from lab_agent.store.tables import hosted_documents, reports, uploads


class SqlReportRepository(ReportRepository):
    """Reports, in the table of that name; numbered by the database as they arrive."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def add(self, report: ReportRecord) -> bool:
        return insert_new(self._connection, reports, _to_columns(report))

    @override
    def get_for_update(self, key: ReportKey) -> ReportRecord:
        found = self._fetch(select(reports).where(reports.c.key == key).with_for_update())
        if not found:
            raise _unknown_report(key)
        return found[0]

    @override
    def exists(self, source: str, message: str) -> bool:
        found = select(reports.c.sequence).where(reports.c.source == source, reports.c.message == message).limit(1)
        return self._connection.scalar(found) is not None

    @override
    def save(self, report: ReportRecord) -> None:
        if not self._connection.execute(
            update(reports).where(reports.c.key == report.key).values(**_to_columns(report))
        ).rowcount:
            raise _unknown_report(report.key)

    @override
    def versions(self, order: OrderKey, source: str, report_id: str) -> tuple[ReportRecord, ...]:
        same = (reports.c.order_key == order, reports.c.report_id == report_id, reports.c.source == source)
        return self._fetch(select(reports).where(*same))

    @override
    def needing_operator(self) -> tuple[ReportRecord, ...]:
        return self._fetch(select(reports).where(in_states(reports.c.state, REPORTS_NEEDING_OPERATOR)))

    def _fetch(self, statement: Select[Any]) -> tuple[ReportRecord, ...]:
        rows = self._connection.execute(statement.order_by(reports.c.sequence)).mappings()
        return tuple(to_record(ReportRecord, row) for row in rows)


class SqlUploadRepository(UploadRepository):
    """Uploads, in the table of that name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def get(self, identifier: str) -> UploadRecord | None:
        row = self._connection.execute(select(uploads).where(uploads.c.identifier == identifier)).mappings().one_or_none()
        return None if row is None else to_record(UploadRecord, row)

    @override
    def find(self, identifiers: Collection[str]) -> Mapping[str, UploadRecord]:
        rows = self._connection.execute(select(uploads).where(uploads.c.identifier.in_(identifiers))).mappings()
        return {row["identifier"]: to_record(UploadRecord, row) for row in rows}

    @override
    def save(self, upload: UploadRecord) -> None:
        upsert(self._connection, uploads, to_values(upload), "identifier")


class SqlHostedDocumentRepository(HostedDocumentRepository):
    """Served documents, in the table `hosted_documents`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def save(self, document: HostedDocument) -> None:
        upsert(self._connection, hosted_documents, to_values(document), "address")

    @override
    def get(self, address: str) -> HostedDocument | None:
        row = (
            self._connection.execute(select(hosted_documents).where(hosted_documents.c.address == address))
            .mappings()
            .one_or_none()
        )
        return None if row is None else to_record(HostedDocument, row)


def _to_columns(report: ReportRecord) -> dict[str, Any]:
    values = to_values(report)
    del values["sequence"]
    return values


def _unknown_report(key: ReportKey) -> StoreError:
    return StoreError(f"Unknown report {key}.")

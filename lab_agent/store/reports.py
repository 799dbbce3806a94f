"""Messages of laboratory systems, the resources uploaded for them, and documents that our own API serves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, literal_column, select
from typing_extensions import override

from lab_agent.domain.ids import OrderKey, ReportKey
from lab_agent.domain.report_records import HoldReason, HostedDocument, ReportRecord, UploadRecord
from lab_agent.domain.state_machines import REPORTS_NEEDING_OPERATOR, REPORTS_OF_THEIR_ORDER, ReportState
from lab_agent.errors import StoreError
from lab_agent.ports.repositories import ReportRepository, UploadRepository
from lab_agent.ports.vault import HostedDocumentRepository
from lab_agent.store.row_mapping import RecordMapping, changes, chunked, in_states, update_row, upsert_by
from lab_agent.store.session import Query, Session, Write
from lab_agent.store.tables import awaited_names, reports, uploads
from lab_agent.store.vault_tables import hosted_documents

_REPORTS = RecordMapping(ReportRecord, reports)
_UPLOADS = RecordMapping(UploadRecord, uploads)
_HOSTED = RecordMapping(HostedDocument, hosted_documents)


def _unknown_report(key: str = "") -> StoreError:
    return StoreError(f"Unknown report {key}." if key else "Unknown report.")


_SELECT = select(*_REPORTS.columns).order_by(reports.c.sequence)
_REPORT = Query(_SELECT.where(reports.c.key == bindparam("of")))
_REPORT_LOCKED = Query(_SELECT.where(reports.c.key == bindparam("of")).with_for_update())
_MESSAGE = Query(
    _SELECT.where(reports.c.source == bindparam("sender"), reports.c.message == bindparam("named")).limit(literal_column("1"))
)
_OF_REPORT = (reports.c.source == bindparam("sender"), reports.c.report_id == bindparam("named"))
_NEWEST = Query(_SELECT.order_by(None).order_by(reports.c.sequence.desc()).where(*_OF_REPORT).limit(literal_column("1")))
_ORDERS_OF_REPORT = Query(
    select(reports.c.order_key)
    .distinct()
    .where(*_OF_REPORT, reports.c.order_key.is_not(None), in_states(reports.c.state, REPORTS_OF_THEIR_ORDER))
)
_AWAITING = Query(
    _SELECT.where(
        reports.c.key.in_(select(awaited_names.c.report).where(awaited_names.c.name.in_(bindparam("names", expanding=True)))),
        in_states(reports.c.state, {ReportState.UNMATCHED}),
    )
)
_VERSIONS = Query(
    _SELECT.where(
        reports.c.order_key == bindparam("of"),
        reports.c.report_id == bindparam("named"),
        reports.c.source == bindparam("sender"),
    )
)
_DELIVERED = _SELECT.where(in_states(reports.c.state, {ReportState.DELIVERED}))
_DELIVERED_OF = Query(_DELIVERED.where(reports.c.order_key == bindparam("of")))
_DELIVERED_BETWEEN = Query(
    _DELIVERED.where(reports.c.changed_at >= bindparam("since", type_=reports.c.changed_at.type))
    .where(reports.c.changed_at <= bindparam("until", type_=reports.c.changed_at.type))
    .where(reports.c.order_key.is_not(None), reports.c.sequence > bindparam("after"))
    .limit(bindparam("at_most"))
)
_WAITING = Query(
    _SELECT.where(in_states(reports.c.state, REPORTS_NEEDING_OPERATOR))
    .where(reports.c.state == bindparam("in_state", type_=reports.c.state.type))
    .where(reports.c.hold_reason.is_not_distinct_from(bindparam("held_for", type_=reports.c.hold_reason.type)))
    .where(reports.c.sequence > bindparam("after"))
    .limit(bindparam("at_most"))
)
_NEEDING_OPERATOR = Query(_SELECT.where(in_states(reports.c.state, REPORTS_NEEDING_OPERATOR)))
_ADD_REPORT = Write.insert(reports, lambda insert: insert.on_conflict_do_nothing().returning(reports.c.sequence))
_SAVE_REPORT = Write.of(reports, update_row(reports), missing=_unknown_report)
_AWAIT_NAME = Write.insert(awaited_names, lambda insert: insert.on_conflict_do_nothing())
_UPLOADS_NAMED = Query(select(*_UPLOADS.columns).where(uploads.c.identifier.in_(bindparam("names", expanding=True))))
_UPLOAD = Query(select(*_UPLOADS.columns).where(uploads.c.identifier == bindparam("named")))
_SAVE_UPLOAD = Write.insert(uploads, upsert_by("identifier"))
_HOSTED_DOCUMENT = Query(select(*_HOSTED.columns).where(hosted_documents.c.address == bindparam("named")))
_SAVE_HOSTED_DOCUMENT = Write.insert(hosted_documents, upsert_by("address"))


class SqlReportRepository(ReportRepository):
    """Reports, in the table of that name; numbered by the database as they arrive."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def add(self, report: ReportRecord) -> bool:
        sequence: int | None = self._session.send(_ADD_REPORT, _to_columns(report)).scalar()
        if sequence is not None:
            self._session.remember((reports, report.key), replace(report, sequence=sequence))
        return sequence is not None

    @override
    def get_for_update(self, key: ReportKey) -> ReportRecord:
        known: ReportRecord | None = self._session.known((reports, key))
        if known is not None:
            return known
        found = self._fetch(_REPORT if self._session.read_only else _REPORT_LOCKED, {"of": key})
        if not found:
            raise _unknown_report(key)
        self._session.remember((reports, key), found[0])
        return found[0]

    @override
    def find(self, source: str, message: str) -> ReportRecord | None:
        return next(iter(self._fetch(_MESSAGE, {"sender": source, "named": message})), None)

    @override
    def newest(self, source: str, report_id: str) -> ReportRecord | None:
        return next(iter(self._fetch(_NEWEST, {"sender": source, "named": report_id})), None)

    @override
    def orders_of(self, source: str, report_id: str) -> tuple[OrderKey, ...]:
        rows = self._session.execute(_ORDERS_OF_REPORT, {"sender": source, "named": report_id})
        return tuple(map(OrderKey, rows.scalars()))

    @override
    def await_names(self, report: ReportKey, names: Iterable[str]) -> None:
        if rows := [{"report": report, "name": name} for name in dict.fromkeys(names)]:
            self._session.send(_AWAIT_NAME, rows)

    @override
    def awaiting(self, names: Collection[str]) -> tuple[ReportRecord, ...]:
        found = {each.key: each for batch in chunked(sorted(set(names))) for each in self._fetch(_AWAITING, {"names": batch})}
        return tuple(sorted(found.values(), key=lambda each: each.sequence))

    @override
    def save(self, report: ReportRecord) -> None:
        known: ReportRecord | None = self._session.known((reports, report.key))
        kept = report if known is None else replace(report, sequence=known.sequence)
        if known == kept:
            return
        self._session.put(_SAVE_REPORT, report.key, changes(_to_columns(report)))
        if known is not None:  # and it is locked
            self._session.remember((reports, report.key), kept)

    @override
    def versions(self, order: OrderKey, source: str, report_id: str) -> tuple[ReportRecord, ...]:
        return self._fetch(_VERSIONS, {"of": order, "sender": source, "named": report_id})

    @override
    def waiting(self, state: ReportState, hold_reason: HoldReason | None, *, after: int, limit: int) -> tuple[ReportRecord, ...]:
        asked = {"in_state": state, "held_for": hold_reason, "after": after, "at_most": limit}
        return self._fetch(_WAITING, asked)

    @override
    def delivered_of(self, order: OrderKey) -> tuple[ReportRecord, ...]:
        return self._fetch(_DELIVERED_OF, {"of": order})

    @override
    def delivered_between(self, since: datetime, until: datetime, *, after: int, limit: int) -> tuple[ReportRecord, ...]:
        return self._fetch(_DELIVERED_BETWEEN, {"since": since, "until": until, "after": after, "at_most": limit})

    @override
    def needing_operator(self) -> tuple[ReportRecord, ...]:
        return self._fetch(_NEEDING_OPERATOR, {})

    def _fetch(self, query: Query, values: Mapping[str, Any]) -> tuple[ReportRecord, ...]:
        return _REPORTS.to_records(self._session.execute(query, values))


class SqlUploadRepository(UploadRepository):
    """Uploads, in the table of that name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def get(self, identifier: str) -> UploadRecord | None:
        known: UploadRecord | None = self._session.known((uploads, identifier))
        if known is not None:
            return known
        found = _UPLOADS.to_records(self._session.execute(_UPLOAD, {"named": identifier}))
        return found[0] if found else None

    @override
    def find(self, identifiers: Collection[str]) -> Mapping[str, UploadRecord]:
        found = {name: known for name in identifiers if (known := self._session.known((uploads, name))) is not None}
        for batch in chunked([name for name in identifiers if name not in found]):
            rows = self._session.execute(_UPLOADS_NAMED, {"names": batch})
            found.update((upload.identifier, upload) for upload in _UPLOADS.to_records(rows))
        return found

    @override
    def save(self, upload: UploadRecord) -> None:
        self._session.put(_SAVE_UPLOAD, upload.identifier, _UPLOADS.to_values(upload))
        self._session.remember((uploads, upload.identifier), upload)


class SqlHostedDocumentRepository(HostedDocumentRepository):
    """Served documents, in the table `hosted_documents`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def save(self, document: HostedDocument) -> None:
        self._session.put(_SAVE_HOSTED_DOCUMENT, document.address, _HOSTED.to_values(document))

    @override
    def get(self, address: str) -> HostedDocument | None:
        found = _HOSTED.to_records(self._session.execute(_HOSTED_DOCUMENT, {"named": address}))
        return found[0] if found else None


def _to_columns(report: ReportRecord) -> dict[str, Any]:
    values = _REPORTS.to_values(report)
    del values["sequence"]
    return values

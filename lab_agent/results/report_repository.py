"""Messages of laboratory systems, the resources uploaded for them, and documents that our own API serves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, literal_column, select

from lab_agent.results.records import HoldReason, HostedDocument, ReportRecord, UploadRecord
from lab_agent.shared.errors import StoreError
from lab_agent.shared.ids import OrderKey, ReportKey
from lab_agent.shared.state_machines import REPORTS_NEEDING_OPERATOR, REPORTS_OF_THEIR_ORDER, ReportState
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


class ReportRepository:
    """Reports, in the table of that name; numbered by the database as they arrive."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, report: ReportRecord) -> bool:
        """Write a message, giving it the next sequence. False if its key is there already."""
        sequence: int | None = self._session.send(_ADD_REPORT, _to_columns(report)).scalar()
        if sequence is not None:
            self._session.remember((reports, report.key), replace(report, sequence=sequence))
        return sequence is not None

    def get_for_update(self, key: ReportKey) -> ReportRecord:
        """Read a report and lock it until the unit of work ends. Raises `StoreError` if it is unknown."""
        known: ReportRecord | None = self._session.known((reports, key))
        if known is not None:
            return known
        found = self._fetch(_REPORT if self._session.read_only else _REPORT_LOCKED, {"of": key})
        if not found:
            raise _unknown_report(key)
        self._session.remember((reports, key), found[0])
        return found[0]

    def find(self, source: str, message: str) -> ReportRecord | None:
        """The message with that name of an adapter; None if none is stored."""
        return next(iter(self._fetch(_MESSAGE, {"sender": source, "named": message})), None)

    def newest(self, source: str, report_id: str) -> ReportRecord | None:
        """The message about a report of a laboratory system that arrived last, whatever became of it; None if there is none."""
        return next(iter(self._fetch(_NEWEST, {"sender": source, "named": report_id})), None)

    def orders_of(self, source: str, report_id: str) -> tuple[OrderKey, ...]:
        """The orders to which versions of a report of a laboratory system were delivered, or are on their way."""
        rows = self._session.execute(_ORDERS_OF_REPORT, {"sender": source, "named": report_id})
        return tuple(map(OrderKey, rows.scalars()))

    def await_names(self, report: ReportKey, names: Iterable[str]) -> None:
        """Note by which names of an order, none of which may be known yet, a report is to be found again."""
        if rows := [{"report": report, "name": name} for name in dict.fromkeys(names)]:
            self._session.send(_AWAIT_NAME, rows)

    def awaiting(self, names: Collection[str]) -> tuple[ReportRecord, ...]:
        """Unmatched reports that wait for an order of one of these names, by arrival."""
        found = {each.key: each for batch in chunked(sorted(set(names))) for each in self._fetch(_AWAITING, {"names": batch})}
        return tuple(sorted(found.values(), key=lambda each: each.sequence))

    def save(self, report: ReportRecord) -> None:
        """Write a changed report; its sequence stays. Raises `StoreError` if it is unknown."""
        known: ReportRecord | None = self._session.known((reports, report.key))
        kept = report if known is None else replace(report, sequence=known.sequence)
        if known == kept:
            return
        self._session.put(_SAVE_REPORT, report.key, changes(_to_columns(report)))
        if known is not None:  # and it is locked
            self._session.remember((reports, report.key), kept)

    def versions(self, order: OrderKey, source: str, report_id: str) -> tuple[ReportRecord, ...]:
        """All versions of one report that the laboratory system `source` sent about an order, by sequence."""
        return self._fetch(_VERSIONS, {"of": order, "sender": source, "named": report_id})

    def waiting(self, state: ReportState, hold_reason: HoldReason | None, *, after: int, limit: int) -> tuple[ReportRecord, ...]:
        """Reports that wait in this state, held ones for this reason, by sequence and from after one on."""
        asked = {"in_state": state, "held_for": hold_reason, "after": after, "at_most": limit}
        return self._fetch(_WAITING, asked)

    def delivered_of(self, order: OrderKey) -> tuple[ReportRecord, ...]:
        """The messages about an order that are delivered, and that no newer version has superseded, by sequence."""
        return self._fetch(_DELIVERED_OF, {"of": order})

    def delivered_between(self, since: datetime, until: datetime, *, after: int, limit: int) -> tuple[ReportRecord, ...]:
        """The same of all orders that were delivered in this time, by sequence and from after one on."""
        return self._fetch(_DELIVERED_BETWEEN, {"since": since, "until": until, "after": after, "at_most": limit})

    def needing_operator(self) -> tuple[ReportRecord, ...]:
        """Reports that are unmatched, unmapped or held, by sequence."""
        return self._fetch(_NEEDING_OPERATOR, {})

    def _fetch(self, query: Query, values: Mapping[str, Any]) -> tuple[ReportRecord, ...]:
        return _REPORTS.to_records(self._session.execute(query, values))


class UploadRepository:
    """Which resources of ours are on the service."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, identifier: str) -> UploadRecord | None:
        """The resource with this identifier value; None if it is unknown."""
        known: UploadRecord | None = self._session.known((uploads, identifier))
        if known is not None:
            return known
        found = _UPLOADS.to_records(self._session.execute(_UPLOAD, {"named": identifier}))
        return found[0] if found else None

    def find(self, identifiers: Collection[str]) -> Mapping[str, UploadRecord]:
        """Those that are known of the resources with these identifier values, by them."""
        found = {name: known for name in identifiers if (known := self._session.known((uploads, name))) is not None}
        for batch in chunked([name for name in identifiers if name not in found]):
            rows = self._session.execute(_UPLOADS_NAMED, {"names": batch})
            found.update((upload.identifier, upload) for upload in _UPLOADS.to_records(rows))
        return found

    def save(self, upload: UploadRecord) -> None:
        """Write or replace it."""
        self._session.put(_SAVE_UPLOAD, upload.identifier, _UPLOADS.to_values(upload))
        self._session.remember((uploads, upload.identifier), upload)


class HostedDocumentRepository:
    """Served documents, in the table `hosted_documents`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def save(self, document: HostedDocument) -> None:
        """Serve a document under its address from now on."""
        self._session.put(_SAVE_HOSTED_DOCUMENT, document.address, _HOSTED.to_values(document))

    def get(self, address: str) -> HostedDocument | None:
        """What is served under an address."""
        found = _HOSTED.to_records(self._session.execute(_HOSTED_DOCUMENT, {"named": address}))
        return found[0] if found else None


def _to_columns(report: ReportRecord) -> dict[str, Any]:
    values = _REPORTS.to_values(report)
    del values["sequence"]
    return values

"""Erasing what is stored of one patient: rows that may name them go, and in what stays everything that is not a key, a state, a
time or a code is emptied. So nothing is fetched, uploaded or delivered twice afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import ColumnElement, delete, select, update

from lab_agent.results.refused_message_repository import refused_contents, refused_messages
from lab_agent.shared.ids import OrderKey, RefusedKey, ReportKey
from lab_agent.shared.state_machines import FINISHED_REPORTS
from lab_agent.store.audit_tables import audit_notes, audit_records
from lab_agent.store.retention import find_documents_in, find_needed_documents
from lab_agent.store.row_mapping import chunked
from lab_agent.store.search_tables import patient_digests
from lab_agent.store.session import Session
from lab_agent.store.tables import events, jobs, label_uses, lines, orders, reports, work_orders
from lab_agent.store.vault_tables import documents, hosted_documents, identities, reported_patients, service_messages

_ERASED = "erased"
_KEPT_PAYLOAD = frozenset({"adapter", "reopened", "status"})


class Erasure:
    """Erases in the unit of work. What is in progress is the caller's to look at before."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def count_results(self, key: OrderKey) -> tuple[int, int]:
        """How many results of an order are not finished, and how many there are."""
        states = self._session.scalars(select(reports.c.state).where(reports.c.order_key == key)).all()
        return sum(state not in FINISHED_REPORTS for state in states), len(states)

    def order(self, key: OrderKey, empty_message: Callable[[bytes], bytes], *, at: datetime) -> int:
        """Erase all of an order but keys, states, times and codes; how many documents went.

        `empty_message` gives a stored message (`LabMessage`) without what it says of the patient.
        """
        self._empty(orders, orders.c.key == key, received=None, lab_order=None, patient_reference=None, reason=None)
        self._empty(work_orders, work_orders.c.order_key == key, reason=None)
        self._empty(lines, lines.c.order_key == key, outputs=())
        self._empty(label_uses, label_uses.c.order_key == key, patient_reference="")
        self._empty_jobs(key)
        mine = find_documents_in(self._session, reports.c.order_key == key) | self._hosted_documents(key)
        for table in (identities, patient_digests, service_messages, hosted_documents, events):
            self._session.execute(delete(table).where(table.c.order_key == key))
        for report in self._session.scalars(select(reports.c.key).where(reports.c.order_key == key)).all():
            self.report(ReportKey(report), empty_message)
        self._erase_notes((audit_notes.c.order_key == key) | _is_about(key))
        return self._delete_documents(mine - find_needed_documents(self._session, at))

    def report(self, key: ReportKey, empty_message: Callable[[bytes], bytes]) -> None:
        """Erase the values of a result, and whose it is; its keys and its state stay."""
        body = self._session.scalar(select(reports.c.body).where(reports.c.key == key))
        self._session.execute(delete(reported_patients).where(reported_patients.c.report == key))
        self._session.execute(delete(events).where(events.c.report == key))
        self._empty(reports, reports.c.key == key, body=empty_message(body or b"{}"), outgoing_body=None, reason=None)
        self._erase_notes(_is_about(key))

    def refused_message(self, key: RefusedKey) -> None:
        """Erase the raw text of a refused message, its history, and what people wrote about it."""
        self._session.execute(delete(refused_contents).where(refused_contents.c.refused_key == key))
        self._session.execute(delete(events).where(events.c.refused_message == key))
        self._empty(refused_messages, refused_messages.c.key == key, is_kept=False, reason=_ERASED)
        self._erase_notes(_is_about(key))

    def _empty(self, table: object, which: ColumnElement[bool], **values: object) -> None:
        self._session.execute(update(table).where(which).values(**values))  # type: ignore[arg-type]

    def _empty_jobs(self, key: OrderKey) -> None:
        """Keep of a job what it was about; why it failed, and the words that it was to send, go."""
        rows = self._session.execute(select(jobs.c.id, jobs.c.payload).where(jobs.c.order_key == key)).all()
        for row in rows:
            payload = {name: value for name, value in row.payload.items() if name in _KEPT_PAYLOAD}
            self._empty(jobs, jobs.c.id == row.id, payload=payload, reason=None)

    def _hosted_documents(self, key: OrderKey) -> frozenset[str]:
        hosted = select(hosted_documents.c.document).where(hosted_documents.c.order_key == key)
        return frozenset(self._session.scalars(hosted))

    def _delete_documents(self, names: frozenset[str]) -> int:
        return sum(
            self._session.execute(delete(documents).where(documents.c.id.in_(batch))).rowcount for batch in chunked(sorted(names))
        )

    def _erase_notes(self, which: ColumnElement[bool]) -> None:
        self._session.execute(delete(audit_notes).where(which))


def _is_about(subject: str) -> ColumnElement[bool]:
    """Whether a note is of a record with this subject."""
    return audit_notes.c.number.in_(select(audit_records.c.number).where(audit_records.c.subject == subject))

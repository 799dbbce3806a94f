"""The inbox: what a laboratory system reports is committed here before it is acknowledged (law 1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import count

import structlog

from lab_agent.lis.lab_messages import AccessionUpdate, Document, LabMessage, LabReport, ReportedPatient
from lab_agent.lis.laboratory_system import AdapterSource
from lab_agent.lis.report_documents import map_documents
from lab_agent.lis.serialization import dump_message, dump_reported_patient, load_stored_message
from lab_agent.queue import jobs
from lab_agent.results.records import ReportRecord
from lab_agent.results.refused_messages import record_refusal
from lab_agent.results.refused_records import RefusedContent, RefusedMessage
from lab_agent.results.report_versions import exists_twice, is_repeat
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import CryptoError, Failure
from lab_agent.shared.ids import report_key
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

_ADAPTER_CONDITIONS = {
    condition.value.removeprefix("lis."): condition
    for condition in (
        ConditionId.LIS_CONNECTIONS,
        ConditionId.LIS_UNFINISHED_INPUT,
        ConditionId.LIS_TURNED_AWAY,
        ConditionId.LIS_UNNAMED_LINES,
    )
}
"""Alerts of adapters that the table of conditions knows, by the adapters' name for them."""

OnResult = Callable[[str, Failure | None], Awaitable[None]]
"""Called for each laboratory system with its failure, or None."""


@dataclass(frozen=True, slots=True)
class ResultCollector:
    """Asks each running adapter for new results; one that is unavailable stops no other."""

    adapters: AdapterSource
    on_result: OnResult

    async def run(self) -> int:
        """Ask all adapters at once; the number of new messages."""
        return sum(await asyncio.gather(*(self._collect_from(name) for name, _ in self.adapters.running())))

    async def _collect_from(self, name: str) -> int:
        adapter = self.adapters.get(name)
        try:
            await adapter.check()
            new = await adapter.collect()
        except Failure as failure:
            await self.on_result(name, failure)
            return 0
        await self.on_result(name, None)
        return new


@dataclass(frozen=True, slots=True)
class StoreInbox:
    """The inbox of one adapter (`source`). What is new is matched by a job of its own."""

    store: Store
    clock: Clock
    source: str

    async def accept(self, message: str, content: LabMessage) -> bool:
        """Store a message and the job to match it, in one commit. False: it was stored before."""
        new = await self.store.transact(lambda uow: self._store_message(uow, message, content))
        if new:
            log.info("result received", action="result_received", adapter=self.source)
        return new

    async def accept_all(self, messages: Mapping[str, LabMessage]) -> frozenset[str]:
        """Store several messages and the jobs to match them, in one commit; gives those that are new."""

        def write(uow: UnitOfWork) -> frozenset[str]:
            return frozenset(name for name, content in messages.items() if self.add_message(uow, name, content) is not None)

        new = await self.store.transact(write)
        if new:
            log.info("results received", action="result_received", adapter=self.source, count=len(new))
        return new

    async def was_accepted(self, message: str) -> bool:
        """Whether a message of that name was stored before."""
        return message in await self.find_accepted((message,))

    async def find_accepted(self, messages: Collection[str]) -> frozenset[str]:
        """Those of these names whose messages were stored before."""
        return await self.store.run_read_only(
            lambda uow: frozenset(name for name in messages if uow.reports.find(self.source, name) is not None)
        )

    async def reject(self, message: str, reason: str, *, raw: bytes | None = None) -> None:
        """Record that a message was refused, with its content in the vault; one alert for each laboratory system says so."""
        content = RefusedContent(message_id=message, raw=_as_bytes(raw))

        def write(uow: UnitOfWork) -> RefusedMessage:
            return record_refusal(uow, self.source, content, reason, self.clock.now())

        recorded = await self.store.transact(write)
        log.warning("result rejected", action="result_rejected", adapter=self.source, message=recorded.key, count=recorded.count)

    async def skip(self, message: str, reason: str) -> None:  # noqa: ARG002 — a name of the LIS's does not belong in the log
        """Log what an adapter left out on purpose."""
        log.info("left out by a rule", action="result_skipped", adapter=self.source, reason=reason)

    async def alert(self, key: str, text: str | None) -> None:
        """Open or close an alert of the adapter's own; its text says which laboratory system it is about."""
        alert_key, now = adapter_alert_key(self.source, key), self.clock.now()

        def write(uow: UnitOfWork) -> bool:
            if text is None:
                changed = uow.alerts.close(alert_key, now=now)
            else:
                condition, subject = alert_key
                changed = uow.alerts.open(Alert(condition=condition, subject=subject, detail=text, since=now, opened_at=now))
            return changed

        if not await self.store.transact(write):
            return
        if text is None:
            log.info("condition ended", action="condition_ended", adapter=self.source, alert=str(alert_key))
        else:
            log.warning("adapter alert", action="adapter_alert", adapter=self.source, alert=str(alert_key))

    async def seal(self, content: bytes) -> bytes:
        """Encrypt with the keys of the vault."""
        return await self.store.transact(lambda uow: uow.vault.seal(content))

    async def unseal(self, sealed: bytes) -> bytes | None:
        """Give back what was sealed; None where no key fits."""
        try:
            return await self.store.transact(lambda uow: uow.vault.unseal(sealed))
        except CryptoError:
            log.warning("sealed content cannot be read", action="unseal_failed", adapter=self.source)
            return None

    def _store_message(self, uow: UnitOfWork, message: str, content: LabMessage) -> bool:
        return self.add_message(uow, message, content) is not None

    def add_message(self, uow: UnitOfWork, message: str, content: LabMessage) -> ReportRecord | None:
        """Write a message and the job to match it, uncommitted; None for the repeat of one that was stored before."""
        name = self._find_free_name(uow, message, content)
        if name is None:
            return None
        now = self.clock.now()
        lean, patient = _take_patient_out(self._move_documents_to_vault(uow, content))
        record = ReportRecord(
            key=report_key(self.source, name),
            source=self.source,
            message=name,
            report_id=content.report_id if isinstance(content, LabReport) else None,
            version=content.version if isinstance(content, LabReport) else None,
            issued=content.issued if isinstance(content, LabReport) and not exists_twice(content.issued) else None,
            received_at=now,
            changed_at=now,
            body=dump_message(lean),
        )
        if not uow.reports.add(record):
            return None
        if patient is not None:
            uow.vault.save_reported_patient(record.key, dump_reported_patient(patient), at=now)
        uow.jobs.add(jobs.match_report(record, _order_reference(content), now))
        return record

    def _find_free_name(self, uow: UnitOfWork, message: str, content: LabMessage) -> str | None:
        """The name under which a message is new; None for a repeat.

        Names are made of control ids and content, and a sender may use both again: values that go from A to B and back to A are
        three versions of a report. So a report of a known name is a repeat of the last one of that name, or it is new.
        """
        earlier = name = None
        for number in count(1):
            name = message if number == 1 else f"{message}~{number}"
            found = uow.reports.find(self.source, name)
            if found is None:
                break
            earlier = found
        if earlier is None or not isinstance(content, LabReport):
            return name if earlier is None else None
        newest = uow.reports.newest(self.source, content.report_id)
        said = load_stored_message(earlier.body)
        return None if newest is None or not isinstance(said, LabReport) or is_repeat(content, said, earlier, newest) else name

    def _move_documents_to_vault(self, uow: UnitOfWork, content: LabMessage) -> LabMessage:
        """Move the documents' bytes to the vault, where `file` then names them: they may name the patient (law 7)."""
        if not isinstance(content, LabReport):
            return content

        def apart(document: Document) -> Document:
            if document.content is None:
                return document
            kept = uow.vault.save_document(document.content, document.content_type, at=self.clock.now())
            return replace(document, content=None, file=kept)

        return map_documents(content, apart)


def _as_bytes(raw: object) -> bytes | None:
    """The bytes of a refused message, as the store takes them: an adapter may be careless, and must not fail for ever here."""
    if raw is None or isinstance(raw, bytes):
        return raw
    return bytes(raw) if isinstance(raw, bytearray | memoryview) else str(raw).encode("utf-8", "replace")


def adapter_alert_key(source: str, key: str) -> AlertKey:
    """The alert that an adapter opens itself: those of the table by its id, others by the adapter's own name for it."""
    known = _ADAPTER_CONDITIONS.get(key)
    if known is not None:
        return AlertKey(known, source)
    return AlertKey(ConditionId.LIS_ADAPTER_ALERT, f"{source}/{key}")


def _take_patient_out(content: LabMessage) -> tuple[LabMessage, ReportedPatient | None]:
    """Part a message from whose it is, which the vault keeps: it is matched by numbers, and the patient is compared (law 7)."""
    if isinstance(content, AccessionUpdate):
        return content, None
    said = content.patient if content.patient != ReportedPatient() else None
    return replace(content, patient=None), said


def _order_reference(content: LabMessage) -> str:
    lines = content.lines if isinstance(content, LabReport) else ()
    accession = None if isinstance(content, AccessionUpdate) else content.accession
    return content.order or accession or content.barcode or next(iter(lines), "")

"""Delivers a report: its documents, its observations, then the DiagnosticReport, which is the commit point; the Tasks follow."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import ClassVar

import structlog

from lab_agent.exchange.service import Exchange
from lab_agent.fhir.reference_spelling import ReferenceWriter
from lab_agent.fhir.report_builder import DocumentUrls, Upload, UploadPlan, upload_identifiers, with_result_references
from lab_agent.lis.lab_messages import Document, LabReport, ReportStatus
from lab_agent.lis.report_documents import documents_with_paths
from lab_agent.orders.line_lifecycle import (
    advance_order,
    cancel_lines,
    complete_lines,
    describe_existing_result,
    lines_with_result,
    reopen_lines,
)
from lab_agent.orders.records import LineRecord, OrderRecord
from lab_agent.orders.restored_service import note_documents_gone, note_lost_report
from lab_agent.queue import jobs
from lab_agent.queue.job_handler import Lease
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.results.document_upload import DocumentCheck, DocumentNotKept, DocumentUploader, StoredDocument
from lab_agent.results.documents import Documents, PrintError
from lab_agent.results.hold_reasons import Hold, held, hold_report, unmapped
from lab_agent.results.order_lookup import OrderPart, load_part
from lab_agent.results.own_reports import upload_names
from lab_agent.results.records import HoldReason, ReportRecord, UploadRecord
from lab_agent.results.report_coverage import Coverage, determine_coverage
from lab_agent.results.resource_upload import Uploader, error_context
from lab_agent.results.result_history import ReportVersion, dropped_observations, join_names, load_version
from lab_agent.results.result_versions import load_delivered_version, rematch_waiting_versions, settle_older_versions
from lab_agent.results.upload_batch import UploadBatch
from lab_agent.results.upload_planning import UploadPlanner
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import DataInvalidError, PermanentFailure
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey
from lab_agent.shared.state_machines import LineState, ReportState
from lab_agent.shared.text import join_limited, shorten
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

_CANCELLED_OR_WITHDRAWN = frozenset({LineState.CANCELLED, LineState.WITHDRAWN})


@dataclass(frozen=True, slots=True)
class Delivery:
    """One report on its way, as it was read: the report, the part of an order that it is about, and its documents."""

    record: ReportRecord
    version: ReportVersion
    """The report as it was stored, with the lines that it names itself now: other versions are compared with this one."""
    message: LabReport
    """The report as it goes out."""
    part: OrderPart
    coverage: Coverage
    uploads: Mapping[str, UploadRecord]
    """What is recorded of its resources, by `upload_names`. Nobody else changes that: reports of one order go one by one."""
    dropped_observations: tuple[str, ...]
    """Observations that the version before had, and this one has not."""
    lines_ended: Hold | None
    """What happened to its lines since it was matched, if an operator must decide about that first."""
    printed: bytes | None = None
    """The PDF of its observations, which it names as a document of its own."""
    print_error: str = ""
    """Why the PDF that was wanted could not be made."""
    sent_again: bool = False
    """Whether it was on the service before, and may be lost there: all of it is looked for (`jobs.send_report_again`)."""
    ends_again: tuple[LineKey, ...] = ()
    """Lines that it had completed, and whose Tasks were put back since."""
    documents_gone: tuple[str, ...] = ()
    """Its documents that are neither on the service nor here any more; the rest goes without them."""

    @property
    def order(self) -> OrderRecord:
        """The order."""
        return self.part.order


@dataclass(frozen=True, slots=True)
class ReportDelivered:
    """The report is on the service, as the delivery says; `upload` is the record of the DiagnosticReport."""

    delivery: Delivery
    upload: UploadRecord


@dataclass(frozen=True, slots=True)
class ReportHeld:
    """The report is not delivered; nothing of it was sent now."""

    order: OrderKey
    hold: Hold


@dataclass(frozen=True, slots=True)
class ReportNotWanted:
    """The report is not to be delivered any more."""

    order: OrderKey
    state: ReportState


@dataclass(frozen=True, slots=True)
class _Addressing:
    """Who may read the uploads of an order, and how they refer to its resources."""

    reader: str
    references: ReferenceWriter


@dataclass(frozen=True, slots=True)
class _SentDocuments:
    """Where the documents of a report are, by their files and types, and the places of those that are kept nowhere any more."""

    urls: DocumentUrls
    gone: tuple[str, ...]


DeliveryResult = ReportDelivered | ReportHeld | ReportNotWanted


@dataclass(frozen=True, slots=True)
class DeliverReportHandler:
    """Uploads reports, those of one order one after the other; our own API serves documents under `document_base_url`, if set."""

    exchange: Exchange
    store: Store
    clock: Clock
    planner: UploadPlanner
    documents: Documents
    document_base_url: str | None = None
    document_check: DocumentCheck = field(default_factory=DocumentCheck)

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.DELIVER_REPORT})

    def load(self, uow: UnitOfWork, job: Job) -> Delivery:
        """Load the report with its order and what is recorded of its uploads; documents are read when they are sent."""
        return _load_delivery(uow, job)

    async def perform(self, lease: Lease, loaded: Delivery) -> DeliveryResult:
        """Upload what is not there yet."""
        return await self._deliver(lease, loaded, verifying=False)

    async def verify(self, lease: Lease, loaded: Delivery) -> DeliveryResult:
        """Search for what a lost response may have hidden, then upload the rest."""
        return await self._deliver(lease, loaded, verifying=True)

    def complete(self, uow: UnitOfWork, job: Job, result: DeliveryResult) -> Job:
        """Write what became of the report, of its other versions and of its lines."""
        now = self.clock.now()
        match result:
            case ReportDelivered(delivery, upload):
                uow.uploads.save(upload)
                if _was_lost(delivery, upload):
                    completes = delivery.coverage.completes
                    note_lost_report(uow, delivery.order.key, completes, now, is_told=delivery.sent_again)
                return _complete_delivered(uow, job, delivery, now)
            case ReportHeld(order, hold):
                return _complete_held(uow, job, order, hold, now)
            case ReportNotWanted(order, state):
                advance_order(uow, order, now, completing=job)
                return job.mark_obsolete(now, f"the report is {state.value}")

    async def _deliver(self, lease: Lease, delivery: Delivery, *, verifying: bool) -> DeliveryResult:
        if delivery.record.state is not ReportState.MATCHED:
            return ReportNotWanted(delivery.order.key, delivery.record.state)
        if delivery.lines_ended is not None:
            return ReportHeld(delivery.order.key, delivery.lines_ended)
        order, report, base_url = delivery.order.key, delivery.record.key, self.planner.systems.base_url
        verifying = verifying or delivery.sent_again
        uploader = Uploader(self.exchange, self.store, lease, order, report, base_url, verifying, delivery.uploads)
        addressing = _Addressing(self.planner.reader(delivery.order), self.planner.reference_writer(delivery.order))
        delivery = await self._add_printed_report(delivery)
        if self.planner.unmapped_reason(delivery.message):  # who released it may have changed the tables since we read them
            await asyncio.to_thread(self.planner.mappings.reload)
        try:
            plan = self._plan(delivery, addressing, {})  # before anything is sent
        except DataInvalidError as exc:
            return ReportHeld(delivery.order.key, self._find_unrepresentable(delivery, exc))
        names = [each.identifier.value for each in plan.observations]
        doubtful = await uploader.is_doubtful(names, plan.report.identifier.value)
        sent = await self._upload_documents(uploader, delivery, addressing.reader, doubtful=doubtful)
        if sent.urls:
            plan = self._plan(delivery, addressing, sent.urls)
        delivery = replace(delivery, documents_gone=sent.gone)
        return ReportDelivered(delivery, await self._upload(uploader, delivery, plan, addressing.references, doubtful=doubtful))

    async def _upload(
        self, uploader: Uploader, delivery: Delivery, plan: UploadPlan, references: ReferenceWriter, *, doubtful: bool
    ) -> UploadRecord:
        """Upload the observations, then the report, which is the commit point; its record is for the completing unit of work."""
        observations = {f"observations[{index}]": each for index, each in enumerate(plan.observations)}
        records = dict(await uploader.confirm(observations, doubtful=doubtful))
        missing = UploadBatch(uploader, {where: each for where, each in observations.items() if where not in records})
        if missing.uploads:
            await uploader.lease.mark_started(missing.save_started)
            await missing.send()
        if missing.failed is not None:
            await uploader.lease.write(lambda uow: missing.save_answers(uow, self.clock.now()))
            missing.raise_failure()
        records |= missing.records
        body = with_result_references(plan.report, [records[where].resource_id for where in observations], references)
        record = await self._upload_report(uploader, replace(plan.report, body=body), missing, doubtful=doubtful)
        log.info("report delivered", action="report_delivered", order=delivery.order.key, observations=len(observations))
        return record

    async def _upload_report(self, uploader: Uploader, report: Upload, before: UploadBatch, *, doubtful: bool) -> UploadRecord:
        """Upload the DiagnosticReport; what was answered to the uploads `before` it is recorded first, with its own beginning."""
        batch = UploadBatch(uploader, {"the report itself": report})
        known = next(iter((await uploader.confirm(batch.uploads, doubtful=doubtful)).values()), None)

        def record(uow: UnitOfWork) -> None:
            before.save_answers(uow, self.clock.now())
            if known is None:
                batch.save_started(uow)

        if before.uploads:
            await uploader.lease.write(record)
        elif known is None:
            await uploader.lease.mark_started(record)
        if known is not None:
            return known
        await batch.send()
        if batch.failed is not None or batch.unknown:
            await uploader.lease.write(lambda uow: batch.save_answers(uow, self.clock.now()))
        batch.raise_failure()
        return next(iter(batch.records.values()))

    async def _add_printed_report(self, delivery: Delivery) -> Delivery:
        """Add a PDF of the observations if the LIS gave no document and one is wanted; the values go without it, too."""
        message = delivery.message
        if message.documents or not message.observations or message.status is not ReportStatus.FINAL:
            return delivery
        if self.planner.settings.documents == "none":
            return delivery
        requisition = delivery.order.requisition
        heading = requisition.value if requisition else delivery.order.key
        try:
            made = await asyncio.to_thread(self.documents.render_pdf, message, heading, self.planner.exchange_codes(message))
        except PrintError as exc:
            log.warning("report not printed", action="report_not_printed", order=delivery.order.key, reason=str(exc))
            return replace(delivery, print_error=str(exc))
        if made is None:
            return delivery
        document = Document(file=sha256(made).hexdigest(), content_type="application/pdf")
        return replace(delivery, message=replace(message, documents=(document,)), printed=made)

    async def _upload_documents(self, uploader: Uploader, delivery: Delivery, reader: str, *, doubtful: bool) -> _SentDocuments:
        sent = _SentDocuments({}, ())
        if self.planner.settings.documents == "none":
            return sent
        for where, named in documents_with_paths(delivery.message):
            key = (named.file or "", named.content_type)
            if named.file is not None and key not in sent.urls:
                document = StoredDocument(self.store, named.file, named.content_type, delivery.printed)
                with error_context(where):
                    sent = await self._add_document(uploader, delivery, document, reader, sent, where, doubtful=doubtful)
        return sent

    async def _add_document(
        self,
        uploader: Uploader,
        delivery: Delivery,
        document: StoredDocument,
        reader: str,
        sent: _SentDocuments,
        where: str,
        *,
        doubtful: bool,
    ) -> _SentDocuments:
        """Upload one more. What is sent again goes without a document that is not kept any more, if it has anything else."""
        try:
            url = await self._upload_document(uploader, document, reader, doubtful=doubtful)
        except DocumentNotKept:
            if not (delivery.sent_again and delivery.message.observations):
                raise
            return _SentDocuments(sent.urls, (*sent.gone, where))
        return _SentDocuments({**sent.urls, (document.sha256, document.content_type): url}, sent.gone)

    async def _upload_document(self, uploader: Uploader, document: StoredDocument, reader: str, *, doubtful: bool) -> str:
        documents = DocumentUploader(uploader, self.exchange, self.clock, self.document_check, doubtful)
        if self.document_base_url is None:
            return await documents.ensure_binary(document, reader)
        address = await documents.ensure_hosted(document, self._expiry(), self.clock.now())
        return f"{self.document_base_url.rstrip('/')}/documents/{address}"

    def _expiry(self) -> datetime | None:
        days = self.planner.settings.host_days
        return None if days is None else self.clock.now() + timedelta(days=days)

    def _plan(self, delivery: Delivery, addressing: _Addressing, urls: DocumentUrls) -> UploadPlan:
        previous = {name: upload.digest for name, upload in delivery.uploads.items()}
        given = (delivery.message, delivery.part, delivery.coverage)
        return self.planner.plan(*given, reader=addressing.reader, urls=urls, references=addressing.references, previous=previous)

    def _find_unrepresentable(self, delivery: Delivery, error: DataInvalidError) -> Hold:
        """Why what was matched cannot be written as FHIR any more: a table was changed since."""
        if lacking := self.planner.unmapped_reason(delivery.message):
            return unmapped(lacking)
        return held(HoldReason.DEFECT, join_limited(map(str, error.problems), "; "))


def _complete_delivered(uow: UnitOfWork, job: Job, delivery: Delivery, now: datetime) -> Job:
    order = delivery.order.key
    record = uow.reports.get_for_update(delivery.record.key).transition_to(ReportState.DELIVERED, now)
    uow.reports.save(record)
    version = replace(delivery.version, record=replace(record, lines=delivery.version.record.lines))
    if settle_older_versions(uow, version, now):
        rematch_waiting_versions(uow, record, now)
    completed = complete_lines(uow, order, (*delivery.coverage.completes, *delivery.ends_again), now)
    reopen_lines(uow, order, now)
    moved = cancel_lines(uow, order, delivery.coverage.not_performed, now)
    text = f"{delivery.message.status.value} report {shorten(delivery.message.report_id)} of {record.source} is on the service"
    unprinted = f"; without a PDF: {delivery.print_error}" if delivery.print_error else ""
    text += _dropped_observations_text(delivery) + _unmoved_lines_text(delivery, moved) + unprinted
    if delivery.documents_gone:
        text += f"; without {join_limited(delivery.documents_gone)}, which is not kept any more"
        note_documents_gone(uow, len(delivery.documents_gone), now)
    uow.events.add(Event(order=order, report=record.key, at=now, action="delivered", text=text))
    if not (completed or moved):  # else it follows the Tasks of these lines, whose jobs are open
        advance_order(uow, order, now, completing=job)
    return job.complete(now)


def _was_lost(delivery: Delivery, upload: UploadRecord) -> bool:
    """Whether the report was on the service before, and had to be created there once more."""
    before = delivery.uploads.get(upload.identifier)
    return before is not None and before.resource_id not in {"", upload.resource_id}


def _complete_held(uow: UnitOfWork, job: Job, order: OrderKey, hold: Hold, now: datetime) -> Job:
    """Hold what could be delivered when it was matched and cannot be now."""
    record = hold_report(uow, uow.reports.get_for_update(ReportKey(job.target)), hold, now)
    rematch_waiting_versions(uow, record, now)
    reopen_lines(uow, order, now)
    return job.mark_obsolete(now, hold.text)


def _load_delivery(uow: UnitOfWork, job: Job) -> Delivery:
    record = uow.reports.get_for_update(ReportKey(job.target))
    version = load_version(record)
    if record.order is None or version is None:
        raise PermanentFailure("this message has no report to deliver")
    message = version.whole
    part = load_part(uow, record.order, record.adapter, source=record.source)
    coverage, own = (determine_coverage(each, part.lines, part.codes) for each in (message, version.sent))
    previous = load_delivered_version(uow, record)
    identifiers = upload_identifiers(part.key, message)
    uploads = uow.uploads.find(upload_names(identifiers))
    return Delivery(
        record=record,
        version=replace(version, record=replace(record, lines=own.lines)),
        message=message,
        part=part,
        coverage=coverage,
        uploads=uploads,
        dropped_observations=tuple(dropped_observations(previous.whole if previous else None, message)),
        sent_again=jobs.is_sent_again(job),
        ends_again=jobs.lines_ending_again(job),
        lines_ended=_find_ended_lines(record, part.lines, coverage, first=identifiers[-1] not in uploads),
    )


def _find_ended_lines(record: ReportRecord, lines: Sequence[LineRecord], coverage: Coverage, *, first: bool) -> Hold | None:
    """What happened to the lines of a matched report after that; what an operator released knows it."""
    since = {line.key: line.state for line in lines if line.changed_at > record.changed_at}
    if taken := [key for key in coverage.completes if since.get(key) is LineState.CANCELLED]:
        return held(HoldReason.LINES_ENDED, f"{join_limited(taken)} was cancelled")
    if first and coverage.lines and all(since.get(key) in _CANCELLED_OR_WITHDRAWN for key in coverage.lines):
        return held(HoldReason.LINES_ENDED, f"{join_limited(coverage.lines)} was withdrawn or cancelled")
    if late := lines_with_result([line for line in lines if line.key in since], coverage.not_performed):
        return held(HoldReason.LINE_HAS_RESULT, describe_existing_result(late))
    return None


def _unmoved_lines_text(delivery: Delivery, moved: Collection[LineKey]) -> str:
    states = {line.key: line.state.value for line in delivery.part.lines}
    stayed = [f"{key}, said not performed, stays {states[key]}" for key in delivery.coverage.not_performed if key not in moved]
    return "".join(f"; {each}" for each in stayed)


def _dropped_observations_text(delivery: Delivery) -> str:
    if not delivery.dropped_observations:
        return ""
    return f"; it names {join_names(delivery.dropped_observations)} no more, which stay on the service as they were"

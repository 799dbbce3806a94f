"""Delivery: upload a report with its documents and observations; the DiagnosticReport is the commit point, the Tasks follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import ClassVar

import structlog

from lab_agent.domain import jobs
from lab_agent.domain.ids import LineKey, ReportKey
from lab_agent.domain.lab_messages import Document, LabReport, ReportStatus
from lab_agent.domain.records import Event, Job, JobKind, LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.report_coverage import Coverage, determine_coverage
from lab_agent.domain.report_documents import documents_of, documents_with_paths
from lab_agent.domain.report_versions import is_older, oldest_first
from lab_agent.domain.state_machines import JOBS_NEEDING_OPERATOR, REPORTS_NEEDING_OPERATOR, LineState, ReportState
from lab_agent.domain.text import join_limited, shorten
from lab_agent.errors import DataInvalidError, PermanentFailure
from lab_agent.fhir.report_builder import DocumentUrls, UploadPlan, report_identifier, with_result_references
from lab_agent.ports.clock import Clock
from lab_agent.ports.documents import Documents, PrintError
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.jobs import Lease
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.serialization import load_stored_message
from lab_agent.workflow.line_lifecycle import (
    advance_order,
    cancel_lines,
    complete_lines,
    describe_existing_result,
    lines_with_result,
    reopen_lines,
)
from lab_agent.workflow.order_lookup import order_codes
from lab_agent.workflow.resource_upload import Uploader, error_context
from lab_agent.workflow.result_matching import requeue_newer_versions
from lab_agent.workflow.result_versions import (
    defect_reason,
    dropped_observations,
    join_names,
    lost_content,
    lost_content_to,
    superseded_by_newer_reason,
    waits_for_older_reason,
)
from lab_agent.workflow.upload_planning import UploadPlanner

log = structlog.get_logger(__name__)

Completion = Callable[[UnitOfWork, Job], Job]

_PRINTED_FILE = "printed"
_SUPERSEDED_REASON = "a newer version was delivered"
_CANCELLED_OR_WITHDRAWN = frozenset({LineState.CANCELLED, LineState.WITHDRAWN})


@dataclass(frozen=True, slots=True)
class Delivery:
    """One report on its way: what the journal knows of it, of its order, and of the documents that are to go with it."""

    record: ReportRecord
    message: LabReport
    order: OrderRecord
    lines: tuple[LineRecord, ...]
    coverage: Coverage
    newer: ReportRecord | None
    """The newest of the newer versions that were delivered before it."""
    newer_started: bool
    older_delivered_meanwhile: ReportKey | None
    """An older version that came after this one was matched, and went."""
    documents: Mapping[tuple[str, str], bytes | None]
    """Documents by their id in the vault and their type; None for bytes that are not kept any more."""
    dropped_observations: tuple[str, ...]
    """Observations that the version before had, and this one has not."""
    lines_ended_reason: str | None
    """What became of its lines since it was matched, if a person must look at that first."""
    print_error: str = ""
    """Why the PDF that was wanted could not be made."""


@dataclass(frozen=True, slots=True)
class DeliverReportHandler:
    """Uploads reports, those of one order in their order. `host_at` is where our own API serves documents, if it does."""

    exchange: Exchange
    store: Store
    clock: Clock
    planner: UploadPlanner
    documents: Documents
    document_base_url: str | None = None

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.DELIVER_REPORT})

    async def perform(self, lease: Lease) -> Completion:
        """Upload what is not there yet."""
        return await self._deliver(lease, verifying=False)

    async def verify(self, lease: Lease) -> Completion:
        """Search for what a lost reply may have hidden, then upload the rest."""
        return await self._deliver(lease, verifying=True)

    def complete(self, uow: UnitOfWork, job: Job, result: Completion) -> Job:
        """Write what was decided."""
        return result(uow, job)

    async def _deliver(self, lease: Lease, *, verifying: bool) -> Completion:
        delivery = await self.store.run(lambda uow: _load_delivery(uow, lease.job))
        if (instead := self._skip_or_defer(delivery)) is not None:
            return instead
        uploader = Uploader(self.exchange, self.store, lease, delivery.order.key, delivery.record.key, verifying)
        reader = self.planner.reader(delivery.order)
        delivery = await self._add_printed_report(delivery)
        if self.planner.unmapped_reason(delivery.message):  # whoever released it may have mended the tables since we read them
            await asyncio.to_thread(self.planner.mappings.reload)
        try:
            await self._plan(delivery, reader, {}, uploader)  # before anything is sent
        except DataInvalidError as exc:
            return self._hold_unrepresentable(delivery, exc)
        urls = await self._upload_documents(uploader, delivery, reader)
        plan = await self._plan(delivery, reader, urls, uploader)
        observations = []
        for index, each in enumerate(plan.observations):
            with error_context(f"observations[{index}]"):
                observations.append(await uploader.ensure(each.resource_type, each.identifier, each.body))
        report = plan.report
        with error_context("the report itself"):
            await uploader.ensure(report.resource_type, report.identifier, with_result_references(report, observations))
        log.info("report delivered", action="report_delivered", order=delivery.order.key, observations=len(observations))
        return self._complete_delivered(delivery)

    def _skip_or_defer(self, delivery: Delivery) -> Completion | None:
        """What is done instead of uploading a report that is not wanted, or not now; None for one that goes."""
        if delivery.record.state is not ReportState.MATCHED:
            return self._complete_not_wanted(delivery)
        if delivery.newer is not None:
            gone = lost_content_to(delivery.record, delivery.newer)
            return (
                self._hold(delivery, ReportState.HELD, superseded_by_newer_reason(gone))
                if gone
                else self._complete_superseded(delivery)
            )
        if delivery.newer_started:
            return self._requeue_behind_newer(delivery)
        if delivery.older_delivered_meanwhile is not None:
            return self._rematch_after_older(delivery, delivery.older_delivered_meanwhile)
        return self._hold(delivery, ReportState.HELD, delivery.lines_ended_reason) if delivery.lines_ended_reason else None

    async def _add_printed_report(self, delivery: Delivery) -> Delivery:
        """Add a PDF of the observations where the LIS gave no document and one is wanted; the values go without it, too."""
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
        document = Document(file=_PRINTED_FILE, content_type="application/pdf")
        kept = {**delivery.documents, (_PRINTED_FILE, document.content_type): made}
        return replace(delivery, message=replace(message, documents=(document,)), documents=kept)

    async def _upload_documents(self, uploader: Uploader, delivery: Delivery, reader: str) -> dict[tuple[str, str], str]:
        if self.planner.settings.documents == "none":
            return {}
        urls: dict[tuple[str, str], str] = {}
        for where, document in documents_with_paths(delivery.message):
            key = (document.file or "", document.content_type)
            if key in delivery.documents and key not in urls:
                with error_context(where):
                    urls[key] = await self._upload_document(uploader, *key, delivery.documents[key], reader)
        return urls

    async def _upload_document(self, uploader: Uploader, file: str, kind: str, content: bytes | None, reader: str) -> str:
        name = file if content is None else sha256(content).hexdigest()
        if self.document_base_url is None:
            return f"fhir/Binary/{await uploader.ensure_document(name, content, kind, reader)}"
        if content is None:
            raise PermanentFailure("it is not kept any more; let the laboratory system send it again")
        address = await uploader.ensure_hosted_document(name, content, kind, self._expiry(), self.clock.now())
        return f"{self.document_base_url.rstrip('/')}/documents/{address}"

    def _expiry(self) -> datetime | None:
        days = self.planner.settings.host_days
        return None if days is None else self.clock.now() + timedelta(days=days)

    async def _plan(self, delivery: Delivery, reader: str, urls: DocumentUrls, uploader: Uploader) -> UploadPlan:
        given = (delivery.message, delivery.order, delivery.lines, delivery.coverage)
        blank = self.planner.plan(*given, reader=reader, urls=urls)
        identifiers = [each.identifier.value for each in (*blank.observations, blank.report)]
        known = {identifier: await uploader.get_upload(identifier) for identifier in identifiers}
        previous = {identifier: upload.digest for identifier, upload in known.items() if upload is not None}
        return self.planner.plan(*given, reader=reader, urls=urls, previous=previous)

    def _complete_delivered(self, delivery: Delivery) -> Completion:
        now = self.clock.now()

        def write(uow: UnitOfWork, job: Job) -> Job:
            order = delivery.order.key
            _supersede_older_versions(uow, delivery, now)
            complete_lines(uow, order, delivery.coverage.completes, now)
            reopen_lines(uow, order, now)
            moved = cancel_lines(uow, order, delivery.coverage.not_performed, now)
            text = f"{delivery.message.status.value} report {shorten(delivery.message.report_id)} is on the service"
            unprinted = f"; without a printed form: {delivery.print_error}" if delivery.print_error else ""
            told = text + _dropped_observations_text(delivery) + _unmoved_lines_text(delivery, moved) + unprinted
            uow.events.add(Event(order=order, report=delivery.record.key, at=now, action="delivered", text=told))
            advance_order(uow, order, now, completing=job)
            return job.complete(now)

        return write

    def _complete_superseded(self, delivery: Delivery) -> Completion:
        now = self.clock.now()
        reason = "a newer version of this report was delivered before it"

        def write(uow: UnitOfWork, job: Job) -> Job:
            uow.reports.save(uow.reports.get_for_update(delivery.record.key).transition_to(ReportState.SUPERSEDED, now, reason))
            reopen_lines(uow, delivery.order.key, now)
            advance_order(uow, delivery.order.key, now, completing=job)
            return job.mark_obsolete(now, reason)

        return write

    def _requeue_behind_newer(self, delivery: Delivery) -> Completion:
        """Take the place behind a newer version that has begun: if the lane's first waited for it, both would stand."""
        now = self.clock.now()
        duty = jobs.deliver_report(delivery.record.key, delivery.order.key, now)

        def write(uow: UnitOfWork, job: Job) -> Job:
            uow.jobs.add(replace(duty, dedup_key=f"{duty.dedup_key}:{now.isoformat()}"))
            return job.mark_obsolete(now, "a newer version of this report is under way; this one is tried after it")

        return write

    def _rematch_after_older(self, delivery: Delivery, older: ReportKey) -> Completion:
        """Let it be matched again, now that an older version has said what this one may leave out, or go on from."""
        now = self.clock.now()

        def write(uow: UnitOfWork, job: Job) -> Job:
            held = uow.reports.get_for_update(delivery.record.key).transition_to(
                ReportState.HELD, now, waits_for_older_reason(older)
            )
            uow.reports.save(held)
            reopen_lines(uow, delivery.order.key, now)
            uow.jobs.add(jobs.match_report_after_decision(held, older, now))
            return job.mark_obsolete(now, "an older version went meanwhile; this one is matched again")

        return write

    def _hold_unrepresentable(self, delivery: Delivery, error: DataInvalidError) -> Completion:
        """Hold what has no form any more (a table was changed since)."""
        if unmapped := self.planner.unmapped_reason(delivery.message):
            return self._hold(delivery, ReportState.UNMAPPED, unmapped)
        return self._hold(delivery, ReportState.HELD, defect_reason(join_limited(map(str, error.problems), "; ")))

    def _hold(self, delivery: Delivery, state: ReportState, reason: str) -> Completion:
        """Hold what could be delivered when it was matched and cannot be now."""
        now = self.clock.now()

        def write(uow: UnitOfWork, job: Job) -> Job:
            uow.reports.save(uow.reports.get_for_update(delivery.record.key).transition_to(state, now, reason))
            order = delivery.order.key
            uow.events.add(Event(order=order, report=delivery.record.key, at=now, action="result_held", text=reason))
            reopen_lines(uow, order, now)
            return job.mark_obsolete(now, reason)

        return write

    def _complete_not_wanted(self, delivery: Delivery) -> Completion:
        now = self.clock.now()

        def write(uow: UnitOfWork, job: Job) -> Job:
            advance_order(uow, delivery.order.key, now, completing=job)
            return job.mark_obsolete(now, f"the report is {delivery.record.state.value}")

        return write


def _load_delivery(uow: UnitOfWork, job: Job) -> Delivery:
    record = uow.reports.get_for_update(ReportKey(job.target))
    message = load_stored_message(record.body)
    if record.order is None or not isinstance(message, LabReport):
        raise PermanentFailure("this message has no report to deliver")
    order = uow.orders.get_for_update(record.order)
    lines = uow.orders.lines(order.key)
    others = [other for other in uow.reports.versions(order.key, message.report_id) if other.key != record.key]
    delivered = [other for other in others if other.state is ReportState.DELIVERED]
    coverage = determine_coverage(message, lines, order_codes(order))
    newer = oldest_first(each for each in delivered if is_older(record, each))
    return Delivery(
        record=record,
        message=message,
        order=order,
        lines=lines,
        coverage=coverage,
        newer=newer[-1] if newer else None,
        newer_started=_has_newer_started(uow, record, others),
        older_delivered_meanwhile=_find_older_delivered_meanwhile(
            uow, job, [each for each in delivered if is_older(each, record)]
        ),
        documents=_load_documents(uow, message),
        dropped_observations=tuple(dropped_observations(delivered, message)),
        lines_ended_reason=_lines_ended_reason(
            record, lines, coverage, first=uow.uploads.get(report_identifier(order.key, message.report_id)) is None
        ),
    )


def _has_newer_started(uow: UnitOfWork, record: ReportRecord, others: list[ReportRecord]) -> bool:
    """Whether the delivery of a newer version has begun: an older one, which a person sends on its way again, stays behind it."""
    newer = {other.key for other in others if other.state is ReportState.MATCHED and is_older(record, other)}
    open_ones = uow.jobs.list_for_order(record.order) if newer and record.order else ()
    return any(each.target in newer and each.started and each.state not in JOBS_NEEDING_OPERATOR for each in open_ones)


def _find_older_delivered_meanwhile(uow: UnitOfWork, job: Job, older: Sequence[ReportRecord]) -> ReportKey | None:
    """One of the older versions that was put behind this duty in the lane, and went before it all the same."""
    if job.order is None or not older:
        return None
    duties = (each for each in uow.jobs.list_for_order(job.order, open_only=False) if each.kind is JobKind.DELIVER_REPORT)
    behind_it = {each.target for each in duties if each.id > job.id}
    return next((each.key for each in older if each.key in behind_it), None)


def _lines_ended_reason(record: ReportRecord, lines: Sequence[LineRecord], coverage: Coverage, *, first: bool) -> str | None:
    """What befell the lines of a matched report that it could not know of; what a person released knows it."""
    since = {line.key: line.state for line in lines if line.changed_at > record.changed_at}
    if taken := [key for key in coverage.completes if since.get(key) is LineState.CANCELLED]:
        return f"{join_limited(taken)} was cancelled while this report of it waited; released, it goes and moves no Task"
    if first and coverage.lines and all(since.get(key) in _CANCELLED_OR_WITHDRAWN for key in coverage.lines):
        return f"{join_limited(coverage.lines)} was withdrawn or cancelled while this report waited; released, it goes and moves no Task"
    if late := lines_with_result([line for line in lines if line.key in since], coverage.not_performed):
        return f"not_performed: names {describe_existing_result(late)}"
    return None


def _unmoved_lines_text(delivery: Delivery, moved: Collection[LineKey]) -> str:
    states = {line.key: line.state.value for line in delivery.lines}
    stayed = [f"{key}, said not performed, stays {states[key]}" for key in delivery.coverage.not_performed if key not in moved]
    return "".join(f"; {each}" for each in stayed)


def _dropped_observations_text(delivery: Delivery) -> str:
    if not delivery.dropped_observations:
        return ""
    return f"; it names {join_names(delivery.dropped_observations)} no more, which stay on the service as they were"


def _load_documents(uow: UnitOfWork, message: LabReport) -> dict[tuple[str, str], bytes | None]:
    """The documents that are kept here; one that is not any more may be on the service."""
    named = {(document.file, document.content_type) for document in documents_of(message) if document.file}
    return {key: kept[0] if (kept := uow.vault.document(key[0])) else None for key in named}


def _supersede_older_versions(uow: UnitOfWork, delivery: Delivery, now: datetime) -> None:
    """End the versions before the one that was delivered, but for those that have more to say and were not delivered."""
    order = delivery.order.key
    parked = {each.target: each for each in uow.jobs.list_for_order(order) if each.state in JOBS_NEEDING_OPERATOR}
    for listed in uow.reports.versions(order, delivery.message.report_id):
        other = uow.reports.get_for_update(listed.key)  # as it stands: a person may have decided about it since it was listed
        if other.key == delivery.record.key:
            uow.reports.save(other.transition_to(ReportState.DELIVERED, now))
        elif other.order != order or not is_older(other, delivery.record):
            continue
        elif other.state is ReportState.DELIVERED:
            uow.reports.save(other.transition_to(ReportState.SUPERSEDED, now, _SUPERSEDED_REASON))
        elif other.state in REPORTS_NEEDING_OPERATOR or other.key in parked:
            _supersede_undelivered(uow, delivery, other, parked.get(other.key), now)


def _supersede_undelivered(uow: UnitOfWork, delivery: Delivery, older: ReportRecord, job: Job | None, now: datetime) -> None:
    if gone := lost_content(older, delivery.message, delivery.coverage.lines):
        if older.state is ReportState.HELD:  # whatever was asked about it, this is the question now
            uow.reports.save(older.transition_to(ReportState.HELD, now, superseded_by_newer_reason(gone)))
        return
    if job is not None:
        uow.jobs.save(job.mark_obsolete(now, _SUPERSEDED_REASON))
    uow.reports.save(older.transition_to(ReportState.SUPERSEDED, now, _SUPERSEDED_REASON))
    requeue_newer_versions(uow, older, now)
    text = f"result {older.key}, which waited for a person, is superseded: {_SUPERSEDED_REASON}"
    uow.events.add(Event(order=delivery.order.key, report=older.key, at=now, action="superseded", text=text))

"""Delivery: upload a report with its documents and observations; the DiagnosticReport is the commit point, the Tasks follow."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import ClassVar

import structlog

from lab_agent.codec import load_kept
from lab_agent.domain import effects
from lab_agent.domain.coverage import Coverage, cover
from lab_agent.domain.documents import documents_of, placed_documents
from lab_agent.domain.ids import LineKey, ReportKey
from lab_agent.domain.journal import Effect, EffectKind, Event, LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.lifecycle import ASKING_EFFECTS, WAITING_REPORTS, LineState, ReportState
from lab_agent.domain.quoting import quoted, several
from lab_agent.domain.results import Document, LabReport, ReportStatus
from lab_agent.domain.versions import is_older, oldest_first
from lab_agent.errors import DataInvalidError, PermanentFailure
from lab_agent.fhir.uploads import DocumentUrls, UploadPlan, report_value, with_results
from lab_agent.ports.clock import Clock
from lab_agent.ports.documents import Documents, PrintFault
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.steps.endings import cancel_lines, complete_lines, has_result, with_result
from lab_agent.steps.follow import follow
from lab_agent.steps.handler import Claim, Conclusion
from lab_agent.steps.left_out import left_out, lost, lost_to, names
from lab_agent.steps.match import wake_newer
from lab_agent.steps.order_names import names_of
from lab_agent.steps.planning import Planning
from lab_agent.steps.reasons import behind, fault, overtaken
from lab_agent.steps.reopen import reopen_lines
from lab_agent.steps.upload import Uploader, told_of

log = structlog.get_logger(__name__)

_PRINTED = "printed"
_OVERTAKEN = "a newer version was delivered"
_GONE = frozenset({LineState.CANCELLED, LineState.WITHDRAWN})


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
    newer_begun: bool
    came_between: ReportKey | None
    """An older version that came after this one was matched, and went."""
    documents: Mapping[tuple[str, str], bytes | None]
    """Documents by their id in the vault and their type; None for bytes that are not kept any more."""
    gone: tuple[str, ...]
    """Observations that the version before had, and this one has not."""
    ended: str | None
    """What became of its lines since it was matched, if a person must look at that first."""
    not_printed: str = ""
    """Why the PDF that was wanted could not be made."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Uploads reports, those of one order in their order. `host_at` is where our own API serves documents, if it does."""

    exchange: Exchange
    store: Store
    clock: Clock
    planning: Planning
    documents: Documents
    host_at: str | None = None

    kinds: ClassVar[frozenset[EffectKind]] = frozenset({EffectKind.DELIVER})

    async def do(self, claim: Claim) -> Conclusion:
        """Upload what is not there yet."""
        return await self._deliver(claim, looking=False)

    async def look(self, claim: Claim) -> Conclusion:
        """Search for what a lost reply may have hidden, then upload the rest."""
        return await self._deliver(claim, looking=True)

    async def _deliver(self, claim: Claim, *, looking: bool) -> Conclusion:
        delivery = await self.store.run(lambda uow: _load(uow, claim.effect))
        if (instead := self._instead(delivery)) is not None:
            return instead
        uploader = Uploader(self.exchange, self.store, claim, delivery.order.key, delivery.record.key, looking)
        reader = self.planning.reader(delivery.order)
        delivery = await self._with_print(delivery)
        if self.planning.unmapped(delivery.message):  # whoever released it may have mended the tables since we read them
            await asyncio.to_thread(self.planning.mappings.reload)
        try:
            await self._plan(delivery, reader, {}, uploader)  # before anything is sent
        except DataInvalidError as exc:
            return self._not_sayable(delivery, exc)
        urls = await self._bring_documents(uploader, delivery, reader)
        plan = await self._plan(delivery, reader, urls, uploader)
        observations = []
        for index, each in enumerate(plan.observations):
            with told_of(f"observations[{index}]"):
                observations.append(await uploader.bring(each.resource_type, each.identifier, each.body))
        report = plan.report
        with told_of("the report itself"):
            await uploader.bring(report.resource_type, report.identifier, with_results(report, observations))
        log.info("report delivered", action="report_delivered", order=delivery.order.key, observations=len(observations))
        return self._delivered(delivery)

    def _instead(self, delivery: Delivery) -> Conclusion | None:
        """What is done instead of uploading a report that is not wanted, or not now; None for one that goes."""
        if delivery.record.state is not ReportState.MATCHED:
            return self._not_wanted(delivery)
        if delivery.newer is not None:
            gone = lost_to(delivery.record, delivery.newer)
            return self._held(delivery, ReportState.HELD, overtaken(gone)) if gone else self._superseded(delivery)
        if delivery.newer_begun:
            return self._queued_behind(delivery)
        if delivery.came_between is not None:
            return self._matched_again(delivery, delivery.came_between)
        return self._held(delivery, ReportState.HELD, delivery.ended) if delivery.ended else None

    async def _with_print(self, delivery: Delivery) -> Delivery:
        """Add a PDF of the observations where the LIS gave no document and one is wanted; the values go without it, too."""
        message = delivery.message
        if message.documents or not message.observations or message.status is not ReportStatus.FINAL:
            return delivery
        if self.planning.settings.documents == "none":
            return delivery
        requisition = delivery.order.requisition
        heading = requisition.value if requisition else delivery.order.key
        try:
            made = await asyncio.to_thread(self.documents.printed, message, heading, self.planning.codes(message))
        except PrintFault as exc:
            log.warning("report not printed", action="report_not_printed", order=delivery.order.key, reason=str(exc))
            return replace(delivery, not_printed=str(exc))
        if made is None:
            return delivery
        document = Document(file=_PRINTED, content_type="application/pdf")
        kept = {**delivery.documents, (_PRINTED, document.content_type): made}
        return replace(delivery, message=replace(message, documents=(document,)), documents=kept)

    async def _bring_documents(self, uploader: Uploader, delivery: Delivery, reader: str) -> dict[tuple[str, str], str]:
        if self.planning.settings.documents == "none":
            return {}
        urls: dict[tuple[str, str], str] = {}
        for where, document in placed_documents(delivery.message):
            key = (document.file or "", document.content_type)
            if key in delivery.documents and key not in urls:
                with told_of(where):
                    urls[key] = await self._bring_document(uploader, *key, delivery.documents[key], reader)
        return urls

    async def _bring_document(self, uploader: Uploader, file: str, kind: str, content: bytes | None, reader: str) -> str:
        name = file if content is None else sha256(content).hexdigest()
        if self.host_at is None:
            return f"fhir/Binary/{await uploader.bring_document(name, content, kind, reader)}"
        if content is None:
            raise PermanentFailure("it is not kept any more; let the laboratory system send it again")
        address = await uploader.bring_hosted(name, content, kind, self._expiry(), self.clock.now())
        return f"{self.host_at.rstrip('/')}/documents/{address}"

    def _expiry(self) -> datetime | None:
        days = self.planning.settings.host_days
        return None if days is None else self.clock.now() + timedelta(days=days)

    async def _plan(self, delivery: Delivery, reader: str, urls: DocumentUrls, uploader: Uploader) -> UploadPlan:
        given = (delivery.message, delivery.order, delivery.lines, delivery.coverage)
        blank = self.planning.plan(*given, reader=reader, urls=urls)
        identifiers = [each.identifier.value for each in (*blank.observations, blank.report)]
        known = {identifier: await uploader.known(identifier) for identifier in identifiers}
        previous = {identifier: upload.digest for identifier, upload in known.items() if upload is not None}
        return self.planning.plan(*given, reader=reader, urls=urls, previous=previous)

    def _delivered(self, delivery: Delivery) -> Conclusion:
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            order = delivery.order.key
            _settle_versions(uow, delivery, now)
            complete_lines(uow, order, delivery.coverage.completes, now)
            reopen_lines(uow, order, now)
            moved = cancel_lines(uow, order, delivery.coverage.not_performed, now)
            text = f"{delivery.message.status.value} report {quoted(delivery.message.report_id)} is on the service"
            unprinted = f"; without a printed form: {delivery.not_printed}" if delivery.not_printed else ""
            told = text + _left_out(delivery) + _stayed(delivery, moved) + unprinted
            uow.book.tell(Event(order=order, report=delivery.record.key, at=now, action="delivered", text=told))
            follow(uow, order, now, ending=effect)
            return effect.done(now)

        return write

    def _superseded(self, delivery: Delivery) -> Conclusion:
        now = self.clock.now()
        reason = "a newer version of this report was delivered before it"

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            uow.reports.save(uow.reports.take(delivery.record.key).become(ReportState.SUPERSEDED, now, reason))
            reopen_lines(uow, delivery.order.key, now)
            follow(uow, delivery.order.key, now, ending=effect)
            return effect.obsolete(now, reason)

        return write

    def _queued_behind(self, delivery: Delivery) -> Conclusion:
        """Take the place behind a newer version that has begun: if the lane's first waited for it, both would stand."""
        now = self.clock.now()
        duty = effects.deliver(delivery.record.key, delivery.order.key, now)

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            uow.effects.add(replace(duty, once=f"{duty.once}:{now.isoformat()}"))
            return effect.obsolete(now, "a newer version of this report is under way; this one is tried after it")

        return write

    def _matched_again(self, delivery: Delivery, older: ReportKey) -> Conclusion:
        """Let it be matched again, now that an older version has said what this one may leave out, or go on from."""
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            held = uow.reports.take(delivery.record.key).become(ReportState.HELD, now, behind(older))
            uow.reports.save(held)
            reopen_lines(uow, delivery.order.key, now)
            uow.effects.add(effects.match_after(held, older, now))
            return effect.obsolete(now, "an older version went meanwhile; this one is matched again")

        return write

    def _not_sayable(self, delivery: Delivery, error: DataInvalidError) -> Conclusion:
        """Hold what has no form any more (a table was changed since)."""
        if unmapped := self.planning.unmapped(delivery.message):
            return self._held(delivery, ReportState.UNMAPPED, unmapped)
        return self._held(delivery, ReportState.HELD, fault(several(map(str, error.problems), "; ")))

    def _held(self, delivery: Delivery, state: ReportState, reason: str) -> Conclusion:
        """Hold what could be delivered when it was matched and cannot be now."""
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            uow.reports.save(uow.reports.take(delivery.record.key).become(state, now, reason))
            order = delivery.order.key
            uow.book.tell(Event(order=order, report=delivery.record.key, at=now, action="result_held", text=reason))
            reopen_lines(uow, order, now)
            return effect.obsolete(now, reason)

        return write

    def _not_wanted(self, delivery: Delivery) -> Conclusion:
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            follow(uow, delivery.order.key, now, ending=effect)
            return effect.obsolete(now, f"the report is {delivery.record.state.value}")

        return write


def _load(uow: UnitOfWork, duty: Effect) -> Delivery:
    record = uow.reports.take(ReportKey(duty.subject))
    message = load_kept(record.body)
    if record.order is None or not isinstance(message, LabReport):
        raise PermanentFailure("this message has no report to deliver")
    order = uow.orders.take(record.order)
    lines = uow.orders.lines(order.key)
    others = [other for other in uow.reports.versions(order.key, message.report_id) if other.key != record.key]
    delivered = [other for other in others if other.state is ReportState.DELIVERED]
    coverage = cover(message, lines, names_of(order))
    newer = oldest_first(each for each in delivered if is_older(record, each))
    return Delivery(
        record=record,
        message=message,
        order=order,
        lines=lines,
        coverage=coverage,
        newer=newer[-1] if newer else None,
        newer_begun=_newer_begun(uow, record, others),
        came_between=_came_between(uow, duty, [each for each in delivered if is_older(each, record)]),
        documents=_documents(uow, message),
        gone=tuple(left_out(delivered, message)),
        ended=_ended_since(record, lines, coverage, first=uow.uploads.get(report_value(order.key, message.report_id)) is None),
    )


def _newer_begun(uow: UnitOfWork, record: ReportRecord, others: list[ReportRecord]) -> bool:
    """Whether the delivery of a newer version has begun: an older one, which a person sends on its way again, stays behind it."""
    newer = {other.key for other in others if other.state is ReportState.MATCHED and is_older(record, other)}
    open_ones = uow.effects.of_order(record.order) if newer and record.order else ()
    return any(each.subject in newer and each.begun and each.state not in ASKING_EFFECTS for each in open_ones)


def _came_between(uow: UnitOfWork, duty: Effect, older: Sequence[ReportRecord]) -> ReportKey | None:
    """One of the older versions that was put behind this duty in the lane, and went before it all the same."""
    if duty.order is None or not older:
        return None
    duties = (each for each in uow.effects.of_order(duty.order, open_only=False) if each.kind is EffectKind.DELIVER)
    behind_it = {each.subject for each in duties if each.id > duty.id}
    return next((each.key for each in older if each.key in behind_it), None)


def _ended_since(record: ReportRecord, lines: Sequence[LineRecord], coverage: Coverage, *, first: bool) -> str | None:
    """What befell the lines of a matched report that it could not know of; what a person released knows it."""
    since = {line.key: line.state for line in lines if line.changed_at > record.changed_at}
    if taken := [key for key in coverage.completes if since.get(key) is LineState.CANCELLED]:
        return f"{several(taken)} was cancelled while this report of it waited; released, it goes and moves no Task"
    if first and coverage.lines and all(since.get(key) in _GONE for key in coverage.lines):
        return (
            f"{several(coverage.lines)} was withdrawn or cancelled while this report waited; released, it goes and moves no Task"
        )
    if late := with_result([line for line in lines if line.key in since], coverage.not_performed):
        return f"not_performed: names {has_result(late)}"
    return None


def _stayed(delivery: Delivery, moved: Collection[LineKey]) -> str:
    states = {line.key: line.state.value for line in delivery.lines}
    stayed = [f"{key}, said not performed, stays {states[key]}" for key in delivery.coverage.not_performed if key not in moved]
    return "".join(f"; {each}" for each in stayed)


def _left_out(delivery: Delivery) -> str:
    if not delivery.gone:
        return ""
    return f"; it names {names(delivery.gone)} no more, which stay on the service as they were"


def _documents(uow: UnitOfWork, message: LabReport) -> dict[tuple[str, str], bytes | None]:
    """The documents that are kept here; one that is not any more may be on the service."""
    named = {(document.file, document.content_type) for document in documents_of(message) if document.file}
    return {key: kept[0] if (kept := uow.vault.document(key[0])) else None for key in named}


def _settle_versions(uow: UnitOfWork, delivery: Delivery, now: datetime) -> None:
    """End the versions before the one that was delivered, but for those that have more to say and were not delivered."""
    order = delivery.order.key
    parked = {each.subject: each for each in uow.effects.of_order(order) if each.state in ASKING_EFFECTS}
    for listed in uow.reports.versions(order, delivery.message.report_id):
        other = uow.reports.take(listed.key)  # as it stands: a person may have decided about it since it was listed
        if other.key == delivery.record.key:
            uow.reports.save(other.become(ReportState.DELIVERED, now))
        elif other.order != order or not is_older(other, delivery.record):
            continue
        elif other.state is ReportState.DELIVERED:
            uow.reports.save(other.become(ReportState.SUPERSEDED, now, _OVERTAKEN))
        elif other.state in WAITING_REPORTS or other.key in parked:
            _settle_undelivered(uow, delivery, other, parked.get(other.key), now)


def _settle_undelivered(uow: UnitOfWork, delivery: Delivery, older: ReportRecord, duty: Effect | None, now: datetime) -> None:
    if gone := lost(older, delivery.message, delivery.coverage.lines):
        if older.state is ReportState.HELD:  # whatever was asked about it, this is the question now
            uow.reports.save(older.become(ReportState.HELD, now, overtaken(gone)))
        return
    if duty is not None:
        uow.effects.save(duty.obsolete(now, _OVERTAKEN))
    uow.reports.save(older.become(ReportState.SUPERSEDED, now, _OVERTAKEN))
    wake_newer(uow, older, now)
    text = f"result {older.key}, which waited for a person, is superseded: {_OVERTAKEN}"
    uow.book.tell(Event(order=delivery.order.key, report=older.key, at=now, action="superseded", text=text))

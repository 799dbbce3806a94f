"""Delivery: upload a report with its documents and observations; the DiagnosticReport is the commit point, the Tasks follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

import structlog

from lab_agent import exact_json
from lab_agent.codec import load_message
from lab_agent.domain.coverage import Coverage, cover
from lab_agent.domain.ids import ReportKey
from lab_agent.domain.journal import Effect, EffectKind, Event, LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.lifecycle import ReportState
from lab_agent.domain.results import Document, LabRefusal, LabReport
from lab_agent.domain.systems import Systems
from lab_agent.domain.versions import is_older
from lab_agent.errors import PermanentFailure
from lab_agent.fhir.uploads import UploadContext, UploadLine, UploadPlan, UploadSpecimen, plan_uploads, with_results
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.settings.exchange import ContractSettings
from lab_agent.settings.results import ResultsSettings
from lab_agent.steps.endings import cancel_lines, complete_lines
from lab_agent.steps.follow import follow
from lab_agent.steps.handler import Claim, Conclusion
from lab_agent.steps.match import codes_of
from lab_agent.steps.upload import Uploader

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One report on its way: what the journal knows of it, of its order, and of the documents that are to go with it."""

    record: ReportRecord
    message: LabReport
    order: OrderRecord
    lines: tuple[LineRecord, ...]
    coverage: Coverage
    overtaken: bool
    documents: Mapping[str, tuple[bytes, str]]
    """Documents by their id in the vault: bytes and content type."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Uploads reports, those of one order in their order."""

    exchange: Exchange
    store: Store
    clock: Clock
    systems: Systems
    contracts: Mapping[str, ContractSettings]
    settings: ResultsSettings
    report_system: str
    observation_system: str

    kinds: ClassVar[frozenset[EffectKind]] = frozenset({EffectKind.DELIVER})

    async def do(self, claim: Claim) -> Conclusion:
        """Upload what is not there yet."""
        return await self._deliver(claim, looking=False)

    async def look(self, claim: Claim) -> Conclusion:
        """Search for what a lost reply may have hidden, then upload the rest."""
        return await self._deliver(claim, looking=True)

    async def _deliver(self, claim: Claim, *, looking: bool) -> Conclusion:
        key = ReportKey(claim.effect.subject)
        delivery = await self.store.run(lambda uow: _load(uow, key))
        if delivery.overtaken:
            return self._superseded(delivery)
        uploader = Uploader(self.exchange, self.store, claim, delivery.order.key, key, looking)
        reader = self._reader(delivery.order)
        urls = await self._bring_documents(uploader, delivery, reader)
        plan = await self._plan(delivery, reader, urls, uploader)
        observations = [await uploader.bring(each.resource_type, each.identifier, each.body) for each in plan.observations]
        report = plan.report
        await uploader.bring(report.resource_type, report.identifier, with_results(report, observations))
        log.info("report delivered", action="report_delivered", order=delivery.order.key, observations=len(observations))
        return self._delivered(delivery)

    def _reader(self, order: OrderRecord) -> str:
        """Guid of the partner: set for the contract, else the owner of the ProcedureRequests (interface: Authentication 8)."""
        contract = self.contracts.get(order.contract or "", ContractSettings())
        reader = contract.counterparty or order.counterparty
        if not reader:
            raise PermanentFailure(
                "it is not known who may read this report: the order names no owner. "
                f"Set counterparty in [exchange.contracts.{order.contract}], then retry"
            )
        return reader

    async def _bring_documents(self, uploader: Uploader, delivery: Delivery, reader: str) -> dict[str, str]:
        if self.settings.documents == "none":
            return {}
        urls = {}
        for document, (content, content_type) in delivery.documents.items():
            name = f"{delivery.order.key}.{document}"
            urls[document] = f"fhir/Binary/{await uploader.bring_document(name, content, content_type, reader)}"
        return urls

    async def _plan(self, delivery: Delivery, reader: str, urls: Mapping[str, str], uploader: Uploader) -> UploadPlan:
        context = UploadContext(
            order_key=delivery.order.key,
            systems=self.systems,
            report_system=self.report_system,
            observation_system=self.observation_system,
            subject=delivery.order.patient_reference or "",
            readers=(reader,),
            lines=tuple(
                UploadLine(key=line.key, procedure_request_id=line.procedure_request_id, item=line.item or "")
                for line in delivery.lines
                if line.procedure_request_id is not None
            ),
            covered=delivery.coverage.lines,
            specimens=_specimens(delivery.order),
            document_urls=urls,
            item_codes=_item_codes(delivery.order),
            order_document_code=self.settings.order_document_code,
            send_interpretation=self.settings.send_interpretation,
        )
        blank = plan_uploads(delivery.message, context)
        identifiers = [each.identifier.value for each in (*blank.observations, blank.report)]
        known = {identifier: await uploader.known(identifier) for identifier in identifiers}
        previous = {identifier: upload.digest for identifier, upload in known.items() if upload is not None}
        return plan_uploads(delivery.message, context, previous=previous)

    def _delivered(self, delivery: Delivery) -> Conclusion:
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            order = delivery.order.key
            _settle_versions(uow, delivery, now)
            complete_lines(uow, order, delivery.coverage.completes, now)
            cancel_lines(uow, order, delivery.coverage.not_performed, now)
            text = f"{delivery.message.status.value} report {delivery.message.report_id} is on the service"
            uow.book.tell(Event(order=order, at=now, action="delivered", text=text))
            follow(uow, order, now, ending=effect)
            return effect.done(now)

        return write

    def _superseded(self, delivery: Delivery) -> Conclusion:
        now = self.clock.now()
        reason = "a newer version of this report was delivered before it"

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            uow.reports.save(uow.reports.take(delivery.record.key).become(ReportState.SUPERSEDED, now, reason))
            follow(uow, delivery.order.key, now, ending=effect)
            return effect.obsolete(now, reason)

        return write


def _load(uow: UnitOfWork, key: ReportKey) -> Delivery:
    record = uow.reports.take(key)
    message = load_message(record.body)
    if record.order is None or isinstance(message, LabRefusal):
        raise PermanentFailure("this message has no report to deliver")
    order = uow.orders.take(record.order)
    lines = uow.orders.lines(order.key)
    delivered = [
        other
        for other in uow.reports.versions(order.key, message.report_id)
        if other.state is ReportState.DELIVERED and other.key != key
    ]
    return Delivery(
        record=record,
        message=message,
        order=order,
        lines=lines,
        coverage=cover(message, lines, codes_of(order)),
        overtaken=any(is_older(record, other) for other in delivered),
        documents=_documents(uow, message),
    )


def _documents(uow: UnitOfWork, message: LabReport) -> dict[str, tuple[bytes, str]]:
    attached = (observation.value_attachment for observation in message.observations)
    documents: list[Document] = [document for document in (*message.documents, *attached) if document is not None]
    found = {document.file: uow.vault.document(document.file) for document in documents if document.file}
    if gone := [name for name, kept in found.items() if kept is None]:
        raise PermanentFailure(f"document {gone[0]} of this report is not kept any more; let the laboratory system send it again")
    return {name: kept for name, kept in found.items() if kept is not None}


def _settle_versions(uow: UnitOfWork, delivery: Delivery, now: datetime) -> None:
    for other in uow.reports.versions(delivery.order.key, delivery.message.report_id):
        if other.key == delivery.record.key:
            uow.reports.save(other.become(ReportState.DELIVERED, now))
        elif other.state is ReportState.DELIVERED:
            uow.reports.save(other.become(ReportState.SUPERSEDED, now, "a newer version was delivered"))


def _specimens(order: OrderRecord) -> tuple[UploadSpecimen, ...]:
    """The order's specimens as it went to the laboratory, by id and barcode."""
    if order.lab_order is None:
        return ()
    return tuple(
        UploadSpecimen(
            id=specimen["id"],
            barcodes=frozenset(
                box[kind] for box in specimen.get("containers", ()) for kind in ("barcode", "second_barcode") if box.get(kind)
            ),
        )
        for specimen in exact_json.loads(order.lab_order).get("specimens", ())
    )


def _item_codes(order: OrderRecord) -> dict[str, str]:
    """Laboratory code → nomenclature code, as the order went to the laboratory."""
    if order.lab_order is None:
        return {}
    lines = exact_json.loads(order.lab_order)["lines"]
    return {line["lab_code"]: line["item"] for line in lines if line.get("lab_code")}

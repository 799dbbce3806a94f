"""Plans the uploads of a report. Matching plans them on trial, delivery does them: so what was matched can be delivered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from lab_agent.fhir.reference_spelling import ReferenceWriter, read_spellings
from lab_agent.fhir.report_builder import DocumentUrls, UploadContext, UploadLine, UploadPlan, UploadSpecimen, plan_uploads
from lab_agent.lis.lab_messages import LabReport
from lab_agent.orders.order_assessment import CatalogueSource
from lab_agent.orders.records import OrderRecord
from lab_agent.results.code_translation import MissingKind, missing_mappings, translate
from lab_agent.results.mapping_tables import MappingTables
from lab_agent.results.order_lookup import OrderPart
from lab_agent.results.report_coverage import Coverage
from lab_agent.settings.exchange import ContractSettings, ReferenceSpelling
from lab_agent.settings.groups import ResultsSettings
from lab_agent.shared.code_systems import CodeSystems
from lab_agent.shared.errors import DataInvalidError, PermanentFailure, Problem
from lab_agent.shared.text import join_limited, shorten
from lab_agent.shared.values import CodeableConcept, Coding

_TABLES_UNREADABLE = "the mapping tables cannot be read; `lab-agent mappings check` says what is wrong"
_UNMAPPED_HINT = "add rows to the mapping tables, then `lab-agent mappings release`"
_LOINC_HINT = "correct the code in the laboratory system and have it send the report again; or "


class MappingSource(Protocol):
    """Where the mapping tables of this installation are read."""

    def current(self) -> MappingTables | None:
        """The tables in force; None if they could not be read."""
        ...

    def reload(self) -> bool:
        """Read them again; whether they could be read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPlanner:
    """Plans uploads for this installation."""

    systems: CodeSystems
    contracts: Mapping[str, ContractSettings]
    settings: ResultsSettings
    report_system: str
    observation_system: str
    order_system: str
    mappings: MappingSource
    catalogues: CatalogueSource
    references: ReferenceSpelling = "as_read"
    own_guid: str | None = None
    """Our own guid, where uploads must grant us the rights to them."""

    @property
    def tables(self) -> MappingTables:
        """The mapping tables in force; empty ones where they cannot be read."""
        return self.mappings.current() or MappingTables()

    def unmapped_reason(self, message: LabReport) -> str | None:
        """Why the mapping tables cannot translate the report; None if they can."""
        tables = self.mappings.current()
        if tables is None:
            return _TABLES_UNREADABLE
        lacking = missing_mappings(message, tables)
        hint = f"{_LOINC_HINT if any(each.kind is MissingKind.LOINC for each in lacking) else ''}{_UNMAPPED_HINT}"
        return f"{join_limited(map(str, lacking), '; ')} — {hint}" if lacking else None

    def exchange_codes(self, message: LabReport) -> tuple[str, ...]:
        """The exchange's code of each observation, for people to read; empty if none is known."""
        tables = self.tables
        concepts = (tables.code(each.code) for each in message.observations)
        return tuple(concept.coding[0].code if concept else "" for concept in concepts)

    def reader(self, order: OrderRecord) -> str:
        """Guid of the partner: set for the contract, else the owner of the ProcedureRequests (interface: Authentication 8)."""
        contract = self.contracts.get(order.contract or "", ContractSettings())
        reader = contract.counterparty or order.counterparty
        if not reader:
            raise PermanentFailure(
                "it is not known who may read this report: the order names no owner. "
                f"Set counterparty in [exchange.contracts.{order.contract}], then retry"
            )
        return reader

    def reference_writer(self, order: OrderRecord) -> ReferenceWriter:
        """What writes the references of this order's uploads. It reads the whole order: one is enough for all of them."""
        wanted = self.references == "as_read"
        return ReferenceWriter(self.references, read_spellings(order.received, self.systems.base_url) if wanted else {})

    def unknown_tests_reason(self, order: OrderRecord, extra: Iterable[str]) -> str | None:
        """Why tests beside those of the order have no nomenclature code; None if they have."""
        lacking = [shorten(item) for item in extra if self._nomenclature_code(order, item) is None]
        if not lacking:
            return None
        where = "the catalogue" if self.catalogues() else "any catalogue that can be read now"
        return f"name {join_limited(lacking)}, neither of the order nor in {where}"

    def _nomenclature_code(self, order: OrderRecord, item: str) -> str | None:
        catalogue = self.catalogues()
        return catalogue.nomenclature_code(order.contract or "", item) if catalogue else None

    def plan(
        self,
        message: LabReport,
        part: OrderPart,
        coverage: Coverage,
        *,
        reader: str,
        urls: DocumentUrls,
        references: ReferenceWriter,
        previous: Mapping[str, str] | None = None,
    ) -> UploadPlan:
        """Plan the uploads; `references` is the order's `reference_writer`, or any where nothing is sent.

        Raises `DataInvalidError` for what has no legal form on the wire.
        """
        tables = self.mappings.current()
        if tables is None:
            raise DataInvalidError((Problem("mappings", _TABLES_UNREADABLE),))
        order, submitted = part.order, part.submitted
        context = UploadContext(
            part_key=part.key,
            systems=self.systems,
            report_system=self.report_system,
            observation_system=self.observation_system,
            order_system=self.order_system,
            subject=order.patient_reference or "",
            readers=(reader,),
            lines=tuple(
                UploadLine(key=line.key, procedure_request_id=line.procedure_request_id, item=line.item or "")
                for line in part.lines
                if line.procedure_request_id is not None
            ),
            covered_lines=coverage.lines,
            specimens=tuple(map(_to_upload_specimen, submitted.get("specimens", ()))),
            document_urls=urls,
            item_codes=self._item_codes(submitted, order, coverage.extra_items),
            order_document_code=self.settings.order_document_code,
            several_tests_code=self.settings.several_tests_code,
            send_interpretation=self.settings.send_interpretation,
            send_notes=self.settings.send_notes,
            send_documents=self.settings.documents != "none",
            references=references,
            own_guid=self.own_guid,
        )
        return plan_uploads(
            translate(message, tables),
            context,
            previous=previous,
            original_report=message,
            translate=lambda code: _map_code(tables, code),
        )

    def _item_codes(self, submitted: Mapping[str, Any], order: OrderRecord, extra: Iterable[str]) -> dict[str, str]:
        """What a report may call a test → its nomenclature code: for the tests of the order, and for tests beside them."""
        own = {code: line["item"] for line in submitted["lines"] for code in (line["item"], line.get("lab_code")) if code}
        return own | {item: code for item in extra if (code := self._nomenclature_code(order, item))}


def _map_code(tables: MappingTables, local: Coding) -> CodeableConcept:
    concept = tables.code(local)
    if concept is None:
        raise DataInvalidError((Problem("observation code", f"'{shorten(local.code)}' is not mapped", _UNMAPPED_HINT),))
    return concept


def _to_upload_specimen(specimen: Mapping[str, Any]) -> UploadSpecimen:
    containers = specimen.get("containers", ())
    barcodes = (container.get(kind) for container in containers for kind in ("barcode", "second_barcode"))
    return UploadSpecimen(id=specimen["id"], barcodes=frozenset(filter(None, barcodes)))

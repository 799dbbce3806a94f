"""A report of the laboratory as the resources that go to the service (interface: DiagnosticReport, Observation).

Every upload has our own stable identifier, so that doing it twice finds what is there (law 2). Nothing is planned without
somebody's right to read it: an upload that nobody can see is a lost result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lab_agent.fhir import value_writer as out
from lab_agent.fhir.access_rights import access_rights
from lab_agent.fhir.content_digest import are_values_same, content_digest, split_digest, stable_identifier
from lab_agent.fhir.received_order import ResourceRef
from lab_agent.fhir.reference_spelling import ReferenceWriter
from lab_agent.fhir.references import parse_reference
from lab_agent.lis.lab_messages import Document, LabReport, ObservationStatus, ReportedObservation, ReportStatus
from lab_agent.lis.susceptibility import INTERPRETATION_SYSTEM, susceptibility_flags
from lab_agent.shared.code_systems import CodeSystems
from lab_agent.shared.errors import DataInvalidError, Problem
from lab_agent.shared.ids import LineKey, WorkOrderKey
from lab_agent.shared.values import CodeableConcept, Coding, Identifier

Json = Mapping[str, Any]
TranslateCode = Callable[[Coding], CodeableConcept]
DocumentUrls = Mapping[tuple[str, str], str]
"""Place of a document in the vault, and its type → its url."""
LOINC = "http://loinc.org"
_INTERFACE_SPELLING = ReferenceWriter("lower")
FINAL_STATUSES = frozenset({"final", "amended"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadLine:
    """A line as its uploads name it; `item` is the nomenclature code."""

    key: LineKey
    procedure_request_id: str
    item: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadSpecimen:
    """A Specimen, by its id on the service and by the barcodes of its containers."""

    id: str
    barcodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadContext:
    """What the order and the installation add to a report.

    `part_key` is what identifiers begin with; every DiagnosticReport also has it as an identifier of `order_system`. `subject` is
    `ReceivedOrder.patient_reference`; `readers` the counterparty guids that may read; `lines` all lines of the order that went to
    the laboratory system, `covered_lines` those that this report is about. `document_urls`: `Document.file` (its place in the
    vault) and type → url on the service; a stored document without one is left out. `item_codes`: laboratory code → nomenclature
    code. `own_guid` is set where we need to be granted the rights to our own uploads.
    """

    part_key: WorkOrderKey
    systems: CodeSystems
    report_system: str
    observation_system: str
    order_system: str
    subject: str
    readers: tuple[str, ...]
    lines: tuple[UploadLine, ...]
    covered_lines: tuple[LineKey, ...]
    specimens: tuple[UploadSpecimen, ...] = ()
    document_urls: DocumentUrls = field(default_factory=dict)
    item_codes: Mapping[str, str] = field(default_factory=dict)
    order_document_code: str | None = None
    several_tests_code: str | None = None
    send_interpretation: bool = False
    send_notes: bool = False
    send_documents: bool = True
    references: ReferenceWriter = field(default_factory=ReferenceWriter)
    own_guid: str | None = None


@dataclass(frozen=True, kw_only=True)
class Upload:
    """One resource that the service at `base_url` shall have, under this identifier."""

    resource_type: str
    identifier: Identifier
    body: Json
    base_url: str

    @cached_property
    def digest(self) -> str:
        """Nothing is to do where this is what the service has; made when it is asked for, since a plan may be only a check."""
        return content_digest(self.body, self.base_url)


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPlan:
    """Everything of one report: the Observations first, then the DiagnosticReport, which is the commit point."""

    observations: tuple[Upload, ...]
    report: Upload


def default_to_loinc(coding: Coding) -> CodeableConcept:
    """The default translation of observation codes: one without a system is LOINC; one of another system is not mapped."""
    if coding.system not in {None, LOINC}:
        raise DataInvalidError((Problem("code", "is not LOINC", "map it to LOINC"),))
    return CodeableConcept(coding=(Coding(system=LOINC, code=coding.code, display=coding.display),))


def plan_uploads(
    report: LabReport,
    context: UploadContext,
    *,
    previous: Mapping[str, str] | None = None,
    translate: TranslateCode = default_to_loinc,
    original_report: LabReport | None = None,
) -> UploadPlan:
    """Plan the uploads of a report; `previous` gives the digests of what is on the service, by identifier value.

    `original_report` is the report as the laboratory system sent it, if `report` was translated: identifiers are made of it.
    Raises `DataInvalidError` for a report with a specimen that is not the order's, for one that covers no line, and where nobody
    may read the results.
    """
    _check_context(context)
    known = previous or {}
    names = observation_identifiers(original_report or report, context)
    observations = tuple(_plan_observations(report, names, context, known, translate))
    return UploadPlan(observations=observations, report=_plan_report(report, context, known))


def observation_labels(report: LabReport) -> tuple[str, ...]:
    """The names of a report's observations for people: each with its parts joined by blanks."""
    return tuple(" ".join(part for part in name if part != "code") for name in _name_parts(report.observations))


def observation_identifiers(report: LabReport, context: UploadContext) -> tuple[str, ...]:
    """The identifier values of a report's observations, in its order; each name is one observation from version to version."""
    return tuple(stable_identifier(context.part_key, report.report_id, *name) for name in _name_parts(report.observations))


def observation_identifiers_by_label(part: WorkOrderKey, report: LabReport) -> Mapping[str, str]:
    """The identifier values of a report's observations, in its order, by their names for people."""
    values = (stable_identifier(part, report.report_id, *name) for name in _name_parts(report.observations))
    return dict(zip(observation_labels(report), values, strict=True))


def upload_identifiers(part: WorkOrderKey, report: LabReport) -> tuple[str, ...]:
    """The identifier values of all that goes up for a report: its observations in their order, last the report itself."""
    names = (stable_identifier(part, report.report_id, *name) for name in _name_parts(report.observations))
    return (*names, report_identifier(part, report.report_id))


def order_identifier(order_system: str, part: WorkOrderKey) -> Identifier:
    """The identifier that all reports of a laboratory system's part of an order have, beside their own."""
    return Identifier(system=order_system, value=part)


def report_identifier(part: WorkOrderKey, report_id: str) -> str:
    """The identifier value of a report: of a laboratory system's part of an order, since two may give the same `report_id`."""
    return stable_identifier(part, report_id)


def with_result_references(
    report: Upload, observation_ids: Sequence[str], references: ReferenceWriter = _INTERFACE_SPELLING
) -> Json:
    """The body of the DiagnosticReport once its Observations are on the service, in their order."""
    if not observation_ids:
        return report.body
    return {**report.body, "result": [references.write(ResourceRef("Observation", each)) for each in observation_ids]}


def _check_context(context: UploadContext) -> None:
    if not any(reader.strip() for reader in context.readers):
        hint = "set [exchange.contracts.<code>] counterparty to the partner's guid"
        raise DataInvalidError((Problem("results", "nobody would have the right to read them", hint),))
    if not any(line.key in context.covered_lines for line in context.lines):
        raise DataInvalidError((Problem("results", "they cover no line of the order", "name a line or an item of the order"),))


def _plan_observations(
    report: LabReport, names: Sequence[str], context: UploadContext, known: Mapping[str, str], translate: TranslateCode
) -> Iterator[Upload]:
    problems: list[Problem] = []
    for index, (observation, name) in enumerate(zip(report.observations, names, strict=True)):
        identifier = Identifier(system=context.observation_system, value=name)
        try:
            body = _observation(observation, report, context, identifier, translate)
        except DataInvalidError as exc:
            problems += out.prefix_problems(exc.problems, f"observations[{index}]")
            continue
        body["status"] = _next_status(observation.status.value, known.get(identifier.value), body, context.systems.base_url)
        yield _upload(identifier, body, context)
    if problems:
        raise DataInvalidError(tuple(problems))


def _name_parts(observations: Sequence[ReportedObservation]) -> list[tuple[str, ...]]:
    """What names each observation within its report: its own id, or its code and its place among those of that code."""
    seen: Counter[tuple[str, ...]] = Counter()
    names = []
    for each in observations:
        name = (each.id,) if each.id else ("code", each.code.system or "", each.code.code)
        seen[name] += 1
        names.append((*name, str(seen[name])) if not each.id or seen[name] > 1 else name)
    return names


def _next_status(reported: str, previous: str | None, body: Json, base_url: str) -> str:
    """Once final, a value stays final; changed after that, it is amended (interface: Observation.status).

    Where it is not known what the service has, nothing is claimed: who uploads compares with what is there.
    """
    before = split_digest(previous or "")
    if before.status not in FINAL_STATUSES:
        return reported
    amended = ObservationStatus.AMENDED.value
    same = not before.content or are_values_same(before, split_digest(content_digest(body, base_url)))
    return before.status if same and reported != amended else amended


def _observation(
    observation: ReportedObservation,
    report: LabReport,
    context: UploadContext,
    identifier: Identifier,
    translate: TranslateCode,
) -> dict[str, Any]:
    with out.problem_location("method"):
        method = out.concept(observation.method) if observation.method else None
    fields = {
        **_common_fields("Observation", identifier, context),
        "code": out.concept(translate(observation.code)),
        "subject": subject_reference(context),
        "issued": out.date_time(observation.issued or report.issued),
        **out.value_fields(observation, lambda document: _attachment(document, context)),
        "interpretation": _interpretation(observation.flags, context),
        "comment": observation.note if context.send_notes else None,
        "method": method,
        "specimen": _specimen_reference(observation.specimen, context),
        "referenceRange": list(_reference_ranges(observation)) or None,
    }
    return out.drop_empty(fields)


def _reference_ranges(observation: ReportedObservation) -> Iterator[Json]:
    for index, each in enumerate(observation.reference_ranges):
        with out.problem_location(f"reference_ranges[{index}]"):
            written = out.reference_range(each)
        if written:
            yield written


def _plan_report(report: LabReport, context: UploadContext, known: Mapping[str, str]) -> Upload:
    identifier = Identifier(system=context.report_system, value=report_identifier(context.part_key, report.report_id))
    lines = [line for line in context.lines if line.key in context.covered_lines]
    documents = (_attachment(document, context) for document in report.documents)
    was_final = split_digest(known.get(identifier.value, "")).status == ReportStatus.FINAL.value
    fields = {
        **_common_fields("DiagnosticReport", identifier, context),
        "identifier": [out.identifier(each) for each in (identifier, order_identifier(context.order_system, context.part_key))],
        "status": ReportStatus.FINAL.value if was_final else report.status.value,
        "basedOn": [_request_reference(line, context) for line in lines],
        "code": {"coding": [{"system": context.systems.nomenclature.url, "code": _report_code(report, lines, context)}]},
        "subject": subject_reference(context),
        "effectiveDateTime": out.date_time(report.effective),
        "issued": out.date_time(report.issued),
        "presentedForm": [form for form in documents if _has_url(form)] or None,
    }
    return _upload(identifier, out.drop_empty(fields), context)


def _upload(identifier: Identifier, body: Json, context: UploadContext) -> Upload:
    return Upload(resource_type=body["resourceType"], identifier=identifier, body=body, base_url=context.systems.base_url)


def _report_code(report: LabReport, lines: Sequence[UploadLine], context: UploadContext) -> str:
    """The nomenclature code: of an item that the report names (an extra test for a line, too), or of the first line covered.

    The interface says nothing of one report about several tests: the laboratory may have set a code for it.
    """
    whole = {line.key for line in context.lines} <= set(context.covered_lines)
    if context.order_document_code and whole and len(lines) > 1 and not report.observations:
        return context.order_document_code
    items = [line.item for line in lines]
    known = {**dict.fromkeys(items), **context.item_codes}
    named = [known[item] or item for item in report.items if item in known]
    if context.several_tests_code and len(set(named or items)) > 1:
        return context.several_tests_code
    extra = named[0] if named and report.lines else items[0]
    return next((item for item in named if item in items), extra)


def _common_fields(resource_type: str, identifier: Identifier, context: UploadContext) -> dict[str, Any]:
    meta = {"security": list(access_rights(context.readers, context.own_guid))}
    return {"resourceType": resource_type, "meta": meta, "identifier": [out.identifier(identifier)]}


def _request_reference(line: UploadLine, context: UploadContext) -> Json:
    return context.references.write(ResourceRef("ProcedureRequest", line.procedure_request_id))


def subject_reference(context: UploadContext) -> Json:
    """A Reference to the patient: `patient/<id>`, or `<system>|<value>` of a global identifier."""
    system, divider, value = context.subject.rpartition("|")
    if divider and not context.subject.startswith("patient/"):
        return {"identifier": out.identifier(Identifier(system=system or None, value=value))}
    ref = parse_reference(context.subject, context.systems.base_url)
    return context.references.write(ref) if ref else {"reference": context.subject}


def _specimen_reference(name: str | None, context: UploadContext) -> Json | None:
    if name is None:
        return None
    for specimen in context.specimens:
        if name == specimen.id or name in specimen.barcodes:
            return context.references.write(ResourceRef("Specimen", specimen.id))
    hint = "give the barcode of one of its tubes, or leave it out"
    raise DataInvalidError((Problem("specimen", "is not a specimen of this order", hint),))


def _interpretation(flags: Collection[str], context: UploadContext) -> Json | None:
    """The flags as codes of HL7 table 0078. In microbiology they are the result, and need no switch."""
    sent = flags if context.send_interpretation else susceptibility_flags(flags)
    return {"coding": [{"system": INTERPRETATION_SYSTEM, "code": flag} for flag in sent]} if sent else None


def _attachment(document: Document, context: UploadContext) -> Json:
    kept = context.document_urls.get((document.file or "", document.content_type))
    url = (document.url or kept) if context.send_documents else None
    fields = {
        "contentType": document.content_type,
        "language": document.language,
        "url": url,
        "title": document.title,
    }
    return out.drop_empty(fields)


def _has_url(form: Json) -> bool:
    return "url" in form

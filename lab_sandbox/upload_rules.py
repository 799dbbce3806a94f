"""The rules of what a laboratory uploads, from the tables of "Resources": DiagnosticReport and Observation."""

from typing import Final

from lab_sandbox.config import SandboxConfig
from lab_sandbox.errors import Problems
from lab_sandbox.exact_json import Json, decode_stored
from lab_sandbox.references import parse_reference
from lab_sandbox.resources import ResourceService
from lab_sandbox.rule_helpers import (
    Checker,
    ValueForms,
    find_code,
    is_concept,
    is_date_time,
    is_object,
    is_quantity,
    is_text,
    is_time,
    objects_in,
    reference_identifier,
    reference_text,
)

REPORT_STATUSES: Final = ("registered", "partial", "preliminary", "final")
OBSERVATION_STATUSES: Final = ("registered", "preliminary", "final", "amended")
LOINC: Final = "http://loinc.org"
VALUE_FORMS: Final[ValueForms] = {
    "valueQuantity": (is_quantity, "an object whose value is a number"),
    "valueCodeableConcept": (is_object, "an object"),
    "valueString": (is_text, "a text"),
    "valueRange": (is_object, "an object"),
    "valueRatio": (is_object, "an object"),
    "valueSampledData": (is_object, "an object"),
    "valueAttachment": (is_object, "an object"),
    "valueTime": (is_time, "a time hh:mm:ss"),
    "valueDateTime": (is_date_time, "a date-time"),
    "valuePeriod": (is_object, "an object"),
}
_RANGE_PARTS: Final[ValueForms] = {
    "low": (is_quantity, "an object whose value is a number"),
    "high": (is_quantity, "an object whose value is a number"),
    "meaning": (is_object, "an object"),
    "age": (is_object, "an object"),
    "text": (is_text, "a text"),
}


def check_report(report: Json, nomenclature: str, problems: Problems) -> None:
    """Checks status, code (nomenclature), subject, effectiveDateTime, issued, and the references in basedOn and result."""
    check = Checker("DiagnosticReport", problems)
    statuses = ", ".join(REPORT_STATUSES)
    check.expect(report.get("status") in REPORT_STATUSES, "status", "report-status", f"must be one of {statuses}", "value")
    check.require(find_code(report.get("code"), nomenclature), "code", "report-code", f"a code in {nomenclature}")
    check.require(_is_reference(report.get("subject")), "subject", "report-required", "a reference to the patient")
    for name in ("effectiveDateTime", "issued"):
        check.require(is_date_time(report.get(name)), name, "report-required", "a date-time")
    for name in ("basedOn", "result"):
        for path, one in objects_in(report, name):
            check.expect(reference_text(one) is not None, path, "report-references", "must be a reference")
    for path, form in objects_in(report, "presentedForm"):
        check.require(is_text(form.get("url")), f"{path}.url", "report-document", "a relative or absolute URL")


def check_observation(observation: Json, problems: Problems) -> None:
    """Checks status, code (LOINC), the one value[x], method, references and the reference ranges."""
    check = Checker("Observation", problems)
    statuses = ", ".join(OBSERVATION_STATUSES)
    is_known = observation.get("status") in OBSERVATION_STATUSES
    check.expect(is_known, "status", "observation-status", f"must be one of {statuses}", "value")
    check.require(find_code(observation.get("code"), LOINC), "code", "observation-loinc", f"a code in {LOINC}")
    check.expect_value(observation, VALUE_FORMS, "", "observation-value")
    if "issued" in observation:
        check.expect(is_date_time(observation["issued"]), "issued", "observation-issued", "must be a date-time")
    if "method" in observation:
        text = "must be one CodeableConcept, with the code of the method"
        check.expect(is_concept(observation["method"]), "method", "observation-method", text)
    for name in observation.keys() & {"subject", "specimen"}:
        check.expect(_is_reference(observation[name]), name, "observation-reference", "must be one reference")
    for path, part in objects_in(observation, "referenceRange"):
        _check_range(part, check, path)


def _check_range(part: Json, check: Checker, path: str) -> None:
    given = part.keys() & _RANGE_PARTS.keys()
    check.expect(given, path, "observation-range", f"must have one of {', '.join(_RANGE_PARTS)}")
    for name in sorted(given):
        is_valid, form = _RANGE_PARTS[name]
        check.expect(is_valid(part[name]), f"{path}.{name}", "observation-range", f"must be {form}")


def check_report_patient(report: Json, resources: ResourceService, config: SandboxConfig, problems: Problems) -> None:
    """Checks that a report and the ProcedureRequests that it is based on have the same patient."""
    own, check = config.own_addresses, Checker("DiagnosticReport", problems)
    subject = parse_reference(reference_text(report.get("subject")), own)
    for path, one in objects_in(report, "basedOn"):
        line = parse_reference(reference_text(one), own)
        stored = resources.find(line) if line is not None and line.type == "ProcedureRequest" else None
        patient_text = reference_text(decode_stored(stored.body).get("subject")) if stored is not None else None
        patient = parse_reference(patient_text, own)
        text = f"this ProcedureRequest has another patient than the report's subject, {subject.key() if subject else None}"
        check.expect(subject is None or patient in {None, subject}, path, "report-patient", text)


def _is_reference(node: object) -> bool:
    return reference_text(node) is not None or bool(reference_identifier(node))

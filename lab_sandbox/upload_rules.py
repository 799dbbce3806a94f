"""What the laboratory's uploads must carry ("Resources", DiagnosticReport and Observation)."""

from typing import Any

from lab_sandbox.index import as_list
from lab_sandbox.outcome import Problems
from lab_sandbox.shapes import find_code, is_date_time, is_text, reference_text
from lab_sandbox.value_rules import check_ranges, check_value
from lab_sandbox.wire import Json

REPORT_STATUSES = ("registered", "partial", "preliminary", "final")
OBSERVATION_STATUSES = ("registered", "preliminary", "final", "amended")
LOINC = "http://loinc.org"


def check_report(report: Json, nomenclature: str, problems: Problems) -> None:
    """Cardinality 1: status, code (nomenclature), subject, effectiveDateTime, issued; several basedOn and result."""
    if report.get("status") not in REPORT_STATUSES:
        problems.add("DiagnosticReport.status", "report-status", f"one of {', '.join(REPORT_STATUSES)}", "value")
    if find_code(report.get("code"), nomenclature) is None:
        problems.add("DiagnosticReport.code", "report-code", f"a code in {nomenclature} is required", "required")
    if reference_text(report.get("subject")) is None and not _has_identifier(report.get("subject")):
        problems.add("DiagnosticReport.subject", "report-required", "a reference to the patient is required", "required")
    for name in ("effectiveDateTime", "issued"):
        if not is_date_time(report.get(name)):
            problems.add(f"DiagnosticReport.{name}", "report-required", "a date-time is required", "required")
    for name in ("basedOn", "result"):
        _check_report_references(report, "DiagnosticReport", name, problems)
    for position, form in enumerate(as_list(report.get("presentedForm"))):
        if not isinstance(form, dict) or not is_text(form.get("url")):
            problems.add(
                f"DiagnosticReport.presentedForm[{position}].url", "report-document", "a relative or absolute url is expected"
            )


def check_observation(observation: Json, problems: Problems) -> None:
    """Cardinality 1: status, code (LOINC), exactly one of the value[x] forms."""
    if observation.get("status") not in OBSERVATION_STATUSES:
        problems.add("Observation.status", "observation-status", f"one of {', '.join(OBSERVATION_STATUSES)}", "value")
    if find_code(observation.get("code"), LOINC) is None:
        problems.add("Observation.code", "observation-loinc", f"a code in {LOINC} is required", "required")
    check_value(observation, problems)
    if "issued" in observation and not is_date_time(observation["issued"]):
        problems.add("Observation.issued", "observation-issued", "a date-time is expected")
    check_ranges(observation, problems)


def _check_report_references(report: Json, kind: str, name: str, problems: Problems) -> None:
    value = report.get(name)
    if value is not None and not isinstance(value, list):
        problems.add(f"{kind}.{name}", "report-references", "an array of references is expected")
        return
    for position, one in enumerate(value or []):
        if reference_text(one) is None:
            problems.add(f"{kind}.{name}[{position}]", "report-references", "a reference is expected")


def _has_identifier(node: Any) -> bool:
    return isinstance(node, dict) and isinstance(node.get("identifier"), dict)

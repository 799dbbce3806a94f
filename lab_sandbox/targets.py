"""Where references may lead: each row of "Resources" names the type, and a report is about its lines' own patient."""

from collections.abc import Callable, Iterator
from typing import Final

from lab_sandbox.index import as_list
from lab_sandbox.outcome import Problems
from lab_sandbox.references import Ref, parse_reference
from lab_sandbox.resources import ResourceService
from lab_sandbox.shapes import reference_text
from lab_sandbox.wire import Json, decode_stored

_REFERENCE_TARGETS: Final[dict[str, dict[str, str]]] = {
    "ProcedureRequest": {"subject": "Patient", "specimen": "Specimen"},
    "Task": {"basedOn": "ProcedureRequest", "partOf": "Task"},
    "Specimen": {"subject": "Patient"},
    "QuestionnaireResponse": {"source": "Patient", "subject": "ProcedureRequest"},
    "DiagnosticReport": {"subject": "Patient", "basedOn": "ProcedureRequest", "result": "Observation"},
    "Observation": {"subject": "Patient", "specimen": "Specimen"},
}

TypeResolver = Callable[[str], str | None]
"""Reference -> the type of what it leads to; None when that cannot be told."""


def check_reference_targets(kind: str, resource: Json, element: str, resolve_type: TypeResolver, problems: Problems) -> None:
    """Notes every reference that leads to a resource of another type than its row says."""
    for name, wanted in _REFERENCE_TARGETS.get(kind, {}).items():
        value = resource.get(name)
        for position, one in enumerate(as_list(value)):
            text = reference_text(one)
            found = resolve_type(text) if text is not None else None
            if found not in {None, wanted}:
                where = f"{element}.{name}[{position}]" if isinstance(value, list) else f"{element}.{name}"
                problems.add(where, "reference-type", f"a reference to a {wanted} is expected, {text} is a {found}")


def check_report_patient(report: Json, resources: ResourceService, own_addresses: tuple[str, ...], problems: Problems) -> None:
    """A report and the ProcedureRequests that it is based on are about one patient."""
    subject = parse_reference(reference_text(report.get("subject")), own_addresses)
    for position, line in enumerate(_report_lines(report, own_addresses)):
        kept = resources.find(line) if line is not None else None
        patient = (
            parse_reference(reference_text(decode_stored(kept.body).get("subject")), own_addresses) if kept is not None else None
        )
        if subject is not None and patient not in {None, subject}:
            text = f"the patient of this ProcedureRequest is not the report's subject, {subject.key()}"
            problems.add(f"DiagnosticReport.basedOn[{position}]", "report-patient", text)


def _report_lines(report: Json, own_addresses: tuple[str, ...]) -> Iterator[Ref | None]:
    for one in as_list(report.get("basedOn")):
        ref = parse_reference(reference_text(one), own_addresses)
        yield ref if ref is not None and ref.type == "ProcedureRequest" else None

"""Where references may lead: each row of "Resources" names the type, and a report is about its lines' own patient."""

from collections.abc import Callable, Iterator
from typing import Final

from lab_sandbox.index import listed
from lab_sandbox.outcome import Problems
from lab_sandbox.references import Ref, parse
from lab_sandbox.resources import Resources
from lab_sandbox.shapes import reference_of
from lab_sandbox.wire import Json, decode_stored

_TARGETS: Final[dict[str, dict[str, str]]] = {
    "ProcedureRequest": {"subject": "Patient", "specimen": "Specimen"},
    "Task": {"basedOn": "ProcedureRequest", "partOf": "Task"},
    "Specimen": {"subject": "Patient"},
    "QuestionnaireResponse": {"source": "Patient", "subject": "ProcedureRequest"},
    "DiagnosticReport": {"subject": "Patient", "basedOn": "ProcedureRequest", "result": "Observation"},
    "Observation": {"subject": "Patient", "specimen": "Specimen"},
}

TypeOf = Callable[[str], str | None]
"""Reference -> the type of what it leads to; None when that cannot be told."""


def check_targets(kind: str, resource: Json, element: str, type_of: TypeOf, problems: Problems) -> None:
    """Notes every reference that leads to a resource of another type than its row says."""
    for name, wanted in _TARGETS.get(kind, {}).items():
        value = resource.get(name)
        for position, one in enumerate(listed(value)):
            text = reference_of(one)
            found = type_of(text) if text is not None else None
            if found not in {None, wanted}:
                where = f"{element}.{name}[{position}]" if isinstance(value, list) else f"{element}.{name}"
                problems.add(where, "reference-type", f"a reference to a {wanted} is expected, {text} is a {found}")


def check_report_patient(report: Json, resources: Resources, own: tuple[str, ...], problems: Problems) -> None:
    """A report and the ProcedureRequests that it is based on are about one patient."""
    subject = parse(reference_of(report.get("subject")), own)
    for position, line in enumerate(_lines(report, own)):
        kept = resources.peek(line) if line is not None else None
        patient = parse(reference_of(decode_stored(kept.body).get("subject")), own) if kept is not None else None
        if subject is not None and patient not in {None, subject}:
            text = f"the patient of this ProcedureRequest is not the report's subject, {subject.key()}"
            problems.add(f"DiagnosticReport.basedOn[{position}]", "report-patient", text)


def _lines(report: Json, own: tuple[str, ...]) -> Iterator[Ref | None]:
    for one in listed(report.get("basedOn")):
        ref = parse(reference_of(one), own)
        yield ref if ref is not None and ref.type == "ProcedureRequest" else None

"""The rules of each resource type's own fields, from the tables of "Resources": order resources, Patient, Task and uploads."""

import re
from collections.abc import Callable
from typing import Any, Final

from lab_sandbox.config import SandboxConfig
from lab_sandbox.errors import Problems
from lab_sandbox.exact_json import Json
from lab_sandbox.order_bundle import BundleEntry, OrderBundle
from lab_sandbox.rule_helpers import (
    find_code,
    find_identifier_value,
    is_date,
    is_date_time,
    is_instant,
    is_number,
    is_text,
    reference_text,
)
from lab_sandbox.search_index import as_list, identifier_value

SECOND_BARCODES = {
    "042.036": ("0000-0000", re.compile(r"[0-9]{4}-[0-9]{4}")),
    "042.075": ("0000-0000", re.compile(r"[0-9]{4}-[0-9]{4}")),
    "042.076": ("000-000-000", re.compile(r"[0-9]{3}-[0-9]{3}-[0-9]{3}")),
}
"""Order rule 3: studies that need a second barcode, and its format."""


def check_order_resources(bundle: OrderBundle, config: SandboxConfig, problems: Problems) -> None:
    """Checks every ProcedureRequest, Specimen and QuestionnaireResponse of an order."""
    for line in bundle.of_type("ProcedureRequest"):
        _check_line(line, bundle, config, problems)
        _check_second_barcode(line, bundle, config, problems)
    for specimen in bundle.of_type("Specimen"):
        _check_specimen(specimen, config, problems)
    for answers in bundle.of_type("QuestionnaireResponse"):
        _check_answers(answers, bundle, problems)


def _check_line(line: BundleEntry, bundle: OrderBundle, config: SandboxConfig, problems: Problems) -> None:
    if line.resource.get("status") != "active":
        problems.add(f"{line.element}.status", "line-status", "required, must be active", "required")
    if find_code(line.resource.get("code"), config.system("nomenclature")) is None:
        problems.add(f"{line.element}.code", "line-code", f"required, a code in {config.system('nomenclature')}", "required")
    if not is_instant(line.resource.get("occurrenceDateTime")):
        problems.add(f"{line.element}.occurrenceDateTime", "line-moment", "required, a date-time with UTC offset", "required")
    for position, one in enumerate(as_list(line.resource.get("identifier"))):
        value = identifier_value(one)
        if value is None or value.startswith("|"):
            problems.add(f"{line.element}.identifier[{position}]", "line-identifier", "must have system and value")
    if not as_list(line.resource.get("specimen")):
        text = "required, the Specimens that the test is made from"
        problems.add(f"{line.element}.specimen", "line-specimen", text, "required")
    for position, one in enumerate(as_list(line.resource.get("specimen"))):
        if bundle.find(reference_text(one), "Specimen") is None:
            problems.add(
                f"{line.element}.specimen[{position}]", "line-specimen", "must be a reference to a Specimen of the order"
            )


def _check_second_barcode(line: BundleEntry, bundle: OrderBundle, config: SandboxConfig, problems: Problems) -> None:
    """Order rule 3: one container has the laboratory's barcode and a second one in the study's format."""
    study = find_code(line.resource.get("code"), config.system("nomenclature"))
    if study not in SECOND_BARCODES:
        return
    form, pattern = SECOND_BARCODES[study]
    specimens = [bundle.find(reference_text(one), "Specimen") for one in as_list(line.resource.get("specimen"))]
    containers = [box for one in specimens if one for box in as_list(one.resource.get("container")) if isinstance(box, dict)]
    for box in containers:
        second = find_identifier_value(box.get("identifier"), config.second_labels_system)
        if find_identifier_value(box.get("identifier"), config.lab_system("labels")) and second and pattern.fullmatch(second):
            return
    element = f"{specimens[0].element}.container" if specimens and specimens[0] else f"{line.element}.specimen"
    both = f"{config.lab_system('labels')} and {config.second_labels_system} as {form}"
    text = f"study {study} needs two barcodes in identifier, {both}"
    problems.add(element, "two-barcodes", text, "required")


def _check_specimen(specimen: BundleEntry, config: SandboxConfig, problems: Problems) -> None:
    body, element = specimen.resource, specimen.element
    if find_code(body.get("type"), config.system("specimen-type")) is None:
        problems.add(f"{element}.type", "specimen-type", f"required, a code in {config.system('specimen-type')}", "required")
    collection = body.get("collection")
    collected = collection.get("collectedDateTime") if isinstance(collection, dict) else None
    if not isinstance(collection, dict) or not {"collectedDateTime", "method"} & collection.keys():
        text = "required, an object with collectedDateTime and method"
        problems.add(f"{element}.collection", "specimen-collection", text, "required")
    if collected is not None and not is_instant(collected):
        problems.add(f"{element}.collection.collectedDateTime", "specimen-collected", "must be a date-time with UTC offset")
    if (
        isinstance(collection, dict)
        and "method" in collection
        and find_code(collection["method"], config.system("treatment_protocol")) is None
    ):
        text = f"must have a code in {config.system('treatment_protocol')}"
        problems.add(f"{element}.collection.method", "specimen-method", text)
    if not as_list(body.get("container")):
        text = "required, at least one container with its barcode"
        problems.add(f"{element}.container", "specimen-container", text, "required")
    for position, box in enumerate(as_list(body.get("container"))):
        _check_container(box, f"{element}.container[{position}]", config, problems)
    _check_extension(specimen, config, problems)


def _check_container(container: object, element: str, config: SandboxConfig, problems: Problems) -> None:
    fields = container if isinstance(container, dict) else {}
    if find_identifier_value(fields.get("identifier"), config.lab_system("labels")) is None:
        problems.add(
            f"{element}.identifier", "container-barcode", f"required, a barcode in {config.lab_system('labels')}", "required"
        )
    if find_code(fields.get("type"), config.system("specimen_type")) is None:
        problems.add(f"{element}.type", "container-type", f"required, a code in {config.system('specimen_type')}", "required")
    quantity = fields.get("specimenQuantity")
    if not is_number(quantity.get("value") if isinstance(quantity, dict) else None):
        problems.add(f"{element}.specimenQuantity.value", "container-quantity", "required, a number", "required")


def _check_extension(specimen: BundleEntry, config: SandboxConfig, problems: Problems) -> None:
    extension = specimen.resource.get("extension")
    only = extension[0] if isinstance(extension, list) and len(extension) == 1 else None
    url = f"{config.base_url}extra/supportingInfo"
    if not isinstance(only, dict) or only.get("url") != url or not isinstance(only.get("valueString"), str):
        text = f"must be exactly one object with url {url} and the valueString from pre-analytics"
        problems.add(f"{specimen.element}.extension", "specimen-extension", text)


def _check_answers(answers: BundleEntry, bundle: OrderBundle, problems: Problems) -> None:
    if answers.resource.get("status") != "completed":
        problems.add(f"{answers.element}.status", "answers-status", "must be completed", "value")
    if bundle.find(reference_text(answers.resource.get("subject")), "ProcedureRequest") is None:
        problems.add(
            f"{answers.element}.subject",
            "answers-subject",
            "required, a reference to a ProcedureRequest of the order",
            "required",
        )
    _check_items(answers.resource, answers.element, problems)


def _check_items(holder: Json, element: str, problems: Problems) -> None:
    """Every item has a linkId, and every answer a value, at any depth."""
    for position, item in enumerate(as_list(holder.get("item"))):
        path, fields = f"{element}.item[{position}]", item if isinstance(item, dict) else {}
        if not is_text(fields.get("linkId")):
            problems.add(f"{path}.linkId", "answers-link-id", "required", "required")
        for number, answer in enumerate(as_list(fields.get("answer"))):
            if not isinstance(answer, dict) or not any(name.startswith("value") for name in answer):
                problems.add(
                    f"{path}.answer[{number}]",
                    "answers-value",
                    "must have a value, such as valueCoding or valueInteger",
                    "required",
                )
        _check_items(fields, path, problems)


GENDERS = ("male", "female", "other", "unknown")


def check_patient(patient: Json, problems: Problems) -> None:
    """Checks the fields required on creation: family name, two given names, gender, birthDate; and anonymous names."""
    _check_name(patient.get("name"), problems)
    if patient.get("gender") not in GENDERS:
        problems.add("Patient.gender", "patient-required", f"required, one of {', '.join(GENDERS)}", "required")
    if not is_date(patient.get("birthDate")):
        problems.add("Patient.birthDate", "patient-required", "required, a date YYYY-MM-DD", "required")
    _check_telecom(patient.get("telecom"), problems)


def _check_name(names: Any, problems: Problems) -> None:
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], dict) else {}
    family, given = name.get("family"), name.get("given")
    first, second = (*given, None, None)[:2] if isinstance(given, list) else (None, None)
    for element, value in (("family", family), ("given[0]", first), ("given[1]", second)):
        if not is_text(value):
            problems.add(f"Patient.name[0].{element}", "patient-name", "required on creation", "required")
    if first == "-" and second == "-" and not re.fullmatch(r"[0-9]{10}", str(family)):
        problems.add("Patient.name[0].family", "anonymous", "must be exactly 10 digits in an anonymous order")
    if re.fullmatch(r"[0-9]+", str(family)) and not (first == "-" and second == "-" and len(str(family)) == 10):
        problems.add(
            "Patient.name[0]", "anonymous", "an anonymous name has a family name of 10 digits, and `-` as given[0] and given[1]"
        )


def _check_telecom(telecom: Any, problems: Problems) -> None:
    if telecom is None:
        return
    if not isinstance(telecom, list):
        problems.add("Patient.telecom", "patient-telecom", "must be an array")
        return
    for position, entry in enumerate(telecom):
        if not isinstance(entry, dict) or entry.get("system") not in {"phone", "email"} or not is_text(entry.get("value")):
            problems.add(f"Patient.telecom[{position}]", "patient-telecom", "must have the system phone or email, and a value")


TASK_STATUSES = (
    "draft",
    "requested",
    "received",
    "accepted",
    "rejected",
    "ready",
    "cancelled",
    "in-progress",
    "on-hold",
    "failed",
    "completed",
    "entered-in-error",
)


def check_task(task: Json, problems: Problems) -> None:
    """Checks the Task of a PUT: a known status, and errors as text in output."""
    if task.get("status") not in TASK_STATUSES:
        problems.add("Task.status", "task-status", f"must be one of {', '.join(TASK_STATUSES)}", "value")
    for position, one in enumerate(as_list(task.get("output"))):
        if not isinstance(one, dict) or not is_text(one.get("valueString")):
            problems.add(f"Task.output[{position}]", "task-output", "must have a valueString with the error text")


TERMINAL_STATUSES: Final = frozenset({"completed", "cancelled", "failed", "rejected", "entered-in-error"})


def check_transition(before: Json, after: Json, *, is_owner: bool, problems: Problems) -> None:
    """Checks a Task's change of status ("States and transitions").

    The laboratory takes a Task from requested to completed or cancelled, by way of statuses that the interface does not show,
    and no further, and says why it cancels a test. The owner may offer a Task again, or withdraw it as entered in error; nobody
    turns one end into another.
    """
    old, new = before.get("status"), after.get("status")
    texts = [one.get("valueString") for one in as_list(after.get("output")) if isinstance(one, dict)]
    if old != new == "cancelled" and not is_owner and as_list(after.get("basedOn")) and not any(map(is_text, texts)):
        problems.add("Task.output", "task-reason", "required, the reason why the test is cancelled, as valueString", "required")
    if old == new or old not in TERMINAL_STATUSES or (is_owner and new not in TERMINAL_STATUSES - {"entered-in-error"}):
        return
    problems.add("Task.status", "task-transition", f"{old} is an end: a Task cannot go from {old} to {new}", "business-rule")


_TIME_PATTERN = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?")


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and bool(value)


def _is_quantity(value: Any) -> bool:
    return _is_object(value) and ("value" not in value or is_number(value["value"]))


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and _TIME_PATTERN.fullmatch(value) is not None


VALUE_FORMS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "valueQuantity": (_is_quantity, "an object whose value is a number"),
    "valueCodeableConcept": (_is_object, "an object"),
    "valueString": (is_text, "a text"),
    "valueRange": (_is_object, "an object"),
    "valueRatio": (_is_object, "an object"),
    "valueSampledData": (_is_object, "an object"),
    "valueAttachment": (_is_object, "an object"),
    "valueTime": (_is_time, "a time hh:mm:ss"),
    "valueDateTime": (is_date_time, "a date-time"),
    "valuePeriod": (_is_object, "an object"),
}
RANGE_PARTS: Final = ("low", "high", "meaning", "age", "text")


def check_value(observation: Json, problems: Problems) -> None:
    """Checks that there is exactly one value[x], and its form."""
    given = [name for name in observation if name.startswith("value")]
    if len(given) != 1 or given[0] not in VALUE_FORMS:
        problems.add(
            "Observation.value[x]",
            "observation-value",
            f"must be exactly one of {', '.join(VALUE_FORMS)}, not {', '.join(given) or 'none'}",
        )
        return
    is_valid, form = VALUE_FORMS[given[0]]
    if not is_valid(observation[given[0]]):
        problems.add(f"Observation.{given[0]}", "observation-value", f"must be {form}")


def check_ranges(observation: Json, problems: Problems) -> None:
    """Checks that each reference range has a known part, and that its bounds are quantities."""
    for position, part in enumerate(as_list(observation.get("referenceRange"))):
        element = f"Observation.referenceRange[{position}]"
        if not isinstance(part, dict) or not any(name in part for name in RANGE_PARTS):
            problems.add(element, "observation-range", f"must have one of {', '.join(RANGE_PARTS)}")
            continue
        for name in ("low", "high"):
            if name in part and not _is_quantity(part[name]):
                problems.add(f"{element}.{name}", "observation-range", "must be an object whose value is a number")


REPORT_STATUSES = ("registered", "partial", "preliminary", "final")
OBSERVATION_STATUSES = ("registered", "preliminary", "final", "amended")
LOINC = "http://loinc.org"


def check_report(report: Json, nomenclature: str, problems: Problems) -> None:
    """Checks status, code (nomenclature), subject, effectiveDateTime, issued, and the references in basedOn and result."""
    if report.get("status") not in REPORT_STATUSES:
        problems.add("DiagnosticReport.status", "report-status", f"must be one of {', '.join(REPORT_STATUSES)}", "value")
    if find_code(report.get("code"), nomenclature) is None:
        problems.add("DiagnosticReport.code", "report-code", f"required, a code in {nomenclature}", "required")
    if reference_text(report.get("subject")) is None and not _has_identifier(report.get("subject")):
        problems.add("DiagnosticReport.subject", "report-required", "required, a reference to the patient", "required")
    for name in ("effectiveDateTime", "issued"):
        if not is_date_time(report.get(name)):
            problems.add(f"DiagnosticReport.{name}", "report-required", "required, a date-time", "required")
    for name in ("basedOn", "result"):
        _check_report_references(report, name, problems)
    for position, form in enumerate(as_list(report.get("presentedForm"))):
        if not isinstance(form, dict) or not is_text(form.get("url")):
            problems.add(
                f"DiagnosticReport.presentedForm[{position}].url", "report-document", "required, a relative or absolute URL"
            )


def check_observation(observation: Json, problems: Problems) -> None:
    """Checks status, code (LOINC), the one value[x] and the reference ranges."""
    if observation.get("status") not in OBSERVATION_STATUSES:
        problems.add("Observation.status", "observation-status", f"must be one of {', '.join(OBSERVATION_STATUSES)}", "value")
    if find_code(observation.get("code"), LOINC) is None:
        problems.add("Observation.code", "observation-loinc", f"required, a code in {LOINC}", "required")
    check_value(observation, problems)
    if "issued" in observation and not is_date_time(observation["issued"]):
        problems.add("Observation.issued", "observation-issued", "must be a date-time")
    check_ranges(observation, problems)


def _check_report_references(report: Json, name: str, problems: Problems) -> None:
    value = report.get(name)
    if value is not None and not isinstance(value, list):
        problems.add(f"DiagnosticReport.{name}", "report-references", "must be an array of references")
        return
    for position, one in enumerate(value or []):
        if reference_text(one) is None:
            problems.add(f"DiagnosticReport.{name}[{position}]", "report-references", "must be a reference")


def _has_identifier(node: Any) -> bool:
    return isinstance(node, dict) and isinstance(node.get("identifier"), dict)

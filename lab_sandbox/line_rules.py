"""The rules of each resource of an order: its own fields, as the tables of "Resources" give them."""

import re

from lab_sandbox.config import SandboxConfig
from lab_sandbox.draft import BundleEntry, OrderBundle
from lab_sandbox.index import as_list, identifier_value
from lab_sandbox.outcome import Problems
from lab_sandbox.shapes import find_code, find_identifier_value, is_instant, is_number, is_text, reference_text
from lab_sandbox.wire import Json

SECOND_BARCODES = {
    "042.036": ("0000-0000", re.compile(r"[0-9]{4}-[0-9]{4}")),
    "042.075": ("0000-0000", re.compile(r"[0-9]{4}-[0-9]{4}")),
    "042.076": ("000-000-000", re.compile(r"[0-9]{3}-[0-9]{3}-[0-9]{3}")),
}
"""Order rule 3: studies that need a second barcode, and its shape."""


def check_order_resources(bundle: OrderBundle, config: SandboxConfig, problems: Problems) -> None:
    """Judges every ProcedureRequest, Specimen and QuestionnaireResponse of an order."""
    for line in bundle.of_type("ProcedureRequest"):
        _check_line(line, bundle, config, problems)
        _check_second_barcode(line, bundle, config, problems)
    for specimen in bundle.of_type("Specimen"):
        _check_specimen(specimen, config, problems)
    for answers in bundle.of_type("QuestionnaireResponse"):
        _check_answers(answers, bundle, problems)


def _check_line(line: BundleEntry, bundle: OrderBundle, config: SandboxConfig, problems: Problems) -> None:
    if line.resource.get("status") != "active":
        problems.add(f"{line.element}.status", "line-status", "required, active", "required")
    if find_code(line.resource.get("code"), config.system("nomenclature")) is None:
        problems.add(f"{line.element}.code", "line-code", f"a code in {config.system('nomenclature')} is required", "required")
    if not is_instant(line.resource.get("occurrenceDateTime")):
        problems.add(f"{line.element}.occurrenceDateTime", "line-moment", "a date-time with offset is required", "required")
    for position, one in enumerate(as_list(line.resource.get("identifier"))):
        value = identifier_value(one)
        if value is None or value.startswith("|"):
            problems.add(f"{line.element}.identifier[{position}]", "line-identifier", "system and value are expected")
    for position, one in enumerate(as_list(line.resource.get("specimen"))):
        if bundle.find(reference_text(one), "Specimen") is None:
            problems.add(
                f"{line.element}.specimen[{position}]", "line-specimen", "a reference to a Specimen of the order is expected"
            )


def _check_second_barcode(line: BundleEntry, bundle: OrderBundle, config: SandboxConfig, problems: Problems) -> None:
    """Order rule 3: the laboratory barcode and a second one of the study's shape in one container."""
    study = find_code(line.resource.get("code"), config.system("nomenclature"))
    if study not in SECOND_BARCODES:
        return
    shape, pattern = SECOND_BARCODES[study]
    specimens = [bundle.find(reference_text(one), "Specimen") for one in as_list(line.resource.get("specimen"))]
    containers = [box for one in specimens if one for box in as_list(one.resource.get("container")) if isinstance(box, dict)]
    for box in containers:
        second = find_identifier_value(box.get("identifier"), config.second_labels_system)
        if find_identifier_value(box.get("identifier"), config.lab_system("labels")) and second and pattern.fullmatch(second):
            return
    element = f"{specimens[0].element}.container" if specimens and specimens[0] else f"{line.element}.specimen"
    both = f"{config.lab_system('labels')}, and {config.second_labels_system} of shape {shape}"
    text = f"study {study} needs two barcodes in identifier: {both}"
    problems.add(element, "two-barcodes", text, "required")


def _check_specimen(specimen: BundleEntry, config: SandboxConfig, problems: Problems) -> None:
    body, element = specimen.resource, specimen.element
    if find_code(body.get("type"), config.system("specimen-type")) is None:
        problems.add(f"{element}.type", "specimen-type", f"a code in {config.system('specimen-type')} is required", "required")
    collection = body.get("collection")
    collected = collection.get("collectedDateTime") if isinstance(collection, dict) else None
    if collection is not None and not isinstance(collection, dict):
        problems.add(f"{element}.collection", "specimen-collected", "an object with collectedDateTime and method is expected")
    if collected is not None and not is_instant(collected):
        problems.add(f"{element}.collection.collectedDateTime", "specimen-collected", "a date-time with offset is expected")
    if (
        isinstance(collection, dict)
        and "method" in collection
        and find_code(collection["method"], config.system("treatment_protocol")) is None
    ):
        text = f"a code in {config.system('treatment_protocol')} is expected"
        problems.add(f"{element}.collection.method", "specimen-method", text)
    for position, box in enumerate(as_list(body.get("container"))):
        _check_container(box, f"{element}.container[{position}]", config, problems)
    _check_extension(specimen, config, problems)


def _check_container(container: object, element: str, config: SandboxConfig, problems: Problems) -> None:
    fields = container if isinstance(container, dict) else {}
    if find_identifier_value(fields.get("identifier"), config.lab_system("labels")) is None:
        problems.add(
            f"{element}.identifier", "container-barcode", f"a barcode in {config.lab_system('labels')} is required", "required"
        )
    if find_code(fields.get("type"), config.system("specimen_type")) is None:
        problems.add(f"{element}.type", "container-type", f"a code in {config.system('specimen_type')} is required", "required")
    quantity = fields.get("specimenQuantity")
    if not is_number(quantity.get("value") if isinstance(quantity, dict) else None):
        problems.add(f"{element}.specimenQuantity.value", "container-quantity", "a number is required", "required")


def _check_extension(specimen: BundleEntry, config: SandboxConfig, problems: Problems) -> None:
    extension = specimen.resource.get("extension")
    only = extension[0] if isinstance(extension, list) and len(extension) == 1 else None
    url = f"{config.base_url}extra/supportingInfo"
    if not isinstance(only, dict) or only.get("url") != url or not isinstance(only.get("valueString"), str):
        text = f"exactly one object: url {url}, valueString from pre-analytics"
        problems.add(f"{specimen.element}.extension", "specimen-extension", text)


def _check_answers(answers: BundleEntry, bundle: OrderBundle, problems: Problems) -> None:
    if answers.resource.get("status") != "completed":
        problems.add(f"{answers.element}.status", "answers-status", "completed is expected", "value")
    if bundle.find(reference_text(answers.resource.get("subject")), "ProcedureRequest") is None:
        problems.add(
            f"{answers.element}.subject",
            "answers-subject",
            "a reference to any one ProcedureRequest of the order is required",
            "required",
        )
    _check_items(answers.resource, answers.element, problems)


def _check_items(holder: Json, element: str, problems: Problems) -> None:
    """Every item has its linkId, and every answer a value, at any depth."""
    for position, item in enumerate(as_list(holder.get("item"))):
        here, fields = f"{element}.item[{position}]", item if isinstance(item, dict) else {}
        if not is_text(fields.get("linkId")):
            problems.add(f"{here}.linkId", "answers-link-id", "required", "required")
        for number, answer in enumerate(as_list(fields.get("answer"))):
            if not isinstance(answer, dict) or not any(name.startswith("value") for name in answer):
                problems.add(f"{here}.answer[{number}]", "answers-value", "valueCoding or valueInteger is expected", "required")
        _check_items(fields, here, problems)

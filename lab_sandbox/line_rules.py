"""The rules of each resource of an order: its own fields, as the tables of "Resources" give them."""

import re

from lab_sandbox.config import SandboxConfig
from lab_sandbox.draft import Draft, Entry
from lab_sandbox.index import identifier_value, listed
from lab_sandbox.outcome import Problems
from lab_sandbox.shapes import code_in, is_moment, is_number, is_text, reference_of, value_in
from lab_sandbox.wire import Json

SECOND_BARCODES = {
    "042.036": ("0000-0000", re.compile(r"[0-9]{4}-[0-9]{4}")),
    "042.075": ("0000-0000", re.compile(r"[0-9]{4}-[0-9]{4}")),
    "042.076": ("000-000-000", re.compile(r"[0-9]{3}-[0-9]{3}-[0-9]{3}")),
}
"""Order rule 3: studies that need a second barcode, and its shape."""


def check_lines(draft: Draft, config: SandboxConfig, problems: Problems) -> None:
    """Judges every ProcedureRequest, Specimen and QuestionnaireResponse of an order."""
    for line in draft.of("ProcedureRequest"):
        _check_line(line, draft, config, problems)
        _check_second_barcode(line, draft, config, problems)
    for specimen in draft.of("Specimen"):
        _check_specimen(specimen, config, problems)
    for answers in draft.of("QuestionnaireResponse"):
        _check_answers(answers, draft, problems)


def _check_line(line: Entry, draft: Draft, config: SandboxConfig, problems: Problems) -> None:
    if line.resource.get("status") != "active":
        problems.add(f"{line.element}.status", "line-status", "required, active", "required")
    if code_in(line.resource.get("code"), config.system("nomenclature")) is None:
        problems.add(f"{line.element}.code", "line-code", f"a code in {config.system('nomenclature')} is required", "required")
    if not is_moment(line.resource.get("occurrenceDateTime")):
        problems.add(f"{line.element}.occurrenceDateTime", "line-moment", "a date-time with offset is required", "required")
    for position, one in enumerate(listed(line.resource.get("identifier"))):
        value = identifier_value(one)
        if value is None or value.startswith("|"):
            problems.add(f"{line.element}.identifier[{position}]", "line-identifier", "system and value are expected")
    for position, one in enumerate(listed(line.resource.get("specimen"))):
        if draft.at(reference_of(one), "Specimen") is None:
            problems.add(
                f"{line.element}.specimen[{position}]", "line-specimen", "a reference to a Specimen of the order is expected"
            )


def _check_second_barcode(line: Entry, draft: Draft, config: SandboxConfig, problems: Problems) -> None:
    """Order rule 3: the laboratory barcode and a second one of the study's shape in one container."""
    study = code_in(line.resource.get("code"), config.system("nomenclature"))
    if study not in SECOND_BARCODES:
        return
    shape, pattern = SECOND_BARCODES[study]
    specimens = [draft.at(reference_of(one), "Specimen") for one in listed(line.resource.get("specimen"))]
    containers = [box for one in specimens if one for box in listed(one.resource.get("container")) if isinstance(box, dict)]
    for box in containers:
        second = value_in(box.get("identifier"), config.second_labels_system)
        if value_in(box.get("identifier"), config.lab_system("labels")) and second and pattern.fullmatch(second):
            return
    element = f"{specimens[0].element}.container" if specimens and specimens[0] else f"{line.element}.specimen"
    both = f"{config.lab_system('labels')}, and {config.second_labels_system} of shape {shape}"
    text = f"study {study} needs two barcodes in identifier: {both}"
    problems.add(element, "two-barcodes", text, "required")


def _check_specimen(specimen: Entry, config: SandboxConfig, problems: Problems) -> None:
    body, element = specimen.resource, specimen.element
    if code_in(body.get("type"), config.system("specimen-type")) is None:
        problems.add(f"{element}.type", "specimen-type", f"a code in {config.system('specimen-type')} is required", "required")
    collection = body.get("collection")
    collected = collection.get("collectedDateTime") if isinstance(collection, dict) else None
    if collection is not None and not isinstance(collection, dict):
        problems.add(f"{element}.collection", "specimen-collected", "an object with collectedDateTime and method is expected")
    if collected is not None and not is_moment(collected):
        problems.add(f"{element}.collection.collectedDateTime", "specimen-collected", "a date-time with offset is expected")
    if (
        isinstance(collection, dict)
        and "method" in collection
        and code_in(collection["method"], config.system("treatment_protocol")) is None
    ):
        text = f"a code in {config.system('treatment_protocol')} is expected"
        problems.add(f"{element}.collection.method", "specimen-method", text)
    for position, box in enumerate(listed(body.get("container"))):
        _check_container(box, f"{element}.container[{position}]", config, problems)
    _check_extension(specimen, config, problems)


def _check_container(box: object, element: str, config: SandboxConfig, problems: Problems) -> None:
    fields = box if isinstance(box, dict) else {}
    if value_in(fields.get("identifier"), config.lab_system("labels")) is None:
        problems.add(
            f"{element}.identifier", "container-barcode", f"a barcode in {config.lab_system('labels')} is required", "required"
        )
    if code_in(fields.get("type"), config.system("specimen_type")) is None:
        problems.add(f"{element}.type", "container-type", f"a code in {config.system('specimen_type')} is required", "required")
    quantity = fields.get("specimenQuantity")
    if not is_number(quantity.get("value") if isinstance(quantity, dict) else None):
        problems.add(f"{element}.specimenQuantity.value", "container-quantity", "a number is required", "required")


def _check_extension(specimen: Entry, config: SandboxConfig, problems: Problems) -> None:
    extension = specimen.resource.get("extension")
    only = extension[0] if isinstance(extension, list) and len(extension) == 1 else None
    url = f"{config.base_url}extra/supportingInfo"
    if not isinstance(only, dict) or only.get("url") != url or not isinstance(only.get("valueString"), str):
        text = f"exactly one object: url {url}, valueString from pre-analytics"
        problems.add(f"{specimen.element}.extension", "specimen-extension", text)


def _check_answers(answers: Entry, draft: Draft, problems: Problems) -> None:
    if answers.resource.get("status") != "completed":
        problems.add(f"{answers.element}.status", "answers-status", "completed is expected", "value")
    if draft.at(reference_of(answers.resource.get("subject")), "ProcedureRequest") is None:
        problems.add(
            f"{answers.element}.subject",
            "answers-subject",
            "a reference to any one ProcedureRequest of the order is required",
            "required",
        )
    _check_items(answers.resource, answers.element, problems)


def _check_items(holder: Json, element: str, problems: Problems) -> None:
    """Every item has its linkId, and every answer a value, at any depth."""
    for position, item in enumerate(listed(holder.get("item"))):
        here, fields = f"{element}.item[{position}]", item if isinstance(item, dict) else {}
        if not is_text(fields.get("linkId")):
            problems.add(f"{here}.linkId", "answers-link-id", "required", "required")
        for number, answer in enumerate(listed(fields.get("answer"))):
            if not isinstance(answer, dict) or not any(name.startswith("value") for name in answer):
                problems.add(f"{here}.answer[{number}]", "answers-value", "valueCoding or valueInteger is expected", "required")
        _check_items(fields, here, problems)

"""The rules of each resource type's own fields, on creation and on update: Patient, Task and the other resources of an order.

Source: the tables of "Resources".
"""

import re
from collections.abc import Callable
from typing import Any, Final

from lab_sandbox.config import SandboxConfig
from lab_sandbox.errors import Problems
from lab_sandbox.exact_json import Json
from lab_sandbox.path_aliases import ORDER_TASK_CODE
from lab_sandbox.rule_helpers import (
    Checker,
    ValueForms,
    find_code,
    find_contract_links,
    find_identifier_value,
    has_system_and_value,
    is_date,
    is_date_time,
    is_instant,
    is_integer,
    is_number,
    is_object,
    is_quantity,
    is_text,
    is_time,
    objects_in,
    patient_key,
    reference_identifier,
    reference_text,
)
from lab_sandbox.search_index import as_list, concept_codes, index_terms

FOLLOW_UP_STUDY: Final = "190.1558"
_OLD_ORDER_NUMBER: Final = re.compile(r"[0-9]{5}-[A-Za-z0-9]{5}-[0-9]{8}")
OLD_ORDER_NUMBER_FORM: Final = "00000-XXXXX-00000000"


def check_order_resource(kind: str, resource: Json, element: str, config: SandboxConfig, problems: Problems) -> None:
    """Checks a ProcedureRequest, Task, Specimen or QuestionnaireResponse by itself; other types have no rules here."""
    check = _CHECKS.get(kind)
    if check is not None:
        check(resource, Checker(element, problems), config)


def _check_line(line: Json, check: Checker, config: SandboxConfig) -> None:
    nomenclature = config.system("nomenclature")
    check.require(line.get("status") == "active", "status", "line-status", "must be active")
    check.require(find_code(line.get("code"), nomenclature), "code", "line-code", f"a code in {nomenclature}")
    moment = line.get("occurrenceDateTime")
    check.require(is_instant(moment), "occurrenceDateTime", "line-moment", "a date-time with UTC offset")
    check.require(has_system_and_value(line.get("requisition")), "requisition", "requisition", "with system and value")
    links = len(find_contract_links(line, config))
    check.require(links == 1, "supportingInfo", "contract-link", f"exactly one contract link, found {links}")
    check.require(as_list(line.get("specimen")), "specimen", "line-specimen", "the Specimens that the test is made from")
    _check_subject(line, check, config)
    for path, one in objects_in(line, "identifier"):
        check.expect(has_system_and_value(one), path, "line-identifier", "must have system and value")
    for path, one in objects_in(line, "note"):
        check.expect(is_text(one.get("text")), path, "line-note", "must have a text")
    _check_old_order_number(line, check, config)


def _check_subject(resource: Json, check: Checker, config: SandboxConfig) -> None:
    check.require(patient_key(resource.get("subject"), config), "subject", "subject", "a reference patient/<id>")


def _check_old_order_number(line: Json, check: Checker, config: SandboxConfig) -> None:
    """basedOn is for the follow-up study alone, and has the number of the earlier order as an identifier."""
    system = config.lab_system("mis")
    is_follow_up = find_code(line.get("code"), config.system("nomenclature")) == FOLLOW_UP_STUDY
    for path, one in objects_in(line, "basedOn"):
        identifier = reference_identifier(one)
        is_old = identifier.get("system") == system and _OLD_ORDER_NUMBER.fullmatch(str(identifier.get("value")))
        text = f"must be the number of an earlier order in {system}, as {OLD_ORDER_NUMBER_FORM}, and only in {FOLLOW_UP_STUDY}"
        check.expect(is_follow_up and is_old and "reference" not in one, path, "follow-up-number", text)


def _check_specimen(specimen: Json, check: Checker, config: SandboxConfig) -> None:
    types, methods = config.system("specimen-type"), config.system("treatment_protocol")
    check.require(find_code(specimen.get("type"), types), "type", "specimen-type", f"a code in {types}")
    _check_subject(specimen, check, config)
    collection = specimen.get("collection")
    if isinstance(collection, dict) and collection:
        check.require(
            find_code(collection.get("method"), methods), "collection.method", "specimen-method", f"a code in {methods}"
        )
        collected = collection.get("collectedDateTime")
        is_valid = collected is None or is_instant(collected)
        text = "must be a date-time with UTC offset"
        check.expect(is_valid, "collection.collectedDateTime", "specimen-collected", text)
    else:
        check.require(False, "collection", "specimen-collection", "an object with collectedDateTime and method")
    containers = as_list(specimen.get("container"))
    check.require(containers, "container", "specimen-container", "at least one container with its barcode")
    for path, box in objects_in(specimen, "container"):
        _check_container(box, check.at(path), config)
    _check_extension(specimen.get("extension"), check, config)


def _check_container(box: Json, check: Checker, config: SandboxConfig) -> None:
    labels, types = config.lab_system("labels"), config.system("specimen_type")
    barcode = find_identifier_value(box.get("identifier"), labels)
    check.require(barcode, "identifier", "container-barcode", f"a barcode in {labels}")
    check.require(find_code(box.get("type"), types), "type", "container-type", f"a code in {types}")
    quantity = box.get("specimenQuantity")
    value = quantity.get("value") if isinstance(quantity, dict) else None
    check.require(is_number(value), "specimenQuantity.value", "container-quantity", "a number")


def _check_extension(extension: Any, check: Checker, config: SandboxConfig) -> None:
    url = f"{config.base_url}extra/supportingInfo"
    only = extension[0] if isinstance(extension, list) and len(extension) == 1 else None
    is_valid = isinstance(only, dict) and only.get("url") == url and isinstance(only.get("valueString"), str)
    text = f"must be exactly one object with url {url} and the valueString from pre-analytics"
    check.expect(is_valid, "extension", "specimen-extension", text)


def _is_coding(value: Any) -> bool:
    return isinstance(value, dict) and is_text(value.get("code")) and is_text(value.get("system"))


ANSWER_FORMS: Final[ValueForms] = {
    "valueCoding": (_is_coding, "an object with code and system"),
    "valueInteger": (is_integer, "a whole number"),
    "valueDecimal": (is_number, "a number"),
    "valueBoolean": (lambda value: isinstance(value, bool), "true or false"),
    "valueString": (is_text, "a text"),
    "valueUri": (is_text, "a text"),
    "valueDate": (is_date, "a date"),
    "valueDateTime": (is_date_time, "a date-time"),
    "valueTime": (is_time, "a time hh:mm:ss"),
    "valueQuantity": (is_quantity, "an object whose value is a number"),
    "valueReference": (is_object, "an object"),
    "valueAttachment": (is_object, "an object"),
}
"""The first two are in the table; questions of type `string` need others, which are STU3's."""


def _check_answers(answers: Json, check: Checker, config: SandboxConfig) -> None:
    check.expect(answers.get("status") == "completed", "status", "answers-status", "must be completed", "value")
    check.require(patient_key(answers.get("source"), config), "source", "answers-source", "a reference to the patient")
    check.require(reference_text(answers.get("subject")), "subject", "answers-subject", "a reference to a ProcedureRequest")
    _check_items(answers, check)


def _check_items(holder: Json, check: Checker) -> None:
    """Every item has linkId and text, and every answer one value in its form, at any depth."""
    for path, item in objects_in(holder, "item"):
        here = check.at(path)
        here.require(is_text(item.get("linkId")), "linkId", "answers-link-id", "the linkId of the question")
        here.require(is_text(item.get("text")), "text", "answers-text", "the text of the question")
        for answer_path, answer in objects_in(item, "answer"):
            here.expect_value(answer, ANSWER_FORMS, f"{answer_path}.", "answers-value")
            _check_items(answer, here.at(answer_path))
        _check_items(item, here)


def _check_task(task: Json, check: Checker, config: SandboxConfig) -> None:
    """A Task of a ProcedureRequest has basedOn and partOf, and the order-level Task neither."""
    types, channels = config.system("task_type"), config.lab_system("notification")
    is_order = ORDER_TASK_CODE in set(concept_codes(task.get("code")))
    if is_order:
        check.expect(find_code(task.get("code"), types), "code", "task-type-system", f"must have a code in {types}")
    based_on, part_of = (len(as_list(task.get(name))) for name in ("basedOn", "partOf"))
    count, text = (0, "must not be in the order-level Task") if is_order else (1, "required, exactly one reference")
    check.expect(based_on == count, "basedOn", "task-based-on", text, "value" if is_order else "required")
    check.expect(part_of == count, "partOf", "task-part-of", text, "value" if is_order else "required")
    for path, option in objects_in(task, "input"):
        code = find_code(option.get("type"), channels)
        is_valid = code in {"sms", "email"} and isinstance(option.get("valueBoolean"), bool)
        text = f"must have the type sms or email in {channels}, and valueBoolean"
        check.expect(is_valid, path, "task-notification", text)
    for path, one in objects_in(task, "output"):
        check.expect(is_text(one.get("valueString")), path, "task-output", "must have a valueString with the error text")
    check.expect(
        task.get("status") in TASK_STATUSES, "status", "task-status", f"must be one of {', '.join(TASK_STATUSES)}", "value"
    )


TASK_STATUSES: Final = (
    "draft", "requested", "received", "accepted", "rejected", "ready", "cancelled", "in-progress", "on-hold", "failed",
    "completed", "entered-in-error",
)  # fmt: skip
TERMINAL_STATUSES: Final = frozenset({"completed", "cancelled", "failed", "rejected", "entered-in-error"})

_CHECKS: Final[dict[str, Callable[[Json, Checker, SandboxConfig], None]]] = {
    "ProcedureRequest": _check_line,
    "Specimen": _check_specimen,
    "QuestionnaireResponse": _check_answers,
    "Task": _check_task,
}


def check_task_update(before: Json, after: Json, config: SandboxConfig, *, is_owner: bool, problems: Problems) -> None:
    """Checks what an update does to a Task ("States and transitions"; "Task").

    The laboratory takes a Task from requested to completed or cancelled, by way of statuses that the interface does not show,
    and no further, says why it cancels a test, and leaves alone what the Task is about. The owner may offer a Task again, or
    withdraw it as entered in error; nobody turns one end into another.
    """
    old, new, check = before.get("status"), after.get("status"), Checker("Task", problems)
    texts = [one.get("valueString") for _, one in objects_in(after, "output")]
    if not is_owner:
        _check_links_kept(before, after, check, config)
        needs_reason = old != new == "cancelled" and as_list(before.get("basedOn"))
        text = "the reason why the test is cancelled, as valueString"
        check.require(not needs_reason or any(map(is_text, texts)), "output", "task-reason", text)
    is_open = old == new or old not in TERMINAL_STATUSES or (is_owner and new not in TERMINAL_STATUSES - {"entered-in-error"})
    text = f"{old} is an end: a Task cannot go from {old} to {new}"
    check.expect(is_open, "status", "task-transition", text, "business-rule")


def _check_links_kept(before: Json, after: Json, check: Checker, config: SandboxConfig) -> None:
    """The receiving side writes status and errors: the rest goes back as it was, since a PUT replaces the whole resource."""
    old, new = (index_terms("Task", one, config.own_addresses) for one in (before, after))
    for name, param in (("basedOn", "based-on"), ("partOf", "part-of"), ("code", "code")):
        is_kept = {one for one in old if one.param == param} == {one for one in new if one.param == param}
        check.expect(is_kept, name, "task-links", "must go back as it was read", "business-rule")


GENDERS: Final = ("male", "female", "other", "unknown")


def check_patient(patient: Json, problems: Problems, *, is_new: bool) -> None:
    """Checks gender and birth date, the names that are required on creation, anonymous names, and telecom."""
    check = Checker("Patient", problems)
    check.require(patient.get("gender") in GENDERS, "gender", "patient-required", f"one of {', '.join(GENDERS)}")
    check.require(is_date(patient.get("birthDate")), "birthDate", "patient-required", "a date")
    name = next((one for _, one in objects_in(patient, "name")), {})
    family, (first, second) = name.get("family"), (*as_list(name.get("given")), None, None)[:2]
    for path, value in (("family", family), ("given[0]", first), ("given[1]", second)):
        check.require(not is_new or is_text(value), f"name[0].{path}", "patient-name", "on creation")
    is_dashed, is_numeric = (first, second) == ("-", "-"), re.fullmatch(r"[0-9]+", str(family)) is not None
    is_anonymous = is_dashed and re.fullmatch(r"[0-9]{10}", str(family))
    text = "an anonymous name has a family name of exactly 10 digits, and `-` as given[0] and given[1]"
    check.expect(is_anonymous or not (is_dashed or is_numeric), "name[0].family", "anonymous", text)
    for path, entry in objects_in(patient, "telecom"):
        is_valid = entry.get("system") in {"phone", "email"} and is_text(entry.get("value"))
        check.expect(is_valid, path, "patient-telecom", "must have the system phone or email, and a value")

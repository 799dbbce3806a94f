"""The rules of an order as a whole: counts, one requisition, one contract, one patient, one Task for each line.

Source: "Create order", order rules 1 and 4, and the Task and ProcedureRequest tables of "Resources".
"""

import re
from collections import Counter
from collections.abc import Iterable

from lab_sandbox.config import Contract, Counterparty, SandboxConfig
from lab_sandbox.errors import Problems
from lab_sandbox.exact_json import Json
from lab_sandbox.order_bundle import BundleEntry, OrderBundle
from lab_sandbox.references import parse_reference
from lab_sandbox.rule_helpers import ContractLink, find_code, find_contract_links, reference_text
from lab_sandbox.search_index import as_list, identifier_value

FOLLOW_UP_STUDY = "190.1558"
FOLLOW_UP_NUMBER_PATTERN = re.compile(r"[0-9]{5}-[A-Za-z0-9]{5}-[0-9]{8}")


def check_order(bundle: OrderBundle, config: SandboxConfig, caller: Counterparty, problems: Problems) -> Contract | None:
    """Checks the order as a whole; returns its contract if there is exactly one and it is the caller's."""
    _check_counts(bundle, problems)
    _check_requisition(bundle, problems)
    _check_tasks(bundle, config, problems)
    _check_patient(bundle, config, problems)
    _check_follow_up(bundle, config, problems)
    return _check_contract(bundle, config, caller, problems)


def _check_counts(bundle: OrderBundle, problems: Problems) -> None:
    for kind in ("ProcedureRequest", "Specimen"):
        if not bundle.of_type(kind):
            problems.add("Bundle.entry", "order-counts", f"at least one {kind} is required", "required")
    if len(bundle.order_tasks()) != 1:
        problems.add(
            "Bundle.entry",
            "order-counts",
            f"exactly one order-level Task is required, found {len(bundle.order_tasks())}",
            "required",
        )


def _check_requisition(bundle: OrderBundle, problems: Problems) -> None:
    """Order rule 1: all ProcedureRequests of one order share the same requisition."""
    lines = bundle.of_type("ProcedureRequest")
    values = [identifier_value(line.resource.get("requisition")) for line in lines]
    for line, value in zip(lines, values, strict=True):
        if value is None or value.startswith("|") or value.endswith("|"):
            problems.add(f"{line.element}.requisition", "requisition", "required, with system and value", "required")
        elif value != values[0]:
            problems.add(
                f"{line.element}.requisition", "one-requisition", "must be the same in all ProcedureRequests of an order"
            )


def _check_contract(bundle: OrderBundle, config: SandboxConfig, caller: Counterparty, problems: Problems) -> Contract | None:
    """Order rule 1: the same contract and the same contract-link type in all ProcedureRequests."""
    links: list[ContractLink] = []
    for line in bundle.of_type("ProcedureRequest"):
        element = f"{line.element}.supportingInfo"
        found = find_contract_links(line.resource, config)
        if len(found) != 1:
            problems.add(element, "contract-link", f"exactly one contract link is required, found {len(found)}", "required")
        links += found[:1]
        for link in found[:1]:
            _check_link(link, links[0], element, caller, problems)
    contracts = {link.contract for link in links}
    contract = contracts.pop() if len(contracts) == 1 else None
    return contract if contract is not None and contract.partner == caller.guid else None


def _check_link(link: ContractLink, first: ContractLink, element: str, caller: Counterparty, problems: Problems) -> None:
    if link.contract is None:
        problems.add(element, "contract-known", f"unknown contract {link.contract_key}", "not-found")
    elif link.contract.partner != caller.guid:
        problems.add(element, "contract-party", f"{link.contract_key} is a contract of other parties", "forbidden")
    if link.link_type != first.link_type:
        problems.add(
            element,
            "one-contract-link-type",
            "the type of the contract link must be the same in all ProcedureRequests of an order",
        )
    elif link.contract_key != first.contract_key:
        problems.add(element, "one-contract", "the contract must be the same in all ProcedureRequests of an order")


def _check_tasks(bundle: OrderBundle, config: SandboxConfig, problems: Problems) -> None:
    for task in bundle.of_type("Task"):
        if task.resource.get("status") != "requested":
            problems.add(f"{task.element}.status", "task-requested", "must be requested on creation", "value")
    for task in bundle.order_tasks():
        _check_order_task(task, config, problems)
    parents = [one.full_url for one in bundle.order_tasks()[:1]]
    task_counts = Counter(_find_line(task, bundle, parents, problems) for task in bundle.line_tasks())
    for line in bundle.of_type("ProcedureRequest"):
        if task_counts[line.full_url] != 1:
            text = f"exactly one Task for this ProcedureRequest is required, found {task_counts[line.full_url]}"
            problems.add(line.element, "one-task-per-line", text, "required")


def _find_line(task: BundleEntry, bundle: OrderBundle, parents: list[str], problems: Problems) -> str | None:
    """The local address of the ProcedureRequest that a Task is based on, or None."""
    if list(_local_references(task.resource, "partOf")) != parents:
        problems.add(f"{task.element}.partOf", "task-part-of", "required, a reference to the order-level Task", "required")
    based_on = list(_local_references(task.resource, "basedOn"))
    if len(based_on) == 1 and bundle.find(based_on[0], "ProcedureRequest"):
        return based_on[0]
    text = "required, a reference to one ProcedureRequest of the order"
    problems.add(f"{task.element}.basedOn", "task-based-on", text, "required")
    return None


def _check_order_task(task: BundleEntry, config: SandboxConfig, problems: Problems) -> None:
    if find_code(task.resource.get("code"), config.system("task_type")) is None:
        problems.add(f"{task.element}.code", "task-type-system", f"must have a code in {config.system('task_type')}")
    for position, option in enumerate(as_list(task.resource.get("input"))):
        element = f"{task.element}.input[{position}]"
        code = find_code(option.get("type"), config.lab_system("notification")) if isinstance(option, dict) else None
        if code is not None and (code not in {"sms", "email"} or not isinstance(option.get("valueBoolean"), bool)):
            problems.add(element, "task-notification", "must have the code sms or email, and valueBoolean")


def _check_patient(bundle: OrderBundle, config: SandboxConfig, problems: Problems) -> None:
    """Laboratory-side counts per order: Patient 1..1."""
    subjects = [
        (entry, _patient_key(entry.resource.get("subject"), config))
        for entry in [*bundle.of_type("ProcedureRequest"), *bundle.of_type("Specimen")]
    ]
    for entry, subject in subjects:
        if subject is None:
            problems.add(f"{entry.element}.subject", "subject", "required, a reference patient/<id>", "required")
        elif subject != subjects[0][1]:
            problems.add(f"{entry.element}.subject", "one-patient", "must be the same patient in all resources of an order")
    for answers in bundle.of_type("QuestionnaireResponse"):
        source = _patient_key(answers.resource.get("source"), config)
        if source is None:
            problems.add(f"{answers.element}.source", "answers-source", "required, a reference to the patient", "required")
        elif subjects and source != subjects[0][1]:
            problems.add(f"{answers.element}.source", "one-patient", "must be the same patient in all resources of an order")


def _patient_key(node: object, config: SandboxConfig) -> str | None:
    """The patient that a reference leads to, in one form for all its spellings: a key, or a global identifier."""
    text = reference_text(node)
    if text is None:
        return identifier_value(_reference_identifier(node))
    ref = parse_reference(text, config.own_addresses)
    return ref.key() if ref is not None else text


def _check_follow_up(bundle: OrderBundle, config: SandboxConfig, problems: Problems) -> None:
    """Order rule 4: if only study 190.1558 is ordered, basedOn has the number of the earlier order."""
    lines = bundle.of_type("ProcedureRequest")
    studies = {find_code(line.resource.get("code"), config.system("nomenclature")) for line in lines}
    if studies != {FOLLOW_UP_STUDY}:
        return
    system = config.lab_system("mis")
    for line in lines:
        numbers = [
            str(one.get("value"))
            for one in map(_reference_identifier, as_list(line.resource.get("basedOn")))
            if one.get("system") == system
        ]
        if not any(FOLLOW_UP_NUMBER_PATTERN.fullmatch(number) for number in numbers):
            text = f"required, the number of the earlier order in {system}, as 00000-XXXXX-00000000"
            problems.add(f"{line.element}.basedOn", "follow-up-number", text, "required")


def _reference_identifier(node: object) -> Json:
    identifier = node.get("identifier") if isinstance(node, dict) else None
    return identifier if isinstance(identifier, dict) else {}


def _local_references(resource: Json, name: str) -> Iterable[str]:
    return (str(reference_text(one)).lower() for one in as_list(resource.get(name)))

"""The rules of an order as a whole: counts, one requisition, one contract, one patient, one Task for each line.

Source: "Create order", order rules 1, 3 and 4, and the tables of "Resources".
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from lab_sandbox.config import Contract, Counterparty, SandboxConfig
from lab_sandbox.errors import Problems
from lab_sandbox.exact_json import Json
from lab_sandbox.order_bundle import BundleEntry, OrderBundle
from lab_sandbox.resource_rules import FOLLOW_UP_STUDY, OLD_ORDER_NUMBER_FORM, check_order_resource
from lab_sandbox.rule_helpers import (
    Checker,
    ContractLink,
    find_code,
    find_contract_links,
    find_identifier_value,
    is_instant,
    objects_in,
    patient_key,
    reference_text,
)
from lab_sandbox.search_index import as_list, identifier_value

SECOND_BARCODES = {"042.036": "0000-0000", "042.075": "0000-0000", "042.076": "000-000-000"}
"""Order rule 3: studies that need a second barcode, and its form."""


def check_order(bundle: OrderBundle, config: SandboxConfig, caller: Counterparty, problems: Problems) -> Contract | None:
    """Checks every resource and the order as a whole; returns its contract if there is exactly one and it is the caller's."""
    for entry in bundle.entries:
        check_order_resource(entry.type, entry.resource, entry.element, config, problems)
    _check_counts(bundle, problems)
    _check_requisition(bundle, problems)
    _check_tasks(bundle, problems)
    _check_patient(bundle, config, problems)
    _check_local_references(bundle, problems)
    _check_follow_up(bundle, config, problems)
    for line in bundle.of_type("ProcedureRequest"):
        _check_second_barcodes(line, bundle, config, problems)
        _check_sample_times(line, bundle, config, problems)
    return _check_contract(bundle, config, caller, problems)


def _check_counts(bundle: OrderBundle, problems: Problems) -> None:
    for kind in ("ProcedureRequest", "Specimen"):
        if not bundle.of_type(kind):
            problems.add("Bundle.entry", "order-counts", f"at least one {kind} is required", "required")
    count = len(bundle.order_tasks())
    if count != 1:
        problems.add("Bundle.entry", "order-counts", f"exactly one order-level Task is required, found {count}", "required")


def _check_requisition(bundle: OrderBundle, problems: Problems) -> None:
    """Order rule 1: all ProcedureRequests of one order share the same requisition."""
    lines = bundle.of_type("ProcedureRequest")
    for line in lines:
        is_same = identifier_value(line.resource.get("requisition")) == identifier_value(lines[0].resource.get("requisition"))
        text = "must be the same in all ProcedureRequests of an order"
        Checker(line.element, problems).expect(is_same, "requisition", "one-requisition", text)


def _check_contract(bundle: OrderBundle, config: SandboxConfig, caller: Counterparty, problems: Problems) -> Contract | None:
    """Order rule 1: the same contract and the same contract-link type in all ProcedureRequests."""
    links: list[ContractLink] = []
    for line in bundle.of_type("ProcedureRequest"):
        element = f"{line.element}.supportingInfo"
        for link in find_contract_links(line.resource, config)[:1]:
            links.append(link)
            _check_link(link, links[0], element, caller, problems)
    contracts = {link.contract for link in links}
    contract = contracts.pop() if len(contracts) == 1 else None
    return contract if contract is not None and contract.partner == caller.guid else None


def _check_link(link: ContractLink, first: ContractLink, element: str, caller: Counterparty, problems: Problems) -> None:
    if link.contract is None:
        problems.add(element, "contract-known", f"unknown contract {link.contract_key}", "not-found")
    elif link.contract.partner != caller.guid:
        problems.add(element, "contract-party", f"{link.contract_key} is a contract of other parties", "forbidden")
    text = "must be the same in all ProcedureRequests of an order"
    if link.link_type != first.link_type:
        problems.add(element, "one-contract-link-type", f"the type of the contract link {text}")
    elif link.contract_key != first.contract_key:
        problems.add(element, "one-contract", f"the contract {text}")


def _check_tasks(bundle: OrderBundle, problems: Problems) -> None:
    for task in bundle.of_type("Task"):
        is_new = task.resource.get("status") == "requested"
        Checker(task.element, problems).expect(is_new, "status", "task-requested", "must be requested on creation", "value")
    parents = [one.full_url for one in bundle.order_tasks()[:1]]
    task_counts = Counter(_find_line(task, bundle, parents, problems) for task in bundle.line_tasks())
    for line in bundle.of_type("ProcedureRequest"):
        if task_counts[line.full_url] != 1:
            text = f"exactly one Task for this ProcedureRequest is required, found {task_counts[line.full_url]}"
            problems.add(line.element, "one-task-per-line", text, "required")


def _find_line(task: BundleEntry, bundle: OrderBundle, parents: list[str], problems: Problems) -> str | None:
    """The local address of the ProcedureRequest that a Task is based on, or None."""
    check = Checker(task.element, problems)
    part_of, based_on = (list(_local_references(task.resource, name)) for name in ("partOf", "basedOn"))
    is_line = len(based_on) == 1 and bundle.find(based_on[0], "ProcedureRequest")
    check.expect(part_of in ([], parents), "partOf", "task-part-of", "must be a reference to the order-level Task of the order")
    check.expect(is_line or not based_on, "basedOn", "task-based-on", "must be a reference to one ProcedureRequest of the order")
    return based_on[0] if is_line else None


def _check_patient(bundle: OrderBundle, config: SandboxConfig, problems: Problems) -> None:
    """Laboratory-side counts per order: Patient 1..1."""
    named = [(entry, "subject") for kind in ("ProcedureRequest", "Specimen") for entry in bundle.of_type(kind)]
    named += [(entry, "source") for entry in bundle.of_type("QuestionnaireResponse")]
    patients = [patient_key(entry.resource.get(name), config) for entry, name in named]
    for (entry, name), patient in zip(named, patients, strict=True):
        is_same = patient in {patients[0], None}
        text = "must be the same patient in all resources of an order"
        Checker(entry.element, problems).expect(is_same, name, "one-patient", text)


def _check_local_references(bundle: OrderBundle, problems: Problems) -> None:
    """Specimens and answers belong to the order."""
    for line in bundle.of_type("ProcedureRequest"):
        for path, one in objects_in(line.resource, "specimen"):
            found, text = bundle.find(reference_text(one), "Specimen"), "must be a reference to a Specimen of the order"
            Checker(line.element, problems).expect(found, path, "line-specimen", text)
    for answers in bundle.of_type("QuestionnaireResponse"):
        found, text = bundle.find(reference_text(answers.resource.get("subject")), "ProcedureRequest"), "must be one of the order"
        Checker(answers.element, problems).expect(found, "subject", "answers-subject", text)


def _check_follow_up(bundle: OrderBundle, config: SandboxConfig, problems: Problems) -> None:
    """Order rule 4: if only study 190.1558 is ordered, basedOn has the number of the earlier order."""
    lines = bundle.of_type("ProcedureRequest")
    if {study_of(line, config) for line in lines} == {FOLLOW_UP_STUDY}:
        for line in lines:
            text = f"the number of the earlier order in {config.lab_system('mis')}, as {OLD_ORDER_NUMBER_FORM}"
            Checker(line.element, problems).require(as_list(line.resource.get("basedOn")), "basedOn", "follow-up-number", text)


def _check_second_barcodes(line: BundleEntry, bundle: OrderBundle, config: SandboxConfig, problems: Problems) -> None:
    """Order rule 3: every container of the study has the laboratory's barcode and a second one in the study's form."""
    form = SECOND_BARCODES.get(study_of(line, config) or "")
    if form is None:
        return
    labels, seconds, pattern = config.lab_system("labels"), config.second_labels_system, form.replace("0", "[0-9]")
    for specimen in specimens_of(line, bundle):
        for path, box in objects_in(specimen.resource, "container"):
            values = [str(one.get("value")) for _, one in objects_in(box, "identifier") if one.get("system") == seconds]
            both = find_identifier_value(box.get("identifier"), labels) and any(re.fullmatch(pattern, one) for one in values)
            text = f"two barcodes for study {study_of(line, config)}, {labels} and {seconds} as {form}"
            Checker(specimen.element, problems).require(both, f"{path}.identifier", "two-barcodes", text)


def _check_sample_times(line: BundleEntry, bundle: OrderBundle, config: SandboxConfig, problems: Problems) -> None:
    """Glucose tolerance tests: every sample has its time, and those of one biomaterial have different ones, in a sequence."""
    if study_of(line, config) not in config.tolerance_tests:
        return
    taken: set[tuple[str | None, datetime]] = set()
    for specimen in specimens_of(line, bundle):
        collection = specimen.resource.get("collection")
        text = collection.get("collectedDateTime") if isinstance(collection, dict) else None
        check, path = Checker(specimen.element, problems), "collection.collectedDateTime"
        check.require(text, path, "sample-time", f"the time of this sample of tolerance test {study_of(line, config)}")
        if is_instant(text):
            sample = find_code(specimen.resource.get("type"), config.system("specimen-type")), datetime.fromisoformat(str(text))
            check.expect(sample not in taken, path, "sample-time", "must differ from that of the other samples of the test")
            taken.add(sample)


def study_of(line: BundleEntry, config: SandboxConfig) -> str | None:
    """The nomenclature code of a ProcedureRequest."""
    return find_code(line.resource.get("code"), config.system("nomenclature"))


def specimens_of(line: BundleEntry, bundle: OrderBundle) -> Iterator[BundleEntry]:
    """The Specimens of the order that a ProcedureRequest names."""
    for _, one in objects_in(line.resource, "specimen"):
        specimen = bundle.find(reference_text(one), "Specimen")
        if specimen is not None:
            yield specimen


def _local_references(resource: Json, name: str) -> Iterable[str]:
    return (str(reference_text(one)).lower() for one in as_list(resource.get(name)))

"""Rules about the order as a whole: its counts, its references, its requisition, its contract, its patient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from lab_agent.domain.received import Link, subject_key
from lab_agent.domain.systems import SystemMatch
from lab_agent.rules.case import Case, coding_of
from lab_agent.rules.catalogue_view import CatalogueView
from lab_agent.rules.rule import Problem, Rule, Severity

_TYPES = {"subject": "Patient", "specimen": "Specimen", "basedOn": "ProcedureRequest"}


def _has_lines(case: Case) -> Iterator[Problem]:
    if not case.order.lines:
        yield Problem(case.order.task.where)


def _task_code(case: Case) -> Iterator[Problem]:
    coding = coding_of(case.order.task.code.coding, case.facts.systems.task_type)
    fits = coding and coding.code == "OrderProcessingTask"
    if not fits or case.facts.systems.task_type.match(coding.system if coding else None) is not SystemMatch.EXACT:
        yield Problem(f"{case.order.task.where}.code")


def _elsewhere(case: Case) -> bool:
    """Whether every line is based on a resource of another origin: then our own base_url is more likely wrong (law 10)."""
    links = [link for line in case.order.lines for link in line.task.based_on]
    return bool(links) and all(link.foreign for link in links)


def _address(case: Case) -> Iterator[Problem]:
    if _elsewhere(case):
        yield Problem("Task.basedOn")


def _line_based_on(case: Case) -> Iterator[Problem]:
    for line in case.order.lines if not _elsewhere(case) else ():
        targets = {link.target for link in line.task.based_on}
        right = [target for target in targets if target and target.type == "ProcedureRequest"]
        if len(right) != 1 or len(targets) != 1:
            yield Problem(f"{line.task.where}.basedOn", (line.id,), {"count": str(len(right))})


def _one_task_per_request(case: Case) -> Iterator[Problem]:
    seen = set()
    for line, request in case.lines():
        if request.ref in seen:
            yield Problem(f"{line.task.where}.basedOn", (line.id,), {"request": str(request.ref)})
        seen.add(request.ref)


def _line_part_of(case: Case) -> Iterator[Problem]:
    for line in case.order.lines:
        if case.order.task.ref not in {link.target for link in line.task.part_of}:
            yield Problem(f"{line.task.where}.partOf", (line.id,))


def _reference_form(case: Case) -> Iterator[Problem]:
    for line, request in case.lines():
        links = (*((request.subject,) if request.subject else ()), *request.specimens)
        yield from (Problem(link.where, (line.id,)) for link in links if _misled(link))


def _misled(link: Link) -> bool:
    """Whether a reference leads nowhere, elsewhere, or to a resource of another type; an identifier alone is another matter."""
    if link.text is None:
        return link.identifier is None
    field = link.where.rsplit(".", 1)[-1].split("[", 1)[0]
    return link.target is None or link.target.type != _TYPES.get(field, link.target.type)


def _readable(case: Case) -> Iterator[Problem]:
    for ref, why in case.order.unreadable:
        yield Problem(str(ref), values={"reason": f"{why.reason} ({why.status})" if why.status else why.reason})
    yield from (Problem(str(ref), values={"reason": "it has not been read yet"}) for ref in case.order.unread)


def _has_specimens(case: Case) -> Iterator[Problem]:
    if not case.order.lines or any(request.specimens for _, request in case.lines()):
        return
    known = list(case.known_lines())
    needless = [not any(item.requirements for item in items) for _, _, items in known]
    if len(known) == len(list(case.lines())) and all(needless):
        return
    yield Problem("Specimen")


def _requisition_present(case: Case) -> Iterator[Problem]:
    for line, request in case.lines():
        if request.requisition is None:
            yield Problem(f"{request.where}.requisition", (line.id,))


def _one_requisition(case: Case) -> Iterator[Problem]:
    found = {request.requisition for _, request in case.lines() if request.requisition}
    if len(found) > 1:
        yield Problem("ProcedureRequest.requisition", values={"count": str(len(found))})


def _contract_present(case: Case) -> Iterator[Problem]:
    for line, request in case.lines():
        if not case.contract_links(request):
            yield Problem(f"{request.where}.supportingInfo", (line.id,))


def _links(case: Case) -> Iterator[Link]:
    for _, request in case.lines():
        yield from case.contract_links(request)


def _one_contract(case: Case) -> Iterator[Problem]:
    found = {case.contract_code(link) or str(link.target) for link in _links(case)}
    if len(found) > 1:
        yield Problem("ProcedureRequest.supportingInfo", values={"count": str(len(found))})


def _one_contract_link(case: Case) -> Iterator[Problem]:
    if len({link.target is not None for link in _links(case)}) > 1:
        yield Problem("ProcedureRequest.supportingInfo")


def _contract_system(case: Case) -> Iterator[Problem]:
    system = case.facts.systems.contract
    for line, request in case.lines():
        for link in case.contract_links(request):
            if link.target is None and link.identifier and system.match(link.identifier.system) is not SystemMatch.EXACT:
                yield Problem(f"{link.where}.identifier.system", (line.id,), {"system": system.address})


def _contract_known(case: Case) -> Iterator[Problem]:
    unknown = [link for link in _links(case) if case.contract_code(link) not in case.facts.contracts]
    names = dict.fromkeys(case.contract_code(link) or str(link.target) for link in unknown)
    yield from (Problem("ProcedureRequest.supportingInfo", values={"contract": name}) for name in names)


def _catalogue_readable(case: Case) -> Iterator[Problem]:
    contract = case.contract()
    if case.catalogue is None or (contract is not None and not case.catalogue.offers(contract)):
        yield Problem("catalogue", values={"contract": contract or "?"})
    elif contract is not None and _may_be_of_an_unread_one(case, case.catalogue, contract):
        yield Problem("a catalogue version of that time, which cannot be read", values={"contract": contract})


def _may_be_of_an_unread_one(case: Case, catalogue: CatalogueView, contract: str) -> bool:
    unknown = (request for _, request in case.lines() if not case.items(request))
    return any(catalogue.may_have_seen_unread(contract, case.ordered_at(request)) for request in unknown)


def _one_patient(case: Case) -> Iterator[Problem]:
    subjects = Counter(key for _, request in case.lines() if (key := subject_key(request.subject)))
    if len(subjects) > 1:
        yield Problem("ProcedureRequest.subject", values={"count": str(len(subjects))})


def _shape(case: Case) -> Iterable[Problem]:
    return (Problem(flaw.where, values={"what": flaw.what}) for flaw in case.order.flaws)


_REFERENCES = "Resources and their fields: ProcedureRequest, Task"
RULES = (
    Rule(
        id="order.has-lines",
        severity=Severity.HOLD,
        section="Task: laboratory-side counts per order",
        check=_has_lines,
        message="{where}: no ProcedureRequest-level Task of this order can be found. Send one Task for each ProcedureRequest, "
        "part of this Task, and give the laboratory the right to read it.",
        may_refuse=True,
    ),
    Rule(
        id="order.task-code",
        severity=Severity.WARN,
        section="Task: order-level Task",
        check=_task_code,
        message="{where}: is not the code OrderProcessingTask in its system as the interface writes it. Send it so.",
    ),
    Rule(
        id="order.line-based-on",
        severity=Severity.REFUSE,
        section="Task: ProcedureRequest-level Task",
        check=_line_based_on,
        message="{where}: must refer to exactly one ProcedureRequest, and refers to {count}. Send one Task for each "
        "ProcedureRequest.",
    ),
    Rule(
        id="order.one-task-per-request",
        severity=Severity.REFUSE,
        section="Task: a bundle has one Task per ProcedureRequest",
        check=_one_task_per_request,
        message="{where}: another Task of this order is based on {request} already. Send one Task for each ProcedureRequest.",
    ),
    Rule(
        id="order.line-part-of",
        severity=Severity.WARN,
        section="Task: ProcedureRequest-level Task",
        check=_line_part_of,
        message="{where}: does not refer to the order-level Task. Send that reference.",
    ),
    Rule(
        id="order.reference-form",
        severity=Severity.REFUSE,
        section=_REFERENCES,
        check=_reference_form,
        message="{where}: the reference names no resource of the right type on this service. Refer to the resource as the "
        "service saved it.",
    ),
    Rule(
        id="order.address",
        severity=Severity.HOLD,
        section=_REFERENCES,
        check=_address,
        message="{where}: every reference leads to another address than the service's. The laboratory looks whether "
        "[exchange] base_url is the address that the service writes; if so, refer to resources of this service.",
        may_refuse=True,
    ),
    Rule(
        id="order.readable",
        severity=Severity.HOLD,
        section="Authentication: resource rights",
        check=_readable,
        message="{where}: the laboratory cannot read it: {reason}. Give the laboratory the right to read it.",
        may_refuse=True,
    ),
    Rule(
        id="order.has-specimens",
        severity=Severity.REFUSE,
        section="Task: laboratory-side counts per order",
        check=_has_specimens,
        message="{where}: the order has no Specimen. Send the order with the Specimens of its tests.",
    ),
    Rule(
        id="order.requisition",
        severity=Severity.REFUSE,
        section="ProcedureRequest: requisition",
        check=_requisition_present,
        message="{where}: is missing. Send one requisition (system and value), the same in every ProcedureRequest of the order.",
    ),
    Rule(
        id="order.one-requisition",
        severity=Severity.REFUSE,
        section="Create order: rule 1",
        check=_one_requisition,
        message="{where}: the order has {count} different requisitions. Send the same system and value in every "
        "ProcedureRequest, or send separate orders.",
    ),
    Rule(
        id="order.contract",
        severity=Severity.REFUSE,
        section="ProcedureRequest: supportingInfo",
        check=_contract_present,
        message="{where}: names no contract. Send the contract, by reference or by identifier.",
    ),
    Rule(
        id="order.one-contract",
        severity=Severity.REFUSE,
        section="Create order: rule 1",
        check=_one_contract,
        message="{where}: the order names {count} contracts. Send one order for each contract.",
    ),
    Rule(
        id="order.one-contract-link",
        severity=Severity.REFUSE,
        section="Create order: rule 1",
        check=_one_contract_link,
        message="{where}: the contract is named by reference in one place and by identifier in another. Use one way in the "
        "whole order.",
    ),
    Rule(
        id="order.contract-system",
        severity=Severity.WARN,
        section="ProcedureRequest: supportingInfo",
        check=_contract_system,
        message="{where}: is not written as the interface writes it. Send {system}.",
    ),
    Rule(
        id="order.contract-known",
        severity=Severity.HOLD,
        section="ProcedureRequest: supportingInfo",
        check=_contract_known,
        message="{where}: contract {contract} is not set up here. The laboratory looks whether it should be "
        "([exchange.contracts]); if not, send the contract code that was agreed.",
    ),
    Rule(
        id="order.catalogue",
        severity=Severity.HOLD,
        section="What the service does: the laboratory provides the nomenclature",
        check=_catalogue_readable,
        message="{where}: there is no catalogue here, or it offers nothing for contract {contract}. The laboratory loads its "
        "catalogue; the order waits.",
    ),
    Rule(
        id="order.one-patient",
        severity=Severity.REFUSE,
        section="Task: laboratory-side counts per order",
        check=_one_patient,
        message="{where}: the order is for {count} patients. Send one order for each patient.",
    ),
    Rule(
        id="order.shape",
        severity=Severity.WARN,
        section="Resources and their fields",
        check=_shape,
        message="{where}: {what}, so it was left out. Send it in the type that the interface shows.",
    ),
)

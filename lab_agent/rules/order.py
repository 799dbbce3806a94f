"""Rules about the order as a whole: its Tasks, references, requisition, contract, catalogue and patient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from lab_agent.fhir.received_order import ReceivedRequest, ReferenceText, patient_key
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.rules.context import RuleContext, best_coding
from lab_agent.rules.rule import Severity, Violation, rule
from lab_agent.shared.code_systems import SystemMatch
from lab_agent.shared.text import address_origin

_REFERENCES_SECTION = "Resources and their fields: ProcedureRequest, Task"


@rule(
    "order.has-lines",
    Severity.HOLD,
    "Task: laboratory-side counts per order",
    "{where}: no ProcedureRequest-level Task of this order was found. Please send one Task for each ProcedureRequest, with "
    "this Task as its partOf, and grant the laboratory the right to read it.",
    may_refuse=True,
)
def _check_has_lines(context: RuleContext) -> Iterator[Violation]:
    if not context.order.lines:
        yield Violation(context.order.task.where)


@rule(
    "order.task-code",
    Severity.WARN,
    "Task: order-level Task",
    "{where}: the code must be OrderProcessingTask, in the system that the interface defines. Please send both.",
)
def _check_task_code(context: RuleContext) -> Iterator[Violation]:
    coding = best_coding(context.order.task.code.coding, context.facts.systems.task_type)
    system = context.facts.systems.task_type
    if not (coding and coding.code == "OrderProcessingTask" and system.match(coding.system) is SystemMatch.EXACT):
        yield Violation(f"{context.order.task.where}.code")


@rule(
    "order.line-based-on",
    Severity.REFUSE,
    "Task: ProcedureRequest-level Task",
    "{where}: a Task must refer to exactly one ProcedureRequest, and this one refers to {count}. Please send one Task for "
    "each ProcedureRequest.",
)
def _check_line_based_on(context: RuleContext) -> Iterator[Violation]:
    for line in context.order.lines:
        if any(reference.is_unusable for reference in line.task.based_on):
            continue  # the matter of order.address, or of order.readable
        targets = {reference.target for reference in line.task.based_on}
        right = [target for target in targets if target and target.type == "ProcedureRequest"]
        if len(right) != 1 or len(targets) != 1:
            yield Violation(f"{line.task.where}.basedOn", (line.id,), {"count": str(len(right))})


@rule(
    "order.one-task-per-request",
    Severity.REFUSE,
    "Task: a bundle has one Task per ProcedureRequest",
    "{where}: another Task of this order is already based on {request}. Please send only one Task for each ProcedureRequest.",
)
def _check_one_task_per_request(context: RuleContext) -> Iterator[Violation]:
    seen = set()
    for line, request in context.lines_with_requests():
        if request.ref in seen:
            yield Violation(f"{line.task.where}.basedOn", (line.id,), {"request": str(request.ref)})
        seen.add(request.ref)


@rule(
    "order.line-part-of",
    Severity.WARN,
    "Task: ProcedureRequest-level Task",
    "{where}: the reference to the order-level Task is missing. Please add it.",
)
def _check_line_part_of(context: RuleContext) -> Iterator[Violation]:
    for line in context.order.lines:
        if context.order.task.ref not in {reference.target for reference in line.task.part_of}:
            yield Violation(f"{line.task.where}.partOf", (line.id,))


@rule(
    "order.reference-form",
    Severity.REFUSE,
    _REFERENCES_SECTION,
    "{where}: the reference does not lead to a resource of the right type on this service. Please refer to the resource as "
    "the service saved it.",
)
def _check_reference_form(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        if request.subject and _is_invalid_reference(request.subject, "Patient"):
            yield Violation(request.subject.where, (line.id,))
        invalid = (each for each in request.specimens if _is_invalid_reference(each, "Specimen"))
        yield from (Violation(each.where, (line.id,)) for each in invalid)


def _is_invalid_reference(reference: ReferenceText, wanted: str) -> bool:
    """Whether a reference leads nowhere, or to a resource of another type.

    An identifier alone is for other rules, and so are an address elsewhere (order.address) and an id that cannot be part of an
    address (order.readable).
    """
    if reference.text is None:
        return reference.identifier is None
    if reference.is_unusable:
        return False
    return reference.target is None or reference.target.type != wanted


@rule(
    "order.address",
    Severity.HOLD,
    _REFERENCES_SECTION,
    "{where}: the reference leads to {origin}, and the laboratory knows the service as {service}. The laboratory checks its "
    "own setting ([exchange] base_url); if that is right, please refer to resources of this service.",
    may_refuse=True,
)
def _check_address(context: RuleContext) -> Iterator[Violation]:
    """An address elsewhere may be this service under another name (`http` for `https`, `localhost`): our fault (law 10)."""
    service = address_origin(context.facts.systems.base_url)
    places: dict[str, str] = {}
    for reference in _references(context):
        if reference.text and reference.is_foreign:
            places.setdefault(address_origin(reference.text), reference.where)
    for origin, where in places.items():
        yield Violation(where, values={"origin": origin, "service": service})


def _references(context: RuleContext) -> Iterator[ReferenceText]:
    """Every reference of the order that anything here depends on."""
    for line in context.order.lines:
        yield from line.task.based_on
    for request in context.order.requests:
        links = () if context.contract_references(request) else request.supporting_info
        yield from filter(None, (request.subject, *request.specimens, *links))
    yield from filter(None, (specimen.subject for specimen in context.order.specimens))
    yield from filter(None, (response.source for response in context.order.responses or ()))


@rule(
    "order.readable",
    Severity.HOLD,
    "Authentication: resource rights",
    "{where}: the laboratory cannot read this resource: {reason}. Please grant the laboratory the right to read it.",
    may_refuse=True,
)
def _check_readable(context: RuleContext) -> Iterator[Violation]:
    for ref, why in context.order.unreadable:
        yield Violation(str(ref), values={"reason": why.reason})
    yield from (Violation(str(ref), values={"reason": "it has not been read yet"}) for ref in context.order.not_fetched)
    unaddressable = (each for each in _references(context) if each.is_unaddressable)
    yield from (Violation(each.where, values={"reason": "its id cannot be part of an address"}) for each in unaddressable)


@rule(
    "order.has-specimens",
    Severity.REFUSE,
    "Task: laboratory-side counts per order",
    "{where}: the order has no Specimen. Please send the order with the Specimens of its tests.",
)
def _check_has_specimens(context: RuleContext) -> Iterator[Violation]:
    if not context.order.lines or any(request.specimens for _, request in context.lines_with_requests()):
        return
    known = list(context.known_lines())
    needs_none = [not any(item.requirements for item in items) for _, _, items in known]
    if len(known) < len(list(context.lines_with_requests())) or not all(needs_none):
        yield Violation("Specimen")


@rule(
    "order.requisition",
    Severity.REFUSE,
    "ProcedureRequest: requisition",
    "{where}: the requisition is missing. Please send one requisition (system and value), the same in every "
    "ProcedureRequest of the order.",
)
def _check_requisition(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        if request.requisition is None:
            yield Violation(f"{request.where}.requisition", (line.id,))


@rule(
    "order.one-requisition",
    Severity.REFUSE,
    "Create order: rule 1",
    "{where}: the order has {count} different requisitions. Please send the same system and value in every "
    "ProcedureRequest, or send separate orders.",
)
def _check_one_requisition(context: RuleContext) -> Iterator[Violation]:
    found = {request.requisition for _, request in context.lines_with_requests() if request.requisition}
    if len(found) > 1:
        yield Violation("ProcedureRequest.requisition", values={"count": str(len(found))})


@rule(
    "order.contract",
    Severity.REFUSE,
    "ProcedureRequest: supportingInfo",
    "{where}: no contract is named. Please name the contract, by reference or by identifier.",
)
def _check_contract(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        if not context.contract_references(request) and not _unrecognized_links(context, request):
            yield Violation(f"{request.where}.supportingInfo", (line.id,))


def _unrecognized_links(context: RuleContext, request: ReceivedRequest) -> tuple[ReferenceText, ...]:
    """What in supportingInfo may be a contract link that our own settings hide: an address elsewhere, or a foreign system."""
    others = (link for link in request.supporting_info if link not in context.contract_references(request))
    return tuple(link for link in others if link.is_unusable or (link.target is None and link.identifier is not None))


@rule(
    "order.contract-system-known",
    Severity.HOLD,
    "ProcedureRequest: supportingInfo",
    "{where}: no contract is named in a system that the laboratory knows. The laboratory checks its own setting ([exchange] "
    "lab_codes_url); if that is right, please name the contract in the system {system}.",
    may_refuse=True,
)
def _check_contract_system_known(context: RuleContext) -> Iterator[Violation]:
    for _, request in context.lines_with_requests():
        links = [link for link in _unrecognized_links(context, request) if not link.is_unusable]
        if links and not context.contract_references(request):
            yield Violation(f"{request.where}.supportingInfo", values={"system": context.facts.systems.contract.url})


def _contract_references(context: RuleContext) -> Iterator[ReferenceText]:
    for _, request in context.lines_with_requests():
        yield from context.contract_references(request)


def _contract_names(context: RuleContext) -> Iterator[str]:
    """Every contract that the order may name: the reference and the identifier of one link may name different ones."""
    system = context.facts.systems.contract
    for _, request in context.lines_with_requests():
        for reference in context.possible_contract_references(request):
            identifier = reference.identifier
            if identifier is not None and system.match(identifier.system) is not SystemMatch.FOREIGN:
                yield identifier.value
            if code := context.contract_code(reference):
                yield code


@rule(
    "order.one-contract",
    Severity.REFUSE,
    "Create order: rule 1",
    "{where}: the order names {count} contracts. Please send a separate order for each contract.",
)
def _check_one_contract(context: RuleContext) -> Iterator[Violation]:
    """Only contracts that we know: what else is named may be the clinic's own number, or our own gap (order.contract-known)."""
    found = set(_contract_names(context)) & context.facts.known_contracts
    if len(found) > 1:
        yield Violation("ProcedureRequest.supportingInfo", values={"count": str(len(found))})


@rule(
    "order.one-contract-link",
    Severity.REFUSE,
    "Create order: rule 1",
    "{where}: the contract is named by reference in one place and by identifier in another. Please name it in the same way "
    "throughout the order.",
)
def _check_one_contract_link(context: RuleContext) -> Iterator[Violation]:
    if len({reference.target is not None for reference in _contract_references(context)}) > 1:
        yield Violation("ProcedureRequest.supportingInfo")


@rule(
    "order.contract-system",
    Severity.WARN,
    "ProcedureRequest: supportingInfo",
    "{where}: the system is not spelled as in the interface. Please send {system}.",
)
def _check_contract_system(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.contract
    for line, request in context.lines_with_requests():
        for reference in context.contract_references(request):
            identifier = reference.identifier
            named = identifier is not None and system.match(identifier.system) is not SystemMatch.FOREIGN
            if named and not context.names_contract_exactly(identifier):
                yield Violation(f"{reference.where}.identifier.system", (line.id,), {"system": system.url})


@rule(
    "order.contract-known",
    Severity.HOLD,
    "ProcedureRequest: supportingInfo",
    "{where}: contract {contract} is not set up at the laboratory. The laboratory checks whether it should be "
    "([exchange.contracts]); if not, please send the contract code that was agreed.",
)
def _check_contract_known(context: RuleContext) -> Iterator[Violation]:
    known, names = context.facts.known_contracts, dict[str, None]()
    for reference in _contract_references(context):
        code = context.contract_code(reference)
        names.setdefault(code or str(reference.target))
        if reference.identifier and context.names_contract_exactly(reference.identifier):
            names.setdefault(reference.identifier.value)
    yield from (Violation("ProcedureRequest.supportingInfo", values={"contract": name}) for name in names if name not in known)


@rule(
    "order.catalogue",
    Severity.HOLD,
    "What the service does: the laboratory provides the nomenclature",
    "{where}: the laboratory has no catalogue to check the order against, or its catalogue offers nothing for contract "
    "{contract}. The order waits until the laboratory has loaded its catalogue.",
)
def _check_catalogue(context: RuleContext) -> Iterator[Violation]:
    contract = context.contract
    if context.catalogue is None or (contract is not None and not context.catalogue.has_items_for(contract)):
        yield Violation("catalogue", values={"contract": contract or "?"})
    elif contract is not None and _may_be_in_unreadable_version(context, context.catalogue, contract):
        yield Violation("a catalogue version of that time, which cannot be read", values={"contract": contract})


def _may_be_in_unreadable_version(context: RuleContext, catalogue: CatalogueHistory, contract: str) -> bool:
    """Whether an unknown test may be one that the unreadable version offered: the fault would be ours (law 10)."""
    unknown = (request for _, request in context.lines_with_requests() if not context.items(request))
    return any(catalogue.may_include_unreadable(contract, context.catalogue_seen_at(request)) for request in unknown)


@rule(
    "order.one-patient",
    Severity.REFUSE,
    "Task: laboratory-side counts per order",
    "{where}: the order is for {count} patients. Please send a separate order for each patient.",
)
def _check_one_patient(context: RuleContext) -> Iterator[Violation]:
    subjects = Counter(key for _, request in context.lines_with_requests() if (key := patient_key(request.subject)))
    if len(subjects) > 1:
        yield Violation("ProcedureRequest.subject", values={"count": str(len(subjects))})


@rule(
    "order.shape",
    Severity.WARN,
    "Resources and their fields",
    "{where}: {what}, so the value was ignored. Please send it in the type that the interface shows.",
)
def _check_shape(context: RuleContext) -> Iterable[Violation]:
    return (Violation(each.where, values={"what": each.what}) for each in context.order.malformed_fields)

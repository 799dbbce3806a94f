"""Rules about one order line: its status, its test, its time, its turnaround, the studies with rules of their own.

Rules about the studies that the interface names (`catalogue.studies`; Create order: rules 3 and 4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lab_agent.catalogue import labels
from lab_agent.catalogue.model import Item
from lab_agent.catalogue.turnaround import Availability, Delayed, Stopped
from lab_agent.domain.code_systems import SystemMatch
from lab_agent.domain.label_pools import IdentifierPattern
from lab_agent.domain.received_order import ReceivedContainer, ReceivedLine, ReceivedRequest, patient_key
from lab_agent.rules.context import RuleContext, specimen_repeat_key
from lab_agent.rules.rule import Severity, Violation, rule

_CODE_SECTION = "ProcedureRequest: code"
_TURNAROUND_SECTION = "Turnaround item: rules"


@rule(
    "line.status",
    Severity.REFUSE,
    "ProcedureRequest: status",
    "{where}: is {status}, and must be active. Send active tests only.",
)
def _check_status(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        if request.status != "active":
            yield Violation(f"{request.where}.status", (line.id,), {"status": request.status or "missing"})


@rule(
    "line.subject",
    Severity.REFUSE,
    "ProcedureRequest: subject",
    "{where}: names no patient. Send the reference of the order's Patient.",
)
def _check_subject(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        if patient_key(request.subject) is None and not (request.subject and request.subject.text):
            yield Violation(f"{request.where}.subject", (line.id,))


@rule(
    "line.code",
    Severity.REFUSE,
    _CODE_SECTION,
    "{where}: names no test. Send the item code of the nomenclature.",
)
def _check_code(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        if context.item_coding(request) is None:
            yield Violation(f"{request.where}.code", (line.id,))


def _code_system_violations(context: RuleContext, *wanted: SystemMatch) -> Iterator[Violation]:
    system = context.facts.systems.nomenclature
    for line, request in context.lines_with_requests():
        coding = context.item_coding(request)
        if coding and system.match(coding.system) in wanted:
            yield Violation(f"{request.where}.code.coding", (line.id,), {"system": system.url})


@rule(
    "line.code-system",
    Severity.REFUSE,
    _CODE_SECTION,
    "{where}: the code is not from the nomenclature. Send a code of the system {system}.",
)
def _check_code_system(context: RuleContext) -> Iterator[Violation]:
    yield from _code_system_violations(context, SystemMatch.FOREIGN)


@rule(
    "line.code-system-spelling",
    Severity.WARN,
    _CODE_SECTION,
    "{where}: the system is not written as the interface writes it. Send {system}.",
)
def _check_code_system_spelling(context: RuleContext) -> Iterator[Violation]:
    yield from _code_system_violations(context, SystemMatch.SPELLED_DIFFERENTLY, SystemMatch.MISSING)


@rule(
    "line.item",
    Severity.REFUSE,
    _CODE_SECTION,
    "{where}: test {code} is not in the nomenclature of contract {contract}. Fetch the nomenclature again and choose "
    "a test from it.",
)
def _check_item(context: RuleContext) -> Iterator[Violation]:
    contract = context.contract()
    if context.catalogue is None or contract is None or not context.catalogue.has_items_for(contract):
        return
    for line, request in context.lines_with_requests():
        coding = context.item_coding(request)
        foreign = coding and context.facts.systems.nomenclature.match(coding.system) is SystemMatch.FOREIGN
        if coding and not foreign and not context.items(request):
            yield Violation(f"{request.where}.code", (line.id,), {"code": coding.code, "contract": contract})


@rule(
    "line.item-withdrawn",
    Severity.WARN,
    "Limits: the nomenclature may be cached for one day",
    "{where}: test {code} has been withdrawn from the nomenclature since. Fetch the nomenclature again.",
)
def _check_item_withdrawn(context: RuleContext) -> Iterator[Violation]:
    contract = context.contract()
    for line, request, items in context.known_lines():
        if context.catalogue and contract and context.catalogue.current_item(contract, items[0].id) is None:
            yield Violation(f"{request.where}.code", (line.id,), {"code": items[0].id})


def _availabilities(context: RuleContext) -> Iterator[tuple[ReceivedLine, ReceivedRequest, Item, Availability, Availability]]:
    """The turnaround of each test when it was ordered, and now."""
    contract = context.contract()
    for line, request, items in context.known_lines():
        if context.catalogue and contract:
            then = context.catalogue.availability(contract, items[0], context.ordered_at(request))
            yield line, request, items[0], then, context.catalogue.availability(contract, items[0], context.facts.now)


@rule(
    "line.stopped",
    Severity.REFUSE,
    _TURNAROUND_SECTION,
    "{where}: test {code} is not performed until {until}. Order it again then, or choose another test.",
)
def _check_stopped(context: RuleContext) -> Iterator[Violation]:
    for line, request, item, then, _ in _availabilities(context):
        if isinstance(then, Stopped):
            until = then.period.end.isoformat()
            yield Violation(f"{request.where}.code", (line.id,), {"code": item.id, "until": until})


@rule(
    "line.stopped-since",
    Severity.WARN,
    _TURNAROUND_SECTION,
    "{where}: test {code} was stopped after it was ordered, until {until}. The laboratory will be in touch.",
)
def _check_stopped_since(context: RuleContext) -> Iterator[Violation]:
    for line, request, item, then, now in _availabilities(context):
        if isinstance(now, Stopped) and not isinstance(then, Stopped):
            yield Violation(f"{request.where}.code", (line.id,), {"code": item.id, "until": now.period.end.isoformat()})


@rule(
    "line.delayed",
    Severity.WARN,
    _TURNAROUND_SECTION,
    "{where}: test {code} takes {hours} hours longer at present. Nothing needs to be done.",
)
def _check_delayed(context: RuleContext) -> Iterator[Violation]:
    for line, request, item, then, _ in _availabilities(context):
        if isinstance(then, Delayed):
            yield Violation(f"{request.where}.code", (line.id,), {"code": item.id, "hours": format(then.hours, "f")})


@rule(
    "line.repeat",
    Severity.REFUSE,
    "Nomenclature item: allow_multiple_items",
    "{where}: test {code} is in this order already, with the same biomaterial. Order it once.",
)
def _check_repeat(context: RuleContext) -> Iterator[Violation]:
    seen: set[object] = set()
    requests = {request.ref: (line, request, items) for line, request, items in reversed(list(context.known_lines()))}
    for line, request, items in reversed(requests.values()):
        specimens = context.order.specimens_of(request)
        key = (items[0].id, frozenset(specimen_repeat_key(context, specimen) for specimen in specimens))
        if key in seen and not any(item.allow_multiple_items for item in items):
            yield Violation(f"{request.where}.code", (line.id,), {"code": items[0].id})
        seen.add(key)


@rule(
    "line.time",
    Severity.WARN,
    "ProcedureRequest: occurrenceDateTime",
    "{where}: {text} is not a date and time with offset. Send the time at which the order was made, with its offset.",
)
def _check_time(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        if request.occurrence is None or request.occurrence.at is None:
            text = request.occurrence.text if request.occurrence else "missing"
            yield Violation(f"{request.where}.occurrenceDateTime", (line.id,), {"text": text})


@rule(
    "line.time-future",
    Severity.WARN,
    "ProcedureRequest: occurrenceDateTime",
    "{where}: {text} is in the future. Check the clock of the ordering system.",
)
def _check_time_future(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        at = request.occurrence.at if request.occurrence else None
        if at and at > context.facts.now + context.facts.future_tolerance:
            yield Violation(f"{request.where}.occurrenceDateTime", (line.id,), {"text": at.isoformat()})


def find_old_order_pattern(items: Iterable[Item]) -> IdentifierPattern | None:
    """The shape of the old order number that a test needs in any version; None where it needs none."""
    return next((shape for item in items if (shape := labels.old_order_pattern(item))), None)


@rule(
    "line.follow-up-alone",
    Severity.REFUSE,
    "Create order: rule 4",
    "{where}: the follow-up study {code} must be ordered alone. Send it in an order of its own.",
)
def _check_follow_up_alone(context: RuleContext) -> Iterator[Violation]:
    lines = list(context.known_lines())
    for line, request, items in lines:
        if find_old_order_pattern(items) and len(context.order.lines) > 1:
            yield Violation(f"{request.where}.code", (line.id,), {"code": items[0].id})


@rule(
    "line.old-order",
    Severity.REFUSE,
    "Create order: rule 4",
    "{where}: study {code} needs the number of the earlier order, of the form {shape}. Send it as one identifier.",
)
def _check_old_order(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.old_orders
    for line, request, items in context.known_lines():
        shape = find_old_order_pattern(items)
        ours = [each for each in request.old_orders if system.match(each.system) is not SystemMatch.FOREIGN]
        if shape and not (len(ours) == 1 and shape.matches(ours[0].value)):
            yield Violation(f"{request.where}.basedOn", (line.id,), {"code": items[0].id, "shape": str(shape)})


@rule(
    "line.old-order-unasked",
    Severity.WARN,
    "ProcedureRequest: basedOn",
    "{where}: test {code} takes no number of an earlier order. Leave it out.",
)
def _check_old_order_unasked(context: RuleContext) -> Iterator[Violation]:
    for line, request, items in context.known_lines():
        if request.old_orders and not find_old_order_pattern(items):
            yield Violation(f"{request.where}.basedOn", (line.id,), {"code": items[0].id})


def find_second_label_pattern(items: Iterable[Item]) -> IdentifierPattern | None:
    """The shape of the second barcode that a test needs in any version; None where it needs none."""
    return next((shape for item in items if (shape := labels.second_label_pattern(item))), None)


def _two_barcode_containers(context: RuleContext) -> Iterator[tuple[ReceivedContainer, str, IdentifierPattern, str]]:
    """The containers of two-barcode studies, with the line, the shape of the second barcode, and the study."""
    transport = context.catalogue.transport_types() if context.catalogue else frozenset()
    for line, request, items in context.known_lines():
        shape = find_second_label_pattern(items)
        if shape is None or context.facts.systems.second_labels is None:
            continue
        for specimen in context.order.specimens_of(request):
            for container in specimen.containers:
                if not any(coding.code in transport for coding in container.type.coding):
                    yield container, line.id, shape, items[0].id


@rule(
    "tube.second-label",
    Severity.REFUSE,
    "Create order: rule 3",
    "{where}: study {code} needs a second barcode of the form {shape}. Send both barcodes of the container.",
)
def _check_second_label(context: RuleContext) -> Iterator[Violation]:
    for container, line, shape, code in _two_barcode_containers(context):
        given = (*context.second_labels(container), *context.unrecognized_labels(container))
        if not any(map(shape.matches, given)):
            yield Violation(f"{container.where}.identifier", (line,), {"code": code, "shape": str(shape)})


@rule(
    "tube.second-label-system",
    Severity.WARN,
    "Create order: rule 3",
    "{where}: the system of the second barcode is not written as the interface writes it. Send {system}.",
)
def _check_second_label_system(context: RuleContext) -> Iterator[Violation]:
    """A right second barcode in a system that we do not know: the system may be set wrongly here (law 10)."""
    for container, line, shape, _ in _two_barcode_containers(context):
        known, strange = context.second_labels(container), context.unrecognized_labels(container)
        if not any(map(shape.matches, known)) and any(map(shape.matches, strange)):
            system = context.facts.systems.second_labels_system or ""
            yield Violation(f"{container.where}.identifier", (line,), {"system": system})

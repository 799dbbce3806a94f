"""Rules about one order line: its status, its test, its time, its turnaround, and follow-up studies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lab_agent.catalogue.labels import old_order_pattern
from lab_agent.catalogue.model import Item
from lab_agent.catalogue.turnaround import Availability, Delayed, Stopped
from lab_agent.fhir.order_numbers import choose_old_order
from lab_agent.fhir.received_order import ReceivedLine, ReceivedRequest, patient_key
from lab_agent.rules.context import RuleContext
from lab_agent.rules.rule import Severity, Violation, rule
from lab_agent.shared.code_systems import SystemMatch
from lab_agent.shared.label_pools import IdentifierPattern

_CODE_SECTION = "ProcedureRequest: code"
_TURNAROUND_SECTION = "Turnaround item: rules"


@rule(
    "line.status",
    Severity.REFUSE,
    "ProcedureRequest: status",
    "{where}: the status is {status}, and must be active. Please send active requests only.",
)
def _check_status(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        if request.status != "active":
            yield Violation(f"{request.where}.status", (line.id,), {"status": request.status or "missing"})


@rule(
    "line.subject",
    Severity.REFUSE,
    "ProcedureRequest: subject",
    "{where}: no patient is named. Please refer to the order's Patient.",
)
def _check_subject(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        if patient_key(request.subject) is None and not (request.subject and request.subject.text):
            yield Violation(f"{request.where}.subject", (line.id,))


@rule(
    "line.code",
    Severity.REFUSE,
    _CODE_SECTION,
    "{where}: no test is named. Please send the item code of the nomenclature.",
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
    "{where}: the code is not from the nomenclature. Please send a code of the system {system}.",
)
def _check_code_system(context: RuleContext) -> Iterator[Violation]:
    yield from _code_system_violations(context, SystemMatch.FOREIGN)


@rule(
    "line.code-system-spelling",
    Severity.WARN,
    _CODE_SECTION,
    "{where}: the system is not spelled as in the interface. Please send {system}.",
)
def _check_code_system_spelling(context: RuleContext) -> Iterator[Violation]:
    yield from _code_system_violations(context, SystemMatch.SPELLED_DIFFERENTLY, SystemMatch.MISSING)


@rule(
    "line.item",
    Severity.REFUSE,
    _CODE_SECTION,
    "{where}: test {code} is not in the nomenclature of contract {contract}. Please fetch the nomenclature again and choose"
    " a test from it.",
)
def _check_item(context: RuleContext) -> Iterator[Violation]:
    contract = context.contract
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
    "{where}: test {code} has since been withdrawn from the nomenclature. Please fetch the nomenclature again.",
)
def _check_item_withdrawn(context: RuleContext) -> Iterator[Violation]:
    contract = context.contract
    for line, request, items in context.known_lines():
        if context.catalogue and contract and context.catalogue.current_item(contract, items[0].id) is None:
            yield Violation(f"{request.where}.code", (line.id,), {"code": items[0].id})


def _availabilities(context: RuleContext) -> Iterator[tuple[ReceivedLine, ReceivedRequest, Item, Availability, Availability]]:
    """The turnaround of each test when it was ordered, and now."""
    contract = context.contract
    for line, request, items in context.known_lines():
        if context.catalogue and contract:
            then = context.catalogue.availability(contract, items[0], context.ordered_at(request))
            yield line, request, items[0], then, context.catalogue.availability(contract, items[0], context.facts.now)


@rule(
    "line.stopped",
    Severity.REFUSE,
    _TURNAROUND_SECTION,
    "{where}: test {code} is not performed until {until}. Please order it again after that, or choose another test.",
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
    "{where}: test {code} was stopped after it had been ordered, until {until}. The laboratory will contact you.",
    reads_clock=True,
)
def _check_stopped_since(context: RuleContext) -> Iterator[Violation]:
    for line, request, item, then, now in _availabilities(context):
        if isinstance(now, Stopped) and not isinstance(then, Stopped):
            yield Violation(f"{request.where}.code", (line.id,), {"code": item.id, "until": now.period.end.isoformat()})


@rule(
    "line.delayed",
    Severity.WARN,
    _TURNAROUND_SECTION,
    "{where}: test {code} currently takes {hours} hours longer. You need not do anything.",
)
def _check_delayed(context: RuleContext) -> Iterator[Violation]:
    for line, request, item, then, _ in _availabilities(context):
        if isinstance(then, Delayed):
            yield Violation(f"{request.where}.code", (line.id,), {"code": item.id, "hours": f"{then.hours:f}"})


@rule(
    "line.repeat",
    Severity.REFUSE,
    "Nomenclature item: allow_multiple_items",
    "{where}: test {code} is already in this order with the same biomaterial. Please order it once.",
)
def _check_repeat(context: RuleContext) -> Iterator[Violation]:
    seen: set[object] = set()
    # A ProcedureRequest that two Tasks name is no repeat of itself (order.one-task-per-request): its first line counts.
    requests = {request.ref: (line, request, items) for line, request, items in reversed(list(context.known_lines()))}
    for line, request, items in reversed(requests.values()):
        specimens = context.order.specimens_of(request)
        key = (items[0].id, frozenset(context.repeat_key(specimen) for specimen in specimens))
        if key in seen and not any(item.allow_multiple_items for item in items):
            yield Violation(f"{request.where}.code", (line.id,), {"code": items[0].id})
        seen.add(key)


@rule(
    "line.time",
    Severity.WARN,
    "ProcedureRequest: occurrenceDateTime",
    "{where}: expected a date and time with UTC offset, found: {text}. Please send the time at which the order was made, "
    "with its UTC offset.",
)
def _check_time(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        if request.occurrence is None or request.occurrence.at is None:
            text = request.occurrence.text if request.occurrence else "–"
            yield Violation(f"{request.where}.occurrenceDateTime", (line.id,), {"text": text})


@rule(
    "line.time-future",
    Severity.WARN,
    "ProcedureRequest: occurrenceDateTime",
    "{where}: {text} is in the future. Please check the clock of the ordering system.",
    reads_clock=True,
)
def _check_time_future(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        at = request.occurrence.at if request.occurrence else None
        if at and at > context.facts.now + context.facts.future_tolerance:
            yield Violation(f"{request.where}.occurrenceDateTime", (line.id,), {"text": at.isoformat()})


def _old_order_pattern(items: Iterable[Item]) -> IdentifierPattern | None:
    """The pattern of the old order number that a test needs in any catalogue version; None where it needs none."""
    return next((pattern for item in items if (pattern := old_order_pattern(item))), None)


def _must_name_old_order(context: RuleContext) -> bool:
    """Whether every line is a follow-up study: only such an order must name the earlier one (interface: order rule 4).

    Of one beside other tests the interface says nothing; the laboratory may want the number there, too.
    """
    if context.facts.old_order_beside_others:
        return True
    patterns = [_old_order_pattern(items) for _, _, items in context.known_lines()]
    return len(patterns) == len(context.order.lines) and all(patterns)


def _old_order_faults(context: RuleContext) -> Iterator[tuple[ReceivedRequest, Violation]]:
    """The follow-up studies without exactly one well-formed number of an earlier order, in its system."""
    systems = context.facts.systems
    for line, request, items in context.known_lines():
        pattern, number = _old_order_pattern(items), choose_old_order(request.old_orders, systems)
        if pattern and not (number and pattern.matches(number.value)):
            values = {"code": items[0].id, "shape": str(pattern), "system": systems.old_orders.url}
            yield request, Violation(f"{request.where}.basedOn", (line.id,), values)


@rule(
    "line.old-order",
    Severity.REFUSE,
    "Create order: rule 4",
    "{where}: study {code} needs the number of the earlier order, in the form {shape}. Please send it as one "
    "identifier in the system {system}.",
)
def _check_old_order(context: RuleContext) -> Iterator[Violation]:
    if _must_name_old_order(context):
        yield from (violation for _, violation in _old_order_faults(context))


@rule(
    "line.old-order-form",
    Severity.WARN,
    "Create order: rule 4",
    "{where}: the number of the earlier order of study {code} is not one identifier of the form {shape} in the system {system}. "
    "Please check it.",
)
def _check_old_order_form(context: RuleContext) -> Iterator[Violation]:
    """Beside other tests a follow-up study needs no number; one that is given should be right."""
    if not _must_name_old_order(context):
        yield from (violation for request, violation in _old_order_faults(context) if request.old_orders)


@rule(
    "line.old-order-system",
    Severity.WARN,
    "Create order: rule 4",
    "{where}: the system is not spelled as in the interface. Please send {system}.",
)
def _check_old_order_system(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.old_orders
    for line, request, items in context.known_lines():
        number = choose_old_order(request.old_orders, context.facts.systems)
        if _old_order_pattern(items) and number and system.match(number.system) is not SystemMatch.EXACT:
            yield Violation(f"{request.where}.basedOn", (line.id,), {"system": system.url})


@rule(
    "line.old-order-unasked",
    Severity.WARN,
    "ProcedureRequest: basedOn",
    "{where}: test {code} takes no number of an earlier order. Please leave it out.",
)
def _check_old_order_unasked(context: RuleContext) -> Iterator[Violation]:
    for line, request, items in context.known_lines():
        if request.old_orders and not _old_order_pattern(items):
            yield Violation(f"{request.where}.basedOn", (line.id,), {"code": items[0].id})

"""Rules about the studies that the interface names (`catalogue.studies`; Create order: rules 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lab_agent.catalogue import studies
from lab_agent.catalogue.items import Item
from lab_agent.catalogue.shapes import IdentifierPattern
from lab_agent.domain.received import ReceivedContainer
from lab_agent.domain.systems import SystemMatch
from lab_agent.rules.case import RuleContext
from lab_agent.rules.rule import Rule, Severity, Violation


def find_second_label_pattern(items: Iterable[Item]) -> IdentifierPattern | None:
    """The shape of the second barcode that a test needs in any version; None where it needs none."""
    return next((shape for item in items if (shape := studies.second_label_pattern(item))), None)


def find_old_order_pattern(items: Iterable[Item]) -> IdentifierPattern | None:
    """The shape of the old order number that a test needs in any version; None where it needs none."""
    return next((shape for item in items if (shape := studies.old_order_pattern(item))), None)


def _check_follow_up_alone(context: RuleContext) -> Iterator[Violation]:
    lines = list(context.known_lines())
    for line, request, items in lines:
        if find_old_order_pattern(items) and len(context.order.lines) > 1:
            yield Violation(f"{request.where}.code", (line.id,), {"code": items[0].id})


def _check_old_order(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.old_orders
    for line, request, items in context.known_lines():
        shape = find_old_order_pattern(items)
        ours = [each for each in request.old_orders if system.match(each.system) is not SystemMatch.FOREIGN]
        if shape and not (len(ours) == 1 and shape.matches(ours[0].value)):
            yield Violation(f"{request.where}.basedOn", (line.id,), {"code": items[0].id, "shape": str(shape)})


def _check_old_order_unasked(context: RuleContext) -> Iterator[Violation]:
    for line, request, items in context.known_lines():
        if request.old_orders and not find_old_order_pattern(items):
            yield Violation(f"{request.where}.basedOn", (line.id,), {"code": items[0].id})


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


def _check_second_label(context: RuleContext) -> Iterator[Violation]:
    for container, line, shape, code in _two_barcode_containers(context):
        given = (*context.second_labels(container), *context.unrecognized_labels(container))
        if not any(map(shape.matches, given)):
            yield Violation(f"{container.where}.identifier", (line,), {"code": code, "shape": str(shape)})


def _check_second_label_system(context: RuleContext) -> Iterator[Violation]:
    """A right second barcode in a system that we do not know: the system may be set wrongly here (law 10)."""
    for container, line, shape, _ in _two_barcode_containers(context):
        known, strange = context.second_labels(container), context.unrecognized_labels(container)
        if not any(map(shape.matches, known)) and any(map(shape.matches, strange)):
            system = context.facts.systems.second_labels_system or ""
            yield Violation(f"{container.where}.identifier", (line,), {"system": system})


STUDY_RULES = (
    Rule(
        id="line.follow-up-alone",
        severity=Severity.REFUSE,
        section="Create order: rule 4",
        check=_check_follow_up_alone,
        message="{where}: the follow-up study {code} must be ordered alone. Send it in an order of its own.",
    ),
    Rule(
        id="line.old-order",
        severity=Severity.REFUSE,
        section="Create order: rule 4",
        check=_check_old_order,
        message="{where}: study {code} needs the number of the earlier order, of the form {shape}. Send it as one identifier.",
    ),
    Rule(
        id="line.old-order-unasked",
        severity=Severity.WARN,
        section="ProcedureRequest: basedOn",
        check=_check_old_order_unasked,
        message="{where}: test {code} takes no number of an earlier order. Leave it out.",
    ),
    Rule(
        id="tube.second-label",
        severity=Severity.REFUSE,
        section="Create order: rule 3",
        check=_check_second_label,
        message="{where}: study {code} needs a second barcode of the form {shape}. Send both barcodes of the container.",
    ),
    Rule(
        id="tube.second-label-system",
        severity=Severity.WARN,
        section="Create order: rule 3",
        check=_check_second_label_system,
        message="{where}: the system of the second barcode is not written as the interface writes it. Send {system}.",
    ),
)

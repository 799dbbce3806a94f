"""Rules about the studies that the interface names (`catalogue.studies`; Create order: rules 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lab_agent.catalogue import studies
from lab_agent.catalogue.items import Item
from lab_agent.catalogue.shapes import Shape
from lab_agent.domain.received import ReceivedContainer
from lab_agent.domain.systems import SystemMatch
from lab_agent.rules.case import Case
from lab_agent.rules.rule import Problem, Rule, Severity


def second_label(items: Iterable[Item]) -> Shape | None:
    """The shape of the second barcode that a test needs in any version; None where it needs none."""
    return next((shape for item in items if (shape := studies.second_label(item))), None)


def old_order(items: Iterable[Item]) -> Shape | None:
    """The shape of the old order number that a test needs in any version; None where it needs none."""
    return next((shape for item in items if (shape := studies.old_order(item))), None)


def _follow_up_alone(case: Case) -> Iterator[Problem]:
    lines = list(case.known_lines())
    for line, request, items in lines:
        if old_order(items) and len(case.order.lines) > 1:
            yield Problem(f"{request.where}.code", (line.id,), {"code": items[0].id})


def _old_order(case: Case) -> Iterator[Problem]:
    system = case.facts.systems.old_orders
    for line, request, items in case.known_lines():
        shape = old_order(items)
        ours = [each for each in request.old_orders if system.match(each.system) is not SystemMatch.FOREIGN]
        if shape and not (len(ours) == 1 and shape.fits(ours[0].value)):
            yield Problem(f"{request.where}.basedOn", (line.id,), {"code": items[0].id, "shape": str(shape)})


def _old_order_unasked(case: Case) -> Iterator[Problem]:
    for line, request, items in case.known_lines():
        if request.old_orders and not old_order(items):
            yield Problem(f"{request.where}.basedOn", (line.id,), {"code": items[0].id})


def _two_barcodes(case: Case) -> Iterator[tuple[ReceivedContainer, str, Shape, str]]:
    """The containers of two-barcode studies, with the line, the shape of the second barcode, and the study."""
    transport = case.catalogue.transport_types() if case.catalogue else frozenset()
    for line, request, items in case.known_lines():
        shape = second_label(items)
        if shape is None or case.facts.systems.second_labels is None:
            continue
        for specimen in case.order.specimens_of(request):
            for container in specimen.containers:
                if not any(coding.code in transport for coding in container.type.coding):
                    yield container, line.id, shape, items[0].id


def _second_label(case: Case) -> Iterator[Problem]:
    for container, line, shape, code in _two_barcodes(case):
        given = (*case.second_labels(container), *case.strange_labels(container))
        if not any(map(shape.fits, given)):
            yield Problem(f"{container.where}.identifier", (line,), {"code": code, "shape": str(shape)})


def _second_label_system(case: Case) -> Iterator[Problem]:
    """A right second barcode in a system that we do not know: the system may be set wrongly here (law 10)."""
    for container, line, shape, _ in _two_barcodes(case):
        known, strange = case.second_labels(container), case.strange_labels(container)
        if not any(map(shape.fits, known)) and any(map(shape.fits, strange)):
            system = case.facts.systems.second_labels_system or ""
            yield Problem(f"{container.where}.identifier", (line,), {"system": system})


RULES = (
    Rule(
        id="line.follow-up-alone",
        severity=Severity.REFUSE,
        section="Create order: rule 4",
        check=_follow_up_alone,
        message="{where}: the follow-up study {code} must be ordered alone. Send it in an order of its own.",
    ),
    Rule(
        id="line.old-order",
        severity=Severity.REFUSE,
        section="Create order: rule 4",
        check=_old_order,
        message="{where}: study {code} needs the number of the earlier order, of the form {shape}. Send it as one identifier.",
    ),
    Rule(
        id="line.old-order-unasked",
        severity=Severity.WARN,
        section="ProcedureRequest: basedOn",
        check=_old_order_unasked,
        message="{where}: test {code} takes no number of an earlier order. Leave it out.",
    ),
    Rule(
        id="tube.second-label",
        severity=Severity.REFUSE,
        section="Create order: rule 3",
        check=_second_label,
        message="{where}: study {code} needs a second barcode of the form {shape}. Send both barcodes of the container.",
    ),
    Rule(
        id="tube.second-label-system",
        severity=Severity.WARN,
        section="Create order: rule 3",
        check=_second_label_system,
        message="{where}: the system of the second barcode is not written as the interface writes it. Send {system}.",
    ),
)

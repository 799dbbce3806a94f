"""Rules about containers: barcode, type, quantity."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal

from lab_agent.catalogue.model import Item, Requirement
from lab_agent.domain.code_systems import SystemMatch
from lab_agent.domain.received_order import ReceivedContainer, ReceivedSpecimen
from lab_agent.rules.context import RuleContext, all_versions_reject, best_coding, specimen_type_code
from lab_agent.rules.rule import Severity, Violation, rule

_CONTAINER_SECTION = "Specimen: container"


def _specimen_containers(context: RuleContext) -> Iterator[tuple[ReceivedSpecimen, ReceivedContainer, tuple[str, ...]]]:
    """The containers that hold biomaterial: without those that others travel in."""
    transport = context.catalogue.transport_types() if context.catalogue else frozenset()
    for specimen, container, lines in context.containers():
        if len(specimen.containers) == 1 or not any(coding.code in transport for coding in container.type.coding):
            yield specimen, container, lines


@rule(
    "tube.label",
    Severity.REFUSE,
    _CONTAINER_SECTION,
    "{where}: there is no barcode. Send the barcode of every tube, in the laboratory's label system.",
)
def _check_label(context: RuleContext) -> Iterator[Violation]:
    for specimen, lines in context.specimens():
        if not specimen.containers:
            yield Violation(f"{specimen.where}.container", lines)
    for _, container, lines in _specimen_containers(context):
        if context.label(container) is None:
            yield Violation(f"{container.where}.identifier", lines)


def _labelled_containers(context: RuleContext) -> Iterator[tuple[ReceivedSpecimen, ReceivedContainer, tuple[str, ...], str]]:
    for specimen, container, lines in context.containers():
        if label := context.label(container):
            yield specimen, container, lines, label.value


@rule(
    "tube.label-form",
    Severity.REFUSE,
    _CONTAINER_SECTION,
    "{where}: {label} is not a barcode of the agreed form. Send the barcode as it is printed.",
)
def _check_label_form(context: RuleContext) -> Iterator[Violation]:
    for _, container, lines, label in _labelled_containers(context):
        if not re.fullmatch(context.facts.label_pattern, label):
            yield Violation(f"{container.where}.identifier", lines, {"label": label})


@rule(
    "tube.label-system",
    Severity.WARN,
    _CONTAINER_SECTION,
    "{where}: the system is not written as the interface writes it. Send {system}.",
)
def _check_label_system(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.labels
    for _, container, lines in context.containers():
        label = context.label(container)
        if label and system.match(label.system) is not SystemMatch.EXACT:
            yield Violation(f"{container.where}.identifier", lines, {"system": system.url})


@rule(
    "tube.label-shared",
    Severity.REFUSE,
    _CONTAINER_SECTION,
    "{where}: barcode {label} is on more than one Specimen of this order. Give every Specimen a barcode of its own.",
)
def _check_label_shared(context: RuleContext) -> Iterator[Violation]:
    users: dict[str, dict[object, None]] = defaultdict(dict)
    found = list(_labelled_containers(context))
    for specimen, _, _, label in found:
        users[label][specimen.ref] = None
    for _, container, lines, label in found:
        if len(users[label]) > 1:
            yield Violation(f"{container.where}.identifier", lines, {"label": label})


@rule(
    "tube.label-in-use",
    Severity.REFUSE,
    _CONTAINER_SECTION,
    "{where}: barcode {label} is in use for another patient. Check whose tube it is, and label it anew.",
)
def _check_label_in_use(context: RuleContext) -> Iterator[Violation]:
    for _, container, lines, label in _labelled_containers(context):
        others = context.facts.labels_in_use.get(label, frozenset()) - {context.order.patient_reference}
        if others:
            yield Violation(f"{container.where}.identifier", lines, {"label": label})


@rule(
    "tube.label-reused",
    Severity.WARN,
    _CONTAINER_SECTION,
    "{where}: barcode {label} is in another order of this patient. If it is not the same tube, label it anew.",
)
def _check_label_reused(context: RuleContext) -> Iterator[Violation]:
    for _, container, lines, label in _labelled_containers(context):
        if context.order.patient_reference in context.facts.labels_in_use.get(label, frozenset()):
            yield Violation(f"{container.where}.identifier", lines, {"label": label})


@rule(
    "tube.type",
    Severity.REFUSE,
    _CONTAINER_SECTION,
    "{where}: {type} is not a container code of this laboratory. Send the container type that pre-analytics gave.",
)
def _check_type(context: RuleContext) -> Iterator[Violation]:
    known = context.catalogue.container_types() if context.catalogue else frozenset()
    system = context.facts.systems.container_type
    for _, container, lines in context.containers():
        coding = best_coding(container.type.coding, system)
        foreign = coding and system.match(coding.system) is SystemMatch.FOREIGN
        if known and coding and (foreign or coding.code not in known):
            yield Violation(f"{container.where}.type", lines, {"type": coding.code})


@rule(
    "tube.type-missing",
    Severity.WARN,
    _CONTAINER_SECTION,
    "{where}: is missing. Send the container type that pre-analytics gave.",
)
def _check_type_missing(context: RuleContext) -> Iterator[Violation]:
    """A container without a type, where pre-analytics names one: not every test does."""
    for line, request, items in context.known_lines():
        for specimen in context.order.specimens_of(request):
            named = all(item.container_types(specimen_type_code(context, specimen) or "") for item in items)
            bare = (container for container in specimen.containers if not container.type.coding)
            yield from (Violation(f"{container.where}.type", (line.id,)) for container in bare if named)


@rule(
    "tube.type-system",
    Severity.WARN,
    _CONTAINER_SECTION,
    "{where}: the system is not written as the interface writes it. Send {system}.",
)
def _check_type_system(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.container_type
    for _, container, lines in context.containers():
        coding = best_coding(container.type.coding, system)
        if coding and system.match(coding.system) in {SystemMatch.SPELLED_DIFFERENTLY, SystemMatch.MISSING}:
            yield Violation(f"{container.where}.type.coding", lines, {"system": system.url})


@rule(
    "tube.type-fits",
    Severity.REFUSE,
    _CONTAINER_SECTION,
    "{where}: test {code} cannot be made from container {type}. Collect in the container that pre-analytics names.",
)
def _check_type_fits(context: RuleContext) -> Iterator[Violation]:
    known = context.catalogue.container_types() if context.catalogue else frozenset()
    for line, request, items in context.known_lines():
        for specimen in context.order.specimens_of(request):
            code = specimen_type_code(context, specimen)
            for container in specimen.containers:
                coding = best_coding(container.type.coding, context.facts.systems.container_type)
                if (
                    coding
                    and coding.code in known
                    and code
                    and all_versions_reject(map(_accepts_container(context, code, coding.code), items))
                ):
                    yield Violation(f"{container.where}.type", (line.id,), {"type": coding.code, "code": items[0].id})


def _accepts_container(context: RuleContext, specimen: str, container: str) -> Callable[[Item], bool]:
    """Whether an item takes a specimen of that type in that container, or any container, or one that travels."""
    transport = context.catalogue.transport_types() if context.catalogue else frozenset()

    def takes(item: Item) -> bool:
        wanted = item.container_types(specimen)
        return not wanted or container in wanted or container in transport

    return takes


@rule(
    "tube.quantity",
    Severity.REFUSE,
    _CONTAINER_SECTION,
    "{where}: {quantity} is not a quantity. Send the quantity that pre-analytics gave.",
)
def _check_quantity(context: RuleContext) -> Iterator[Violation]:
    for _, container, lines in context.containers():
        if container.quantity is not None and container.quantity <= 0:
            values = {"quantity": format(container.quantity, "f")}
            yield Violation(f"{container.where}.specimenQuantity.value", lines, values)


@rule(
    "tube.quantity-missing",
    Severity.WARN,
    _CONTAINER_SECTION,
    "{where}: is missing. Send the quantity that pre-analytics gave.",
)
def _check_quantity_missing(context: RuleContext) -> Iterator[Violation]:
    for _, container, lines in _specimen_containers(context):
        if container.quantity is None:
            yield Violation(f"{container.where}.specimenQuantity.value", lines)


@rule(
    "tube.quantity-enough",
    Severity.WARN,
    _CONTAINER_SECTION,
    "{where}: {quantity} is less than the {needed} that test {code} needs. The laboratory may ask for more.",
)
def _check_quantity_enough(context: RuleContext) -> Iterator[Violation]:
    for line, request, items in context.known_lines():
        for specimen in context.order.specimens_of(request):
            given = [each.quantity for each in specimen.containers if each.quantity is not None and each.quantity > 0]
            needed = min(
                map(_minimum_volume, items[0].requirements_of_type(specimen_type_code(context, specimen) or "")),
                default=Decimal(0),
            )
            if given and sum(given) < needed:
                values = {"quantity": format(sum(given), "f"), "needed": format(needed, "f"), "code": items[0].id}
                yield Violation(f"{specimen.where}.container", (line.id,), values)


def _minimum_volume(need: Requirement) -> Decimal:
    """What one tube must hold at least: the volume, or the rest of one that is split over several tubes."""
    usable = need.container.usable_volume if need.container else None
    if usable is None or need.volume <= usable:
        return need.volume
    return need.volume % usable or usable

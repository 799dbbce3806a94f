"""Rules about containers: barcode, type, quantity."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal

from lab_agent.catalogue.items import Item, Requirement
from lab_agent.domain.received import ReceivedContainer, ReceivedSpecimen
from lab_agent.domain.systems import SystemMatch
from lab_agent.rules.case import Case, coding_of, none_of
from lab_agent.rules.material import type_code
from lab_agent.rules.rule import Problem, Rule, Severity


def _tubes(case: Case) -> Iterator[tuple[ReceivedSpecimen, ReceivedContainer, tuple[str, ...]]]:
    """The containers that hold biomaterial: without those that others travel in."""
    transport = case.catalogue.transport_types() if case.catalogue else frozenset()
    for specimen, container, lines in case.containers():
        if len(specimen.containers) == 1 or not any(coding.code in transport for coding in container.type.coding):
            yield specimen, container, lines


def _present(case: Case) -> Iterator[Problem]:
    for specimen, lines in case.specimens():
        if not specimen.containers:
            yield Problem(f"{specimen.where}.container", lines)
    for _, container, lines in _tubes(case):
        if case.label(container) is None:
            yield Problem(f"{container.where}.identifier", lines)


def _labels(case: Case) -> Iterator[tuple[ReceivedSpecimen, ReceivedContainer, tuple[str, ...], str]]:
    for specimen, container, lines in case.containers():
        if label := case.label(container):
            yield specimen, container, lines, label.value


def _form(case: Case) -> Iterator[Problem]:
    for _, container, lines, label in _labels(case):
        if not re.fullmatch(case.facts.label_pattern, label):
            yield Problem(f"{container.where}.identifier", lines, {"label": label})


def _label_system(case: Case) -> Iterator[Problem]:
    system = case.facts.systems.labels
    for _, container, lines in case.containers():
        label = case.label(container)
        if label and system.match(label.system) is not SystemMatch.EXACT:
            yield Problem(f"{container.where}.identifier", lines, {"system": system.address})


def _shared(case: Case) -> Iterator[Problem]:
    users: dict[str, dict[object, None]] = defaultdict(dict)
    found = list(_labels(case))
    for specimen, _, _, label in found:
        users[label][specimen.ref] = None
    for _, container, lines, label in found:
        if len(users[label]) > 1:
            yield Problem(f"{container.where}.identifier", lines, {"label": label})


def _in_use(case: Case) -> Iterator[Problem]:
    for _, container, lines, label in _labels(case):
        others = case.facts.labels_in_use.get(label, frozenset()) - {case.order.patient_reference}
        if others:
            yield Problem(f"{container.where}.identifier", lines, {"label": label})


def _reused(case: Case) -> Iterator[Problem]:
    for _, container, lines, label in _labels(case):
        if case.order.patient_reference in case.facts.labels_in_use.get(label, frozenset()):
            yield Problem(f"{container.where}.identifier", lines, {"label": label})


def _type_known(case: Case) -> Iterator[Problem]:
    known = case.catalogue.container_types() if case.catalogue else frozenset()
    system = case.facts.systems.container_type
    for _, container, lines in case.containers():
        coding = coding_of(container.type.coding, system)
        foreign = coding and system.match(coding.system) is SystemMatch.FOREIGN
        if known and coding and (foreign or coding.code not in known):
            yield Problem(f"{container.where}.type", lines, {"type": coding.code})


def _type_missing(case: Case) -> Iterator[Problem]:
    """A container without a type, where pre-analytics names one: not every test does."""
    for line, request, items in case.known_lines():
        for specimen in case.order.specimens_of(request):
            named = all(item.container_types(type_code(case, specimen) or "") for item in items)
            bare = (container for container in specimen.containers if not container.type.coding)
            yield from (Problem(f"{container.where}.type", (line.id,)) for container in bare if named)


def _type_system(case: Case) -> Iterator[Problem]:
    system = case.facts.systems.container_type
    for _, container, lines in case.containers():
        coding = coding_of(container.type.coding, system)
        if coding and system.match(coding.system) in {SystemMatch.SPELLED, SystemMatch.MISSING}:
            yield Problem(f"{container.where}.type.coding", lines, {"system": system.address})


def _type_fits(case: Case) -> Iterator[Problem]:
    known = case.catalogue.container_types() if case.catalogue else frozenset()
    for line, request, items in case.known_lines():
        for specimen in case.order.specimens_of(request):
            code = type_code(case, specimen)
            for container in specimen.containers:
                coding = coding_of(container.type.coding, case.facts.systems.container_type)
                if coding and coding.code in known and code and none_of(map(_taking(case, code, coding.code), items)):
                    yield Problem(f"{container.where}.type", (line.id,), {"type": coding.code, "code": items[0].id})


def _taking(case: Case, specimen: str, container: str) -> Callable[[Item], bool]:
    """Whether an item takes a specimen of that type in that container, or any container, or one that travels."""
    transport = case.catalogue.transport_types() if case.catalogue else frozenset()

    def takes(item: Item) -> bool:
        wanted = item.container_types(specimen)
        return not wanted or container in wanted or container in transport

    return takes


def _quantity(case: Case) -> Iterator[Problem]:
    for _, container, lines in case.containers():
        if container.quantity is not None and container.quantity <= 0:
            values = {"quantity": format(container.quantity, "f")}
            yield Problem(f"{container.where}.specimenQuantity.value", lines, values)


def _quantity_missing(case: Case) -> Iterator[Problem]:
    for _, container, lines in _tubes(case):
        if container.quantity is None:
            yield Problem(f"{container.where}.specimenQuantity.value", lines)


def _quantity_enough(case: Case) -> Iterator[Problem]:
    for line, request, items in case.known_lines():
        for specimen in case.order.specimens_of(request):
            given = [each.quantity for each in specimen.containers if each.quantity is not None and each.quantity > 0]
            needed = min(map(_volume, items[0].of_type(type_code(case, specimen) or "")), default=Decimal(0))
            if given and sum(given) < needed:
                values = {"quantity": format(sum(given), "f"), "needed": format(needed, "f"), "code": items[0].id}
                yield Problem(f"{specimen.where}.container", (line.id,), values)


def _volume(need: Requirement) -> Decimal:
    """What one tube must hold at least: the volume, or the rest of one that is split over several tubes."""
    usable = need.container.usable if need.container else None
    if usable is None or need.volume <= usable:
        return need.volume
    return need.volume % usable or usable


_CONTAINER = "Specimen: container"
RULES = (
    Rule(
        id="tube.label",
        severity=Severity.REFUSE,
        section=_CONTAINER,
        check=_present,
        message="{where}: there is no barcode. Send the barcode of every tube, in the laboratory's label system.",
    ),
    Rule(
        id="tube.label-form",
        severity=Severity.REFUSE,
        section=_CONTAINER,
        check=_form,
        message="{where}: {label} is not a barcode of the agreed form. Send the barcode as it is printed.",
    ),
    Rule(
        id="tube.label-system",
        severity=Severity.WARN,
        section=_CONTAINER,
        check=_label_system,
        message="{where}: the system is not written as the interface writes it. Send {system}.",
    ),
    Rule(
        id="tube.label-shared",
        severity=Severity.REFUSE,
        section=_CONTAINER,
        check=_shared,
        message="{where}: barcode {label} is on more than one Specimen of this order. Give every Specimen a barcode of its own.",
    ),
    Rule(
        id="tube.label-in-use",
        severity=Severity.REFUSE,
        section=_CONTAINER,
        check=_in_use,
        message="{where}: barcode {label} is in use for another patient. Check whose tube it is, and label it anew.",
    ),
    Rule(
        id="tube.label-reused",
        severity=Severity.WARN,
        section=_CONTAINER,
        check=_reused,
        message="{where}: barcode {label} is in another order of this patient. If it is not the same tube, label it anew.",
    ),
    Rule(
        id="tube.type",
        severity=Severity.REFUSE,
        section=_CONTAINER,
        check=_type_known,
        message="{where}: {type} is not a container code of this laboratory. Send the container type that pre-analytics gave.",
    ),
    Rule(
        id="tube.type-missing",
        severity=Severity.WARN,
        section=_CONTAINER,
        check=_type_missing,
        message="{where}: is missing. Send the container type that pre-analytics gave.",
    ),
    Rule(
        id="tube.type-system",
        severity=Severity.WARN,
        section=_CONTAINER,
        check=_type_system,
        message="{where}: the system is not written as the interface writes it. Send {system}.",
    ),
    Rule(
        id="tube.type-fits",
        severity=Severity.REFUSE,
        section=_CONTAINER,
        check=_type_fits,
        message="{where}: test {code} cannot be made from container {type}. Collect in the container that pre-analytics names.",
    ),
    Rule(
        id="tube.quantity",
        severity=Severity.REFUSE,
        section=_CONTAINER,
        check=_quantity,
        message="{where}: {quantity} is not a quantity. Send the quantity that pre-analytics gave.",
    ),
    Rule(
        id="tube.quantity-missing",
        severity=Severity.WARN,
        section=_CONTAINER,
        check=_quantity_missing,
        message="{where}: is missing. Send the quantity that pre-analytics gave.",
    ),
    Rule(
        id="tube.quantity-enough",
        severity=Severity.WARN,
        section=_CONTAINER,
        check=_quantity_enough,
        message="{where}: {quantity} is less than the {needed} that test {code} needs. The laboratory may ask for more.",
    ),
)

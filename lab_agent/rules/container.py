"""Rules about containers: barcodes, type, quantity."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from enum import StrEnum

from lab_agent.catalogue.labels import second_label_pattern
from lab_agent.catalogue.model import Item, Requirement
from lab_agent.fhir.patient_identity import PatientMatch
from lab_agent.fhir.received_order import ReceivedContainer, ReceivedSpecimen, patient_key
from lab_agent.rules.context import RuleContext, all_versions_reject, best_coding
from lab_agent.rules.rule import Severity, Violation, rule
from lab_agent.shared.code_systems import SystemMatch
from lab_agent.shared.label_pools import IdentifierPattern

_CONTAINER_SECTION = "Specimen: container"


def _specimen_containers(context: RuleContext) -> Iterator[tuple[ReceivedContainer, tuple[str, ...]]]:
    """The containers that hold biomaterial."""
    for specimen, container, lines in context.containers():
        if _holds_biomaterial(context, specimen, container):
            yield container, lines


def _holds_biomaterial(context: RuleContext, specimen: ReceivedSpecimen, container: ReceivedContainer) -> bool:
    """Whether it is the tube itself: others travel in a transport container, but not in the only one of a Specimen.

    Without a catalogue nobody knows which that is, so it may be any without a barcode beside one that has it (law 10).
    """
    if len(specimen.containers) == 1:
        return True
    if context.container_types:
        return not context.is_transport(container)
    return context.label(container) is not None or not any(map(context.label, specimen.containers))


@rule(
    "tube.label",
    Severity.REFUSE,
    _CONTAINER_SECTION,
    "{where}: the barcode is missing. Please send the barcode of every tube, in the laboratory's label system.",
)
def _check_label(context: RuleContext) -> Iterator[Violation]:
    for specimen, lines in context.specimens():
        if not specimen.containers:
            yield Violation(f"{specimen.where}.container", lines)
    for container, lines in _specimen_containers(context):
        if context.label(container) is None:
            yield Violation(f"{container.where}.identifier", lines)


_Labelled = tuple[ReceivedSpecimen, ReceivedContainer, tuple[str, ...], str]
"""A container with its Specimen, the lines that are made from it, and its barcode."""


def _labelled_containers(context: RuleContext) -> Iterator[_Labelled]:
    for specimen, container, lines in context.containers():
        if label := context.label(container):
            yield specimen, container, lines, label.value


@rule(
    "tube.label-form",
    Severity.REFUSE,
    _CONTAINER_SECTION,
    "{where}: {label} is not a barcode of the agreed form. Please send the barcode as it is printed.",
)
def _check_label_form(context: RuleContext) -> Iterator[Violation]:
    for _, container, lines, label in _labelled_containers(context):
        if not re.fullmatch(context.facts.label_pattern, label):
            yield Violation(f"{container.where}.identifier", lines, {"label": label})


@rule(
    "tube.label-system",
    Severity.WARN,
    _CONTAINER_SECTION,
    "{where}: the system is not spelled as in the interface. Please send {system}.",
)
def _check_label_system(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.labels
    for _, container, lines in context.containers():
        label = context.label(container)
        if label and system.match(label.system) is not SystemMatch.EXACT:
            yield Violation(f"{container.where}.identifier", lines, {"system": system.url})


@rule(
    "tube.label-several",
    Severity.HOLD,
    _CONTAINER_SECTION,
    "{where}: the container has several barcodes of the laboratory's system: {labels}. Please check which one is on the tube, "
    "and send that one alone.",
    may_refuse=True,
    may_release=True,
    look_at_each=True,
)
def _check_label_several(context: RuleContext) -> Iterator[Violation]:
    """Held: the first of them would be a guess, and the wrong one may be another patient's."""
    for _, container, lines in context.containers():
        labels = sorted({each.value for each in context.labels(container)})
        if len(labels) > 1:
            yield Violation(f"{container.where}.identifier", lines, {"labels": ", ".join(labels)}, tuple(labels))


class _Sharing(StrEnum):
    """How two containers with one barcode compare."""

    ONE_TUBE = "one_tube"
    TIMES_DIFFER = "times_differ"
    CONTRADICTORY = "contradictory"


def _shared_labels(context: RuleContext, wanted: _Sharing) -> Iterator[Violation]:
    """The containers whose barcode is on another one of the order too, of the same Specimen or of another."""
    by_label: dict[str, list[_Labelled]] = defaultdict(list)
    for labelled in _labelled_containers(context):
        if _holds_biomaterial(context, labelled[0], labelled[1]):
            by_label[labelled[3]].append(labelled)
    for label, same in by_label.items():
        for one in same:
            found = {_compare_tubes(context, one, other) for other in same if other is not one}
            if found and max(found, key=list(_Sharing).index) is wanted:
                yield Violation(f"{one[1].where}.identifier", one[2], {"label": label})


def _compare_tubes(context: RuleContext, one: _Labelled, other: _Labelled) -> _Sharing:
    """Whether anything that both say contradicts that they are one tube (interface: many tests share one tube)."""
    if any(map(_contradicts, _describe_tube(context, one), _describe_tube(context, other))):
        return _Sharing.CONTRADICTORY
    mine, theirs = (each[0].collected.at if each[0].collected else None for each in (one, other))
    # Each Specimen may be stamped when it was scanned: some minutes are no second tube.
    apart = mine is not None and theirs is not None and abs(mine - theirs) > context.facts.alignment_tolerance
    return _Sharing.TIMES_DIFFER if apart else _Sharing.ONE_TUBE


def _describe_tube(context: RuleContext, labelled: _Labelled) -> tuple[object, ...]:
    """Whose biomaterial, of which type and body site, in which container; None for what is not said."""
    specimen, container = labelled[0], labelled[1]
    type_code, site, _ = context.repeat_key(specimen)
    coding = best_coding(container.type.coding, context.facts.systems.container_type)
    return patient_key(specimen.subject), type_code, site, coding.code if coding else None


def _contradicts(mine: object, theirs: object) -> bool:
    return mine is not None and theirs is not None and mine != theirs


@rule(
    "tube.label-shared",
    Severity.WARN,
    _CONTAINER_SECTION,
    "{where}: barcode {label} is on more than one container of this order, which is right for one shared tube only. Please "
    "send every tube once.",
)
def _check_label_shared(context: RuleContext) -> Iterator[Violation]:
    yield from _shared_labels(context, _Sharing.ONE_TUBE)


@rule(
    "tube.label-times",
    Severity.HOLD,
    _CONTAINER_SECTION,
    "{where}: barcode {label} is on Specimens of this order that were collected at different times. Please check whether it is "
    "one tube; if it is not, put a new barcode on the other one.",
    may_refuse=True,
    may_release=True,
)
def _check_label_times(context: RuleContext) -> Iterator[Violation]:
    yield from _shared_labels(context, _Sharing.TIMES_DIFFER)


@rule(
    "tube.label-contradicts",
    Severity.REFUSE,
    _CONTAINER_SECTION,
    "{where}: barcode {label} is on containers of this order that cannot be one tube: the patient, the biomaterial or the "
    "container differs. Please give every tube a barcode of its own.",
)
def _check_label_contradicts(context: RuleContext) -> Iterator[Violation]:
    yield from _shared_labels(context, _Sharing.CONTRADICTORY)


def _barcodes(context: RuleContext) -> Iterator[tuple[ReceivedContainer, tuple[str, ...], str]]:
    """Every barcode of the order, second ones included."""
    for _, container, lines in context.containers():
        yield from ((container, lines, each) for each in context.barcodes(container))


@rule(
    "tube.label-in-use",
    Severity.HOLD,
    _CONTAINER_SECTION,
    "{where}: barcode {label} is in use for a patient who is not this one, or may not be. Please check whose tube it is; if it "
    "is not the same tube, put a new barcode on it.",
    may_refuse=True,
    may_release=True,
    look_at_each=True,  # a tube may be another patient's
)
def _check_label_in_use(context: RuleContext) -> Iterator[Violation]:
    """Held, for the laboratory may have issued a barcode twice itself (law 10); a Patient created anew is compared."""
    for container, lines, label in _barcodes(context):
        others = [each for each in context.facts.labels_in_use.get(label, ()) if each.match is not PatientMatch.SAME]
        if others:
            evidence = (label, str(context.order.patient_reference), *sorted(f"{each.order} {each.match}" for each in others))
            yield Violation(f"{container.where}.identifier", lines, {"label": label}, evidence)


@rule(
    "tube.label-reused",
    Severity.WARN,
    _CONTAINER_SECTION,
    "{where}: barcode {label} is in another order of this patient. If it is not the same tube, please put a new barcode on it.",
)
def _check_label_reused(context: RuleContext) -> Iterator[Violation]:
    for container, lines, label in _barcodes(context):
        if any(each.match is PatientMatch.SAME for each in context.facts.labels_in_use.get(label, ())):
            yield Violation(f"{container.where}.identifier", lines, {"label": label})


def _two_barcode_containers(context: RuleContext) -> Iterator[tuple[ReceivedContainer, str, IdentifierPattern, str]]:
    """The containers of two-barcode studies, with the line, the pattern of the second barcode, and the study."""
    for line, items, specimen in context.line_specimens():
        if pattern := _second_label_pattern(items):
            containers = (each for each in specimen.containers if not context.is_transport(each))
            yield from ((each, line.id, pattern, items[0].id) for each in containers)


def _second_label_pattern(items: Iterable[Item]) -> IdentifierPattern | None:
    """The pattern of the second barcode that a test needs in any catalogue version; None where it needs none."""
    return next((pattern for item in items if (pattern := second_label_pattern(item))), None)


@rule(
    "tube.second-label",
    Severity.REFUSE,
    "Create order: rule 3",
    "{where}: study {code} needs a second barcode of the form {shape}. Please send both barcodes of the container.",
)
def _check_second_label(context: RuleContext) -> Iterator[Violation]:
    for container, line, pattern, code in _two_barcode_containers(context):
        if not any(map(pattern.matches, context.second_label_candidates(container))):
            yield Violation(f"{container.where}.identifier", (line,), {"code": code, "shape": str(pattern)})


def _second_labels_by_form(context: RuleContext) -> Iterator[tuple[ReceivedContainer, str, str, tuple[str, ...]]]:
    """The containers without a second barcode in its system, where another number has its form: with line, study and numbers."""
    for container, line, pattern, code in _two_barcode_containers(context):
        formed = tuple(filter(pattern.matches, context.second_label_candidates(container)))
        if formed and not context.second_labels(container):
            yield container, line, code, formed


@rule(
    "tube.second-label-system",
    Severity.HOLD,
    "Create order: rule 3",
    "{where}: {label} has the form of the second barcode of study {code}, and is not in its system. The laboratory checks its "
    "own setting ([exchange] second_labels_system); if that is right, please send the second barcode in the system {system}.",
    may_refuse=True,
    may_release=True,
    look_at_each=True,
)
def _check_second_label_system(context: RuleContext) -> Iterator[Violation]:
    """A number of another system is no second barcode, and our setting of that system may be wrong (law 10), so it is held."""
    if system := context.facts.systems.second_labels_system:
        for container, line, code, labels in _second_labels_by_form(context):
            values = {"system": system, "code": code, "label": ", ".join(labels)}
            yield Violation(f"{container.where}.identifier", (line,), values, labels)


@rule(
    "tube.second-label-unset",
    Severity.HOLD,
    "Create order: rule 3",
    "{where}: study {code} needs a second barcode, and the laboratory has not set its system ([exchange] second_labels_system), "
    "so nobody can tell whether {label} is one. The order waits until the laboratory has set it.",
    may_release=True,
    look_at_each=True,
)
def _check_second_label_unset(context: RuleContext) -> Iterator[Violation]:
    if context.facts.systems.second_labels_system is None:
        for container, line, code, labels in _second_labels_by_form(context):
            values = {"code": code, "label": ", ".join(labels)}
            yield Violation(f"{container.where}.identifier", (line,), values, labels)


@rule(
    "tube.type",
    Severity.REFUSE,
    _CONTAINER_SECTION,
    "{where}: {type} is not a container code of this laboratory. Please send the container type that pre-analytics gave.",
)
def _check_type(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.container_type
    for _, container, lines in context.containers() if context.container_types else ():
        coding = best_coding(container.type.coding, system)
        foreign = coding and system.match(coding.system) is SystemMatch.FOREIGN
        if coding and (foreign or coding.code not in context.container_types):
            yield Violation(f"{container.where}.type", lines, {"type": coding.code})


@rule(
    "tube.type-missing",
    Severity.WARN,
    _CONTAINER_SECTION,
    "{where}: the container type is missing. Please send the container type that pre-analytics gave.",
)
def _check_type_missing(context: RuleContext) -> Iterator[Violation]:
    """A container without a type, where pre-analytics names one: not every test does."""
    for line, items, specimen in context.line_specimens():
        if all(item.container_types(context.type_or_empty(specimen)) for item in items):
            untyped = (container for container in specimen.containers if not container.type.coding)
            yield from (Violation(f"{container.where}.type", (line.id,)) for container in untyped)


@rule(
    "tube.type-system",
    Severity.WARN,
    _CONTAINER_SECTION,
    "{where}: the system is not spelled as in the interface. Please send {system}.",
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
    "{where}: test {code} cannot be made from container {type}. Please collect in the container that pre-analytics names.",
)
def _check_type_fits(context: RuleContext) -> Iterator[Violation]:
    for line, items, specimen in context.line_specimens():
        for container in specimen.containers:
            coding = best_coding(container.type.coding, context.facts.systems.container_type)
            if coding is None or coding.code not in context.container_types - context.transport_types:
                continue  # unknown codes are the matter of tube.type; others travel in the rest
            if all_versions_reject(_accepts_container(item, context.type_or_empty(specimen), coding.code) for item in items):
                yield Violation(f"{container.where}.type", (line.id,), {"type": coding.code, "code": items[0].id})


def _accepts_container(item: Item, specimen_type: str, container_type: str) -> bool:
    """Whether the item takes that container, or any; of a specimen type that it does not take, nothing is said here."""
    wanted = item.container_types(specimen_type)
    return not wanted or container_type in wanted


@rule(
    "tube.quantity",
    Severity.REFUSE,
    _CONTAINER_SECTION,
    "{where}: {quantity} is not a possible quantity. Please send the quantity that pre-analytics gave.",
)
def _check_quantity(context: RuleContext) -> Iterator[Violation]:
    for _, container, lines in context.containers():
        if container.quantity is not None and container.quantity <= 0:
            values = {"quantity": f"{container.quantity:f}"}
            yield Violation(f"{container.where}.specimenQuantity.value", lines, values)


@rule(
    "tube.quantity-missing",
    Severity.WARN,
    _CONTAINER_SECTION,
    "{where}: the quantity is missing. Please send the quantity that pre-analytics gave.",
)
def _check_quantity_missing(context: RuleContext) -> Iterator[Violation]:
    for container, lines in _specimen_containers(context):
        if container.quantity is None:
            yield Violation(f"{container.where}.specimenQuantity.value", lines)


@rule(
    "tube.quantity-enough",
    Severity.WARN,
    _CONTAINER_SECTION,
    "{where}: {quantity} is less than the {needed} that test {code} needs. The laboratory may ask for more.",
)
def _check_quantity_enough(context: RuleContext) -> Iterator[Violation]:
    for line, items, specimen in context.line_specimens():
        given = [each.quantity for each in specimen.containers if each.quantity is not None and each.quantity > 0]
        requirements = items[0].requirements_of_type(context.type_or_empty(specimen))
        needed = min(map(_minimum_volume, requirements), default=Decimal(0))
        if given and sum(given) < needed:
            values = {"quantity": f"{sum(given):f}", "needed": f"{needed:f}", "code": items[0].id}
            yield Violation(f"{specimen.where}.container", (line.id,), values)


def _minimum_volume(need: Requirement) -> Decimal:
    """What one tube must hold at least: the volume, or the rest of one that is split over several tubes."""
    usable = need.container.usable_volume if need.container else None
    return need.volume if usable is None else min(need.volume, need.volume % usable or usable)

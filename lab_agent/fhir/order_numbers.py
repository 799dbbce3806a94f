"""Which of the values that an order gives for one thing counts: barcodes, old order number, supportingInfo. Their system decides.

The rules and what is handed over ask here, so that the number that was checked is the one that the laboratory gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lab_agent.fhir.received_order import Extension
from lab_agent.shared.code_systems import CodeSystem, CodeSystems, SystemMatch
from lab_agent.shared.values import Identifier

_BEST_FIRST = (SystemMatch.EXACT, SystemMatch.SPELLED_DIFFERENTLY, SystemMatch.MISSING)

HasForm = Callable[[str], bool]
"""Whether a number has the form of a second barcode that one of the order's tests needs."""


def best_matches(identifiers: Sequence[Identifier], system: CodeSystem) -> tuple[Identifier, ...]:
    """Those whose system matches best: its exact URL before another spelling before none; a foreign system never counts."""
    matches = [(system.match(each.system), each) for each in identifiers]
    best = next((wanted for wanted in _BEST_FIRST if any(match is wanted for match, _ in matches)), None)
    return tuple(dict.fromkeys(each for match, each in matches if match is best))


def label_matches(identifiers: Sequence[Identifier], systems: CodeSystems, has_second_form: HasForm) -> tuple[Identifier, ...]:
    """What may be the laboratory's barcode: the best matches; of several, those that are no second barcode by their form."""
    found = best_matches([each for each in identifiers if not is_second_label(each, systems)], systems.labels)
    return tuple(each for each in found if not has_second_form(each.value)) or found


def choose_label(identifiers: Sequence[Identifier], systems: CodeSystems, has_second_form: HasForm) -> Identifier | None:
    """The laboratory's barcode of a container; the first where the order gives several, which a rule holds."""
    return next(iter(label_matches(identifiers, systems, has_second_form)), None)


def known_second_labels(identifiers: Sequence[Identifier], systems: CodeSystems) -> tuple[str, ...]:
    """The second barcodes of a container, by their system; studies that share it may each have one."""
    return tuple(each.value for each in identifiers if is_second_label(each, systems))


def second_label_candidates(identifiers: Sequence[Identifier], systems: CodeSystems, has_second_form: HasForm) -> tuple[str, ...]:
    """What may be a second barcode: those of its system; where there is none, every other number but the laboratory's barcode.

    Their form decides then, and a rule holds the order: the system may be misspelt, or not set here.
    """
    label = choose_label(identifiers, systems, has_second_form)
    others = (each.value for each in identifiers if each != label)
    return tuple(dict.fromkeys(known_second_labels(identifiers, systems) or others))


def choose_second_label(identifiers: Sequence[Identifier], systems: CodeSystems, has_second_form: HasForm) -> str | None:
    """The second barcode that is handed over: the first candidate of the form, else the first of its system."""
    formed = filter(has_second_form, second_label_candidates(identifiers, systems, has_second_form))
    return next(iter((*formed, *known_second_labels(identifiers, systems))), None)


def is_second_label(identifier: Identifier, systems: CodeSystems) -> bool:
    """Whether this is in the system of second barcodes, as the installation has set it."""
    second = systems.second_labels
    return second is not None and second.match(identifier.system) in {SystemMatch.EXACT, SystemMatch.SPELLED_DIFFERENTLY}


def choose_old_order(identifiers: Sequence[Identifier], systems: CodeSystems) -> Identifier | None:
    """The number of the earlier order (interface: order rule 4), by its system; None where there are several different ones."""
    found = best_matches(identifiers, systems.old_orders)
    return found[0] if len({each.value for each in found}) == 1 else None


def choose_supporting_info(extensions: Sequence[Extension], systems: CodeSystems) -> str | None:
    """The supportingInfo of a Specimen: of the extensions with a value the one whose address matches best."""
    urls = systems.supporting_info
    ours = (each for each in extensions if each.value and urls.match(each.url) is not SystemMatch.FOREIGN)
    best = min(ours, key=lambda each: urls.rank(each.url), default=None)
    return best.value if best else None

"""Rules about biomaterial: whose it is, of which type, taken how."""

from __future__ import annotations

from collections.abc import Iterator

from lab_agent.catalogue.model import Item
from lab_agent.fhir.received_order import ReceivedLine, ReceivedRequest, patient_key
from lab_agent.rules.context import RuleContext, all_versions_reject, best_coding
from lab_agent.rules.rule import Severity, Violation, rule
from lab_agent.shared.code_systems import SystemMatch

_TYPE_SECTION = "Specimen: type"


@rule(
    "specimen.present",
    Severity.REFUSE,
    "ProcedureRequest: specimen",
    "{where}: test {code} has no Specimen. Please refer to the Specimens that it is made from.",
)
def _check_present(context: RuleContext) -> Iterator[Violation]:
    if not any(request.specimens for _, request in context.lines_with_requests()):
        return
    for line, request, items in context.known_lines():
        if not request.specimens and not all_versions_reject(bool(item.requirements) for item in items):
            yield Violation(f"{request.where}.specimen", (line.id,), {"code": items[0].id})


@rule(
    "specimen.patient",
    Severity.REFUSE,
    "Specimen: subject",
    "{where}: this is not the patient of the test. Please check whose biomaterial it is, and refer to that patient.",
)
def _check_patient(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        wanted = patient_key(request.subject)
        for specimen in context.order.specimens_of(request):
            is_unusable = specimen.subject is not None and specimen.subject.is_unusable
            if wanted is not None and patient_key(specimen.subject) != wanted and not is_unusable:
                yield Violation(f"{specimen.where}.subject", (line.id,))


@rule(
    "specimen.type",
    Severity.REFUSE,
    _TYPE_SECTION,
    "{where}: no biomaterial type is named. Please send the code that pre-analytics gave, in the system {system}.",
)
def _check_type(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.specimen_type
    for specimen, lines in context.specimens():
        if context.specimen_type_code(specimen) is None:
            yield Violation(f"{specimen.where}.type", lines, {"system": system.url})


@rule(
    "specimen.type-system",
    Severity.WARN,
    _TYPE_SECTION,
    "{where}: the system is not spelled as in the interface. Please send {system}.",
)
def _check_type_system(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.specimen_type
    for specimen, lines in context.specimens():
        coding = best_coding(specimen.type.coding, system)
        if coding and system.match(coding.system) in {SystemMatch.SPELLED_DIFFERENTLY, SystemMatch.MISSING}:
            yield Violation(f"{specimen.where}.type.coding", lines, {"system": system.url})


@rule(
    "specimen.type-offered",
    Severity.REFUSE,
    _TYPE_SECTION,
    "{where}: test {code} is not made from biomaterial type {type}. Please collect one of: {offered}.",
)
def _check_type_offered(context: RuleContext) -> Iterator[Violation]:
    for line, items, specimen in context.line_specimens():
        code = context.specimen_type_code(specimen)
        if code is not None and all_versions_reject(_takes_type(item, code) for item in items):
            offered = ", ".join(sorted(items[0].option_types | items[0].required_types))
            values = {"type": code, "code": items[0].id, "offered": offered}
            yield Violation(f"{specimen.where}.type", (line.id,), values)


def _takes_type(item: Item, code: str) -> bool:
    return not item.requirements or bool(item.requirements_of_type(code))


def _types_received(context: RuleContext, request: ReceivedRequest, item: Item) -> frozenset[str]:
    """The types that a line comes with; for an item of several types, over all lines of it."""
    requests = [request]
    if item.multiple_specimen:
        requests = [each for _, each, items in context.known_lines() if items[0].id == item.id]
    found = (context.specimen_type_code(specimen) for each in requests for specimen in context.order.specimens_of(each))
    return frozenset(code for code in found if code is not None)


def _lines_with_typed_specimens(context: RuleContext) -> Iterator[tuple[ReceivedLine, ReceivedRequest, tuple[Item, ...]]]:
    """The known lines all of whose Specimens were read and have a type: only of these can it be said what is missing."""
    for line, request, items in context.known_lines():
        specimens = context.order.specimens_of(request)
        all_read = len(specimens) == len(request.specimens) > 0
        if all_read and all(context.specimen_type_code(each) for each in specimens):
            yield line, request, items


@rule(
    "specimen.one-type",
    Severity.REFUSE,
    "Create order: rule 2",
    "{where}: test {code} is made from exactly one of these biomaterial types: {offered}. Please order it once for each "
    "type that you want.",
)
def _check_one_type(context: RuleContext) -> Iterator[Violation]:
    for line, request, items in _lines_with_typed_specimens(context):
        if all_versions_reject(_has_valid_choice(item, _types_received(context, request, item)) for item in items):
            values = {"code": items[0].id, "offered": ", ".join(sorted(items[0].option_types))}
            yield Violation(f"{request.where}.specimen", (line.id,), values)


def _has_valid_choice(item: Item, types: frozenset[str]) -> bool:
    chosen, only = types & item.option_types, types & (item.option_types - item.required_types)
    if not item.option_types or types - item.option_types - item.required_types:
        return True
    return bool(chosen) and (item.multiple_specimen or len(only or chosen) == 1)


@rule(
    "specimen.required",
    Severity.REFUSE,
    "Nomenclature item: required_specimen",
    "{where}: test {code} also needs biomaterial type {missing}. Please collect it as pre-analytics describes.",
)
def _check_required(context: RuleContext) -> Iterator[Violation]:
    for line, request, items in _lines_with_typed_specimens(context):
        if all_versions_reject(item.required_types <= _types_received(context, request, item) for item in items):
            missing = ", ".join(sorted(items[0].required_types - _types_received(context, request, items[0])))
            yield Violation(f"{request.where}.specimen", (line.id,), {"code": items[0].id, "missing": missing})


@rule(
    "specimen.site",
    Severity.WARN,
    "Specimen: extension",
    "{where}: test {code} is not made from material of body site {site}. Please copy supportingInfo as pre-analytics gave it.",
)
def _check_site(context: RuleContext) -> Iterator[Violation]:
    """A type that the test takes only from certain body sites, and from none that the Specimen names."""
    for line, items, specimen in context.line_specimens():
        site, code = context.supporting_info(specimen).bodysite_code, context.type_or_empty(specimen)
        known = {need.option.bodysite_code for item in items for need in item.requirements_of_type(code)}
        if site is not None and known and site not in known:
            yield Violation(f"{specimen.where}.extension", (line.id,), {"site": site, "code": items[0].id})


@rule(
    "specimen.method-system",
    Severity.WARN,
    "Specimen: collection",
    "{where}: the system is not spelled as in the interface. Please send {system}.",
)
def _check_method_system(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.method
    for specimen, lines in context.specimens():
        coding = best_coding(specimen.method.coding, system)
        if coding and system.match(coding.system) is not SystemMatch.EXACT:
            yield Violation(f"{specimen.where}.collection.method.coding", lines, {"system": system.url})


@rule(
    "specimen.method",
    Severity.WARN,
    "Specimen: collection",
    "{where}: pre-analytics does not give this collection method for test {code}. Please send the method as it was given.",
)
def _check_method(context: RuleContext) -> Iterator[Violation]:
    for line, items, specimen in context.line_specimens():
        coding = best_coding(specimen.method.coding, context.facts.systems.method)
        code = context.type_or_empty(specimen)
        known = {method for item in items for need in item.requirements_of_type(code) for method in need.methods}
        if known and (coding is None or coding.code not in known):
            yield Violation(f"{specimen.where}.collection.method", (line.id,), {"code": items[0].id})


@rule(
    "specimen.extension",
    Severity.WARN,
    "Specimen: extension",
    "{where}: there must be exactly one object, with url {url} and the supportingInfo of pre-analytics. Please copy it as "
    "it was given.",
)
def _check_extension(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.supporting_info
    for specimen, lines in context.specimens():
        fits = [system.match(each.url) is SystemMatch.EXACT and bool(each.value) for each in specimen.extensions]
        if fits != [True]:
            yield Violation(f"{specimen.where}.extension", lines, {"url": system.url})

"""Rules about biomaterial: whose it is, of which type, taken how and when."""

from __future__ import annotations

from collections.abc import Iterator

from lab_agent.catalogue.items import Item
from lab_agent.domain.received import ReceivedLine, ReceivedRequest, subject_key
from lab_agent.domain.systems import SystemMatch
from lab_agent.rules import tolerance
from lab_agent.rules.case import Case, coding_of, none_of
from lab_agent.rules.material import info, type_code
from lab_agent.rules.rule import Problem, Rule, Severity


def _present(case: Case) -> Iterator[Problem]:
    if not any(request.specimens for _, request in case.lines()):
        return
    for line, request, items in case.known_lines():
        if not request.specimens and not none_of(bool(item.requirements) for item in items):
            yield Problem(f"{request.where}.specimen", (line.id,), {"code": items[0].id})


def _patient(case: Case) -> Iterator[Problem]:
    for line, request in case.lines():
        wanted = subject_key(request.subject)
        for specimen in case.order.specimens_of(request):
            if wanted is not None and subject_key(specimen.subject) != wanted:
                yield Problem(f"{specimen.where}.subject", (line.id,))


def _type(case: Case) -> Iterator[Problem]:
    system = case.facts.systems.specimen_type
    for specimen, lines in case.specimens():
        if type_code(case, specimen) is None:
            yield Problem(f"{specimen.where}.type", lines, {"system": system.address})


def _type_system(case: Case) -> Iterator[Problem]:
    system = case.facts.systems.specimen_type
    for specimen, lines in case.specimens():
        coding = coding_of(specimen.type.coding, system)
        if coding and system.match(coding.system) in {SystemMatch.SPELLED, SystemMatch.MISSING}:
            yield Problem(f"{specimen.where}.type.coding", lines, {"system": system.address})


def _type_offered(case: Case) -> Iterator[Problem]:
    for line, request, items in case.known_lines():
        for specimen in case.order.specimens_of(request):
            code = type_code(case, specimen)
            if code is not None and none_of(not item.requirements or bool(item.of_type(code)) for item in items):
                offered = ", ".join(sorted(items[0].option_types | items[0].required_types))
                values = {"type": code, "code": items[0].id, "offered": offered}
                yield Problem(f"{specimen.where}.type", (line.id,), values)


def _types(case: Case, request: ReceivedRequest, item: Item) -> frozenset[str]:
    """The types that a line comes with; for an item of several types, over all lines of it."""
    requests = [request]
    if item.multiple_specimen:
        requests = [each for _, each, items in case.known_lines() if items[0].id == item.id]
    found = (type_code(case, specimen) for each in requests for specimen in case.order.specimens_of(each))
    return frozenset(code for code in found if code is not None)


def _typed_lines(case: Case) -> Iterator[tuple[ReceivedLine, ReceivedRequest, tuple[Item, ...]]]:
    """The known lines all of whose Specimens were read and have a type: only of these can it be said what is missing."""
    for line, request, items in case.known_lines():
        specimens = case.order.specimens_of(request)
        if specimens and len(specimens) == len(request.specimens) and all(type_code(case, each) for each in specimens):
            yield line, request, items


def _one_type(case: Case) -> Iterator[Problem]:
    for line, request, items in _typed_lines(case):
        if none_of(_choice_made(item, _types(case, request, item)) for item in items):
            values = {"code": items[0].id, "offered": ", ".join(sorted(items[0].option_types))}
            yield Problem(f"{request.where}.specimen", (line.id,), values)


def _choice_made(item: Item, types: frozenset[str]) -> bool:
    chosen, only = types & item.option_types, types & (item.option_types - item.required_types)
    if not item.option_types or types - item.option_types - item.required_types:
        return True
    return bool(chosen) and (item.multiple_specimen or len(only or chosen) == 1)


def _required(case: Case) -> Iterator[Problem]:
    for line, request, items in _typed_lines(case):
        if none_of(item.required_types <= _types(case, request, item) for item in items):
            missing = ", ".join(sorted(items[0].required_types - _types(case, request, items[0])))
            yield Problem(f"{request.where}.specimen", (line.id,), {"code": items[0].id, "missing": missing})


def _method_system(case: Case) -> Iterator[Problem]:
    system = case.facts.systems.method
    for specimen, lines in case.specimens():
        coding = coding_of(specimen.method.coding, system)
        if coding and system.match(coding.system) is not SystemMatch.EXACT:
            yield Problem(f"{specimen.where}.collection.method.coding", lines, {"system": system.address})


def _method(case: Case) -> Iterator[Problem]:
    for line, request, items in case.known_lines():
        for specimen in case.order.specimens_of(request):
            code, coding = type_code(case, specimen), coding_of(specimen.method.coding, case.facts.systems.method)
            known = {method for item in items for need in item.of_type(code or "") for method in need.methods}
            if known and (coding is None or coding.code not in known):
                yield Problem(f"{specimen.where}.collection.method", (line.id,), {"code": items[0].id})


def _collected(case: Case) -> Iterator[Problem]:
    for specimen, lines in case.specimens():
        if specimen.collected and specimen.collected.at is None:
            yield Problem(f"{specimen.where}.collection.collectedDateTime", lines, {"text": specimen.collected.text})


def _collected_future(case: Case) -> Iterator[Problem]:
    for specimen, lines in case.specimens():
        at = specimen.collected.at if specimen.collected else None
        if at and at > case.facts.now + case.facts.future_tolerance:
            yield Problem(f"{specimen.where}.collection.collectedDateTime", lines, {"text": at.isoformat()})


def _extension(case: Case) -> Iterator[Problem]:
    system = case.facts.systems.supporting_info
    for specimen, lines in case.specimens():
        fits = [system.match(each.url) is SystemMatch.EXACT and bool(each.value) for each in specimen.extensions]
        if fits != [True]:
            yield Problem(f"{specimen.where}.extension", lines, {"url": system.address})


def _site(case: Case) -> Iterator[Problem]:
    """A type that the test takes only from certain body sites, and from none that the Specimen names."""
    for line, request, items in case.known_lines():
        for specimen in case.order.specimens_of(request):
            site, code = info(case, specimen).bodysite_code, type_code(case, specimen)
            known = {need.option.bodysite_code for item in items for need in item.of_type(code or "")}
            if site is not None and known and site not in known:
                yield Problem(f"{specimen.where}.extension", (line.id,), {"site": site, "code": items[0].id})


_TYPE = "Specimen: type"
RULES = (
    Rule(
        id="specimen.present",
        severity=Severity.REFUSE,
        section="ProcedureRequest: specimen",
        check=_present,
        message="{where}: test {code} has no Specimen. Send the references of the Specimens that it is made from.",
    ),
    Rule(
        id="specimen.patient",
        severity=Severity.REFUSE,
        section="Specimen: subject",
        check=_patient,
        message="{where}: is not the patient of the test. Check whose biomaterial it is, and send that patient's reference.",
    ),
    Rule(
        id="specimen.type",
        severity=Severity.REFUSE,
        section=_TYPE,
        check=_type,
        message="{where}: names no biomaterial type. Send the code that pre-analytics gave, in the system {system}.",
    ),
    Rule(
        id="specimen.type-system",
        severity=Severity.WARN,
        section=_TYPE,
        check=_type_system,
        message="{where}: the system is not written as the interface writes it. Send {system}.",
    ),
    Rule(
        id="specimen.type-offered",
        severity=Severity.REFUSE,
        section=_TYPE,
        check=_type_offered,
        message="{where}: test {code} is not made from biomaterial type {type}. Collect one of {offered}.",
    ),
    Rule(
        id="specimen.one-type",
        severity=Severity.REFUSE,
        section="Create order: rule 2",
        check=_one_type,
        message="{where}: test {code} is made from exactly one chosen type of {offered}. Order it once for each type that is "
        "wanted.",
    ),
    Rule(
        id="specimen.required",
        severity=Severity.REFUSE,
        section="Nomenclature item: required_specimen",
        check=_required,
        message="{where}: test {code} also needs biomaterial type {missing}. Collect it as pre-analytics says.",
    ),
    Rule(
        id="specimen.site",
        severity=Severity.WARN,
        section="Specimen: extension",
        check=_site,
        message="{where}: test {code} is not taken from body site {site}. Copy supportingInfo as pre-analytics gave it.",
    ),
    Rule(
        id="specimen.method-system",
        severity=Severity.WARN,
        section="Specimen: collection",
        check=_method_system,
        message="{where}: the system is not written as the interface writes it. Send {system}.",
    ),
    Rule(
        id="specimen.method",
        severity=Severity.WARN,
        section="Specimen: collection",
        check=_method,
        message="{where}: is not a collection method that pre-analytics gives for test {code}. Send the method as it was given.",
    ),
    Rule(
        id="specimen.collected",
        severity=Severity.REFUSE,
        section="Specimen: collection",
        check=_collected,
        message="{where}: {text} is not a date and time with offset. Send the time of collection with its offset.",
    ),
    Rule(
        id="specimen.collected-future",
        severity=Severity.REFUSE,
        section="Specimen: collection",
        check=_collected_future,
        message="{where}: {text} is in the future. Send the time at which the biomaterial was taken.",
    ),
    Rule(
        id="specimen.extension",
        severity=Severity.WARN,
        section="Specimen: extension",
        check=_extension,
        message="{where}: must hold one object, with url {url} and the supportingInfo of pre-analytics. Copy it as given.",
    ),
    *tolerance.RULES,
)

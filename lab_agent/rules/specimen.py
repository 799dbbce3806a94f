"""Rules about biomaterial: whose it is, of which type, taken how and when.

Rules about glucose tolerance tests: every sample has its time, and the times follow the test's time points.

Which tests these are is a property of the catalogue's item. The time point of a Specimen is told by its supportingInfo (as our
pre-analytics gave it), or else by its place in time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from lab_agent.catalogue.model import Item
from lab_agent.domain.code_systems import SystemMatch
from lab_agent.domain.received_order import ReceivedLine, ReceivedRequest, ReceivedSpecimen, patient_key
from lab_agent.rules.context import RuleContext, all_versions_reject, best_coding, specimen_supporting_info, specimen_type_code
from lab_agent.rules.rule import Severity, Violation, rule

TimedSample = tuple[int, datetime]
"""Minutes after the load that it is meant for, and when it was taken."""

_TOLERANCE_SECTION = "Specimen: collection (glucose tolerance tests)"
_TYPE_SECTION = "Specimen: type"


@rule(
    "specimen.present",
    Severity.REFUSE,
    "ProcedureRequest: specimen",
    "{where}: test {code} has no Specimen. Send the references of the Specimens that it is made from.",
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
    "{where}: is not the patient of the test. Check whose biomaterial it is, and send that patient's reference.",
)
def _check_patient(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        wanted = patient_key(request.subject)
        for specimen in context.order.specimens_of(request):
            if wanted is not None and patient_key(specimen.subject) != wanted:
                yield Violation(f"{specimen.where}.subject", (line.id,))


@rule(
    "specimen.type",
    Severity.REFUSE,
    _TYPE_SECTION,
    "{where}: names no biomaterial type. Send the code that pre-analytics gave, in the system {system}.",
)
def _check_type(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.specimen_type
    for specimen, lines in context.specimens():
        if specimen_type_code(context, specimen) is None:
            yield Violation(f"{specimen.where}.type", lines, {"system": system.url})


@rule(
    "specimen.type-system",
    Severity.WARN,
    _TYPE_SECTION,
    "{where}: the system is not written as the interface writes it. Send {system}.",
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
    "{where}: test {code} is not made from biomaterial type {type}. Collect one of {offered}.",
)
def _check_type_offered(context: RuleContext) -> Iterator[Violation]:
    for line, request, items in context.known_lines():
        for specimen in context.order.specimens_of(request):
            code = specimen_type_code(context, specimen)
            if code is not None and all_versions_reject(
                not item.requirements or bool(item.requirements_of_type(code)) for item in items
            ):
                offered = ", ".join(sorted(items[0].option_types | items[0].required_types))
                values = {"type": code, "code": items[0].id, "offered": offered}
                yield Violation(f"{specimen.where}.type", (line.id,), values)


def _types_received(context: RuleContext, request: ReceivedRequest, item: Item) -> frozenset[str]:
    """The types that a line comes with; for an item of several types, over all lines of it."""
    requests = [request]
    if item.multiple_specimen:
        requests = [each for _, each, items in context.known_lines() if items[0].id == item.id]
    found = (specimen_type_code(context, specimen) for each in requests for specimen in context.order.specimens_of(each))
    return frozenset(code for code in found if code is not None)


def _lines_with_typed_specimens(context: RuleContext) -> Iterator[tuple[ReceivedLine, ReceivedRequest, tuple[Item, ...]]]:
    """The known lines all of whose Specimens were read and have a type: only of these can it be said what is missing."""
    for line, request, items in context.known_lines():
        specimens = context.order.specimens_of(request)
        if (
            specimens
            and len(specimens) == len(request.specimens)
            and all(specimen_type_code(context, each) for each in specimens)
        ):
            yield line, request, items


@rule(
    "specimen.one-type",
    Severity.REFUSE,
    "Create order: rule 2",
    "{where}: test {code} is made from exactly one chosen type of {offered}. Order it once for each type that is wanted.",
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
    "{where}: test {code} also needs biomaterial type {missing}. Collect it as pre-analytics says.",
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
    "{where}: test {code} is not taken from body site {site}. Copy supportingInfo as pre-analytics gave it.",
)
def _check_site(context: RuleContext) -> Iterator[Violation]:
    """A type that the test takes only from certain body sites, and from none that the Specimen names."""
    for line, request, items in context.known_lines():
        for specimen in context.order.specimens_of(request):
            site, code = specimen_supporting_info(context, specimen).bodysite_code, specimen_type_code(context, specimen)
            known = {need.option.bodysite_code for item in items for need in item.requirements_of_type(code or "")}
            if site is not None and known and site not in known:
                yield Violation(f"{specimen.where}.extension", (line.id,), {"site": site, "code": items[0].id})


@rule(
    "specimen.method-system",
    Severity.WARN,
    "Specimen: collection",
    "{where}: the system is not written as the interface writes it. Send {system}.",
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
    "{where}: is not a collection method that pre-analytics gives for test {code}. Send the method as it was given.",
)
def _check_method(context: RuleContext) -> Iterator[Violation]:
    for line, request, items in context.known_lines():
        for specimen in context.order.specimens_of(request):
            code, coding = (
                specimen_type_code(context, specimen),
                best_coding(specimen.method.coding, context.facts.systems.method),
            )
            known = {method for item in items for need in item.requirements_of_type(code or "") for method in need.methods}
            if known and (coding is None or coding.code not in known):
                yield Violation(f"{specimen.where}.collection.method", (line.id,), {"code": items[0].id})


@rule(
    "specimen.collected",
    Severity.REFUSE,
    "Specimen: collection",
    "{where}: {text} is not a date and time with offset. Send the time of collection with its offset.",
)
def _check_collected(context: RuleContext) -> Iterator[Violation]:
    for specimen, lines in context.specimens():
        if specimen.collected and specimen.collected.at is None:
            yield Violation(f"{specimen.where}.collection.collectedDateTime", lines, {"text": specimen.collected.text})


@rule(
    "specimen.collected-future",
    Severity.REFUSE,
    "Specimen: collection",
    "{where}: {text} is in the future. Send the time at which the biomaterial was taken.",
)
def _check_collected_future(context: RuleContext) -> Iterator[Violation]:
    for specimen, lines in context.specimens():
        at = specimen.collected.at if specimen.collected else None
        if at and at > context.facts.now + context.facts.future_tolerance:
            yield Violation(f"{specimen.where}.collection.collectedDateTime", lines, {"text": at.isoformat()})


@rule(
    "specimen.extension",
    Severity.WARN,
    "Specimen: extension",
    "{where}: must hold one object, with url {url} and the supportingInfo of pre-analytics. Copy it as given.",
)
def _check_extension(context: RuleContext) -> Iterator[Violation]:
    system = context.facts.systems.supporting_info
    for specimen, lines in context.specimens():
        fits = [system.match(each.url) is SystemMatch.EXACT and bool(each.value) for each in specimen.extensions]
        if fits != [True]:
            yield Violation(f"{specimen.where}.extension", lines, {"url": system.url})


def _tolerance_tests(context: RuleContext) -> Iterator[tuple[ReceivedLine, ReceivedRequest, Item, list[ReceivedSpecimen]]]:
    for line, request, items in context.known_lines():
        item = items[0]
        if not item.time_points:
            continue
        types = {need.specimen_code for need in item.requirements if need.time_points}
        timed = [each for each in context.order.specimens_of(request) if specimen_type_code(context, each) in types]
        if timed:
            yield line, request, item, timed


@rule(
    "specimen.tolerance-time",
    Severity.REFUSE,
    _TOLERANCE_SECTION,
    "{where}: is missing, and test {code} needs the time of every sample. Send it.",
)
def _check_tolerance_time(context: RuleContext) -> Iterator[Violation]:
    for line, _, item, specimens in _tolerance_tests(context):
        for specimen in specimens:
            if specimen.collected is None:
                yield Violation(f"{specimen.where}.collection.collectedDateTime", (line.id,), {"code": item.id})


@rule(
    "specimen.tolerance-points",
    Severity.REFUSE,
    _TOLERANCE_SECTION,
    "{where}: test {code} needs a sample at each of {points} minutes. Send a Specimen for each.",
)
def _check_tolerance_points(context: RuleContext) -> Iterator[Violation]:
    for line, request, item, specimens in _tolerance_tests(context):
        for code, same in _group_by_type(context, specimens).items():
            told = {specimen_supporting_info(context, each).minutes for each in same}
            wanted = _time_point_sets(item, code)
            enough = any(set(points) <= told if None not in told else len(same) >= len(points) for points in wanted)
            if not enough:
                yield Violation(f"{request.where}.specimen", (line.id,), {"code": item.id, "points": _format_points(wanted[0])})


def _group_by_type(context: RuleContext, specimens: Iterable[ReceivedSpecimen]) -> Mapping[str, list[ReceivedSpecimen]]:
    """The Specimens of each type: types of one test may have different time points, and only those sent count."""
    found: dict[str, list[ReceivedSpecimen]] = defaultdict(list)
    for each in specimens:
        found[specimen_type_code(context, each) or ""].append(each)
    return found


def _time_point_sets(item: Item, code: str) -> list[tuple[int, ...]]:
    """The time points of each way to take that type, the fewest first: body sites of one type may have different ones."""
    ways = {tuple(sorted({point.minutes for point in need.time_points})) for need in item.requirements_of_type(code)}
    return sorted(ways, key=lambda points: (len(points), points))


def _format_points(points: Sequence[int]) -> str:
    return ", ".join(str(point) for point in points)


@rule(
    "specimen.tolerance-sequence",
    Severity.REFUSE,
    _TOLERANCE_SECTION,
    "{where}: the collection times of test {code} do not follow its sequence of {points} minutes. Check the time of each sample.",
)
def _check_tolerance_sequence(context: RuleContext) -> Iterator[Violation]:
    for line, request, item, specimens in _tolerance_tests(context):
        found = [
            _timed_samples(context, _time_point_sets(item, code), same)
            for code, same in _group_by_type(context, specimens).items()
        ]
        samples = sorted(sample for each in found for sample in each)
        if all(found) and not _is_in_sequence(samples, context.facts.alignment_tolerance):
            points = sorted({minutes for minutes, _ in samples})
            yield Violation(f"{request.where}.specimen", (line.id,), {"code": item.id, "points": _format_points(points)})


def _timed_samples(
    context: RuleContext, time_point_sets: Sequence[tuple[int, ...]], specimens: Sequence[ReceivedSpecimen]
) -> list[TimedSample]:
    """The samples of one type by time point; empty where that cannot be said, or where they may be of a way without any."""
    timed = [
        (specimen_supporting_info(context, each).minutes, each.collected.at)
        for each in specimens
        if each.collected and each.collected.at
    ]
    if len(timed) < len(specimens):
        return []
    told = [(minutes, at) for minutes, at in timed if minutes is not None]
    if len(told) == len(timed):
        return told
    times = sorted(at for _, at in timed)
    fitting = [points for points in time_point_sets if len(points) in {0, len(times)}]
    return list(zip(fitting[0], times, strict=True)) if len(fitting) == 1 and fitting[0] else []


def _is_in_sequence(samples: list[TimedSample], tolerance: timedelta) -> bool:
    """Tubes of one time point lie together; later points come strictly later, each near its distance from the first."""
    first_minutes, first_at = samples[0]
    near = all(abs((at - first_at) - timedelta(minutes=minutes - first_minutes)) <= tolerance for minutes, at in samples)
    rising = all(at < later for (minutes, at), (after, later) in pairwise(samples) if minutes < after)
    return near and rising

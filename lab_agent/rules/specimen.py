"""Rules about biomaterial: whose it is, of which type, taken how and when.

Glucose tolerance tests are those whose item has time points in the catalogue. The time point of a Specimen is in its
supportingInfo (as our pre-analytics gave it); where it is not, the order of the collection times decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise, product

from lab_agent.catalogue.model import Item
from lab_agent.domain.code_systems import SystemMatch
from lab_agent.domain.received_order import ReceivedLine, ReceivedRequest, ReceivedSpecimen, patient_key
from lab_agent.rules.context import RuleContext, all_versions_reject, best_coding
from lab_agent.rules.rule import Severity, Violation, rule

_TOLERANCE_SECTION = "Specimen: collection (glucose tolerance tests)"
_TYPE_SECTION = "Specimen: type"
_MOST_CLOCKS_ARE_OFF = timedelta(days=1)


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
            elsewhere = specimen.subject is not None and specimen.subject.is_foreign  # the matter of order.address
            if wanted is not None and patient_key(specimen.subject) != wanted and not elsewhere:
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
        site, code = context.supporting_info(specimen).bodysite_code, context.specimen_type_code(specimen)
        known = {need.option.bodysite_code for item in items for need in item.requirements_of_type(code or "")}
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
        code = context.specimen_type_code(specimen) or ""
        known = {method for item in items for need in item.requirements_of_type(code) for method in need.methods}
        if known and (coding is None or coding.code not in known):
            yield Violation(f"{specimen.where}.collection.method", (line.id,), {"code": items[0].id})


@rule(
    "specimen.collected",
    Severity.REFUSE,
    "Specimen: collection",
    "{where}: expected a date and time with UTC offset, found: {text}. Please send the time of collection with its UTC offset.",
)
def _check_collected(context: RuleContext) -> Iterator[Violation]:
    for specimen, lines in context.specimens():
        if specimen.collected and specimen.collected.at is None:
            yield Violation(f"{specimen.where}.collection.collectedDateTime", lines, {"text": specimen.collected.text})


@rule(
    "specimen.collected-period",
    Severity.WARN,
    "Specimen: collection",
    "{where}: this end of the period is not a date and time with UTC offset, so it was left out. Please send collectedDateTime, "
    "or both ends with their UTC offset.",
)
def _check_collected_period(context: RuleContext) -> Iterator[Violation]:
    """A period is another form that FHIR has; the interface shows collectedDateTime alone."""
    for specimen, lines in context.specimens():
        for name, time in (("start", specimen.collected_start), ("end", specimen.collected_end)):
            if time is not None and time.at is None:
                yield Violation(f"{specimen.where}.collection.collectedPeriod.{name}", lines)


def _times_ahead(context: RuleContext) -> Iterator[tuple[ReceivedSpecimen, tuple[str, ...], datetime, bool]]:
    """The collection times that are ahead of us, and whether it is the order's fault beyond doubt.

    A clock that runs minutes or hours off may be ours, and time heals it; a day is no clock's matter, if the service's own clock
    agrees with ours (law 10).
    """
    offset, tolerance = context.facts.service_clock_offset, context.facts.future_tolerance
    confirmed = offset is not None and abs(offset) <= tolerance
    for specimen, lines in context.specimens():
        collected = specimen.collected or specimen.collected_end or specimen.collected_start
        at = collected.at if collected else None
        if at and at > context.facts.now + tolerance:
            yield specimen, lines, at, confirmed and at > context.facts.now + _MOST_CLOCKS_ARE_OFF


@rule(
    "specimen.collected-future",
    Severity.REFUSE,
    "Specimen: collection",
    "{where}: {text} is in the future. Please send the time at which the biomaterial was collected.",
)
def _check_collected_future(context: RuleContext) -> Iterator[Violation]:
    for specimen, lines, at, is_certain in _times_ahead(context):
        if is_certain:
            yield Violation(f"{specimen.where}.collection.collectedDateTime", lines, {"text": at.isoformat()})


@rule(
    "specimen.collected-ahead",
    Severity.HOLD,
    "Specimen: collection",
    "{where}: {text} is ahead of the laboratory's clock (the service's clock is ahead of it by {offset} s). The laboratory "
    "checks its clock; if that is right, please check the clock of the ordering system.",
    may_refuse=True,
    may_release=True,
)
def _check_collected_ahead(context: RuleContext) -> Iterator[Violation]:
    """Held: the clock that is off may be ours. The order goes on by itself when the time has passed."""
    offset = context.facts.service_clock_offset
    for specimen, lines, at, is_certain in _times_ahead(context):
        if not is_certain:
            values = {"text": at.isoformat(), "offset": "?" if offset is None else str(round(offset.total_seconds()))}
            yield Violation(f"{specimen.where}.collection.collectedDateTime", lines, values)


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


def _tolerance_tests(context: RuleContext) -> Iterator[tuple[ReceivedLine, ReceivedRequest, Item, list[ReceivedSpecimen]]]:
    """The lines of tolerance tests, with their Specimens of the types that have time points."""
    for line, request, items in context.known_lines():
        item = items[0]
        if not item.time_points:
            continue
        types = {need.specimen_code for need in item.requirements if need.time_points}
        timed = [each for each in context.order.specimens_of(request) if context.specimen_type_code(each) in types]
        if timed:
            yield line, request, item, timed


@rule(
    "specimen.tolerance-time",
    Severity.REFUSE,
    _TOLERANCE_SECTION,
    "{where}: the collection time is missing, and test {code} needs it for every sample. Please add it.",
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
    "{where}: test {code} needs one sample at each of these times: {points} minutes. Please send a Specimen for each.",
)
def _check_tolerance_points(context: RuleContext) -> Iterator[Violation]:
    for line, request, item, specimens in _tolerance_tests(context):
        for code, same in _group_by_type(context, specimens).items():
            given = {context.supporting_info(each).minutes for each in same}
            wanted = _time_point_sets(item, code)
            if not any(set(points) <= given if None not in given else len(same) >= len(points) for points in wanted):
                yield Violation(f"{request.where}.specimen", (line.id,), {"code": item.id, "points": _format_points(wanted[0])})


def _group_by_type(context: RuleContext, specimens: Iterable[ReceivedSpecimen]) -> Mapping[str, list[ReceivedSpecimen]]:
    """The Specimens of each type: the types of one test may have different time points, and only those sent count."""
    found: dict[str, list[ReceivedSpecimen]] = defaultdict(list)
    for each in specimens:
        found[context.specimen_type_code(each) or ""].append(each)
    return found


def _time_point_sets(item: Item, code: str) -> list[tuple[int, ...]]:
    """The time points of each way to collect that type, the fewest first: its body sites may have different ones."""
    ways = {tuple(sorted({point.minutes for point in need.time_points})) for need in item.requirements_of_type(code)}
    return sorted(ways, key=lambda points: (len(points), points))


def _format_points(points: Sequence[int]) -> str:
    return ", ".join(str(point) for point in points)


@rule(
    "specimen.tolerance-sequence",
    Severity.REFUSE,
    _TOLERANCE_SECTION,
    "{where}: the collection times of test {code} do not follow its sequence of {points} minutes. Please check the time of "
    "each sample.",
)
def _check_tolerance_sequence(context: RuleContext) -> Iterator[Violation]:
    for line, request, item, specimens in _tolerance_tests(context):
        by_type = _group_by_type(context, specimens).items()
        readings = [_readings(context, _time_point_sets(item, code), same) for code, same in by_type]
        fits = any(_is_in_sequence(chosen, context.facts.alignment_tolerance) for chosen in product(*readings))
        if all(readings) and not fits:
            points = sorted({minutes for each in readings for _, meant in each[0] for minutes in meant})
            yield Violation(f"{request.where}.specimen", (line.id,), {"code": item.id, "points": _format_points(points)})


_Samples = Sequence[tuple[datetime, frozenset[int]]]
"""The samples of one type: when each was collected, and the minutes after the load that it may be meant for."""


def _readings(
    context: RuleContext, time_point_sets: Sequence[tuple[int, ...]], specimens: Sequence[ReceivedSpecimen]
) -> list[_Samples]:
    """Each way to read the samples of one type; none where their time points are not known for sure.

    Where a Specimen does not say its time point, each sample may stand for any point of a way to collect the type. Too few
    samples are the matter of specimen.tolerance-points.
    """
    times = [each.collected.at for each in specimens if each.collected and each.collected.at]
    if len(times) < len(specimens):
        return []
    given = [context.supporting_info(each).minutes for each in specimens]
    if None not in given:
        told = (frozenset({minutes}) for minutes in given if minutes is not None)
        return [list(zip(times, told, strict=True))]
    ways = time_point_sets if all(time_point_sets) else ()
    return [[(at, frozenset(points)) for at in times] for points in ways if len(points) <= len(times)]


def _is_in_sequence(groups: Sequence[_Samples], tolerance: timedelta) -> bool:
    """Whether every sample is near one of its points, every point has a sample, and later points were collected later."""
    samples = [sample for group in groups for sample in group]
    load = min(at for at, _ in samples) - timedelta(minutes=min(min(points) for _, points in samples))
    placed = [[(_nearest_point(points, at - load), at) for at, points in group] for group in groups]
    in_order = sorted(sample for group in placed for sample in group)
    near = all(abs(at - load - timedelta(minutes=minutes)) <= tolerance for minutes, at in in_order)
    rising = all(at < later for (minutes, at), (after, later) in pairwise(in_order) if minutes < after)
    complete = all(
        {minutes for minutes, _ in found} >= frozenset[int]().union(*(points for _, points in group))
        for found, group in zip(placed, groups, strict=True)
    )
    return near and rising and complete


def _nearest_point(points: frozenset[int], since_load: timedelta) -> int:
    return min(sorted(points), key=lambda minutes: abs(since_load - timedelta(minutes=minutes)))

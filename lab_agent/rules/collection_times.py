"""Rules about collection times, and about those of glucose tolerance tests.

Glucose tolerance tests are those whose item has time points in the catalogue. The time point of a Specimen is in its
supportingInfo (as our pre-analytics gave it); where it is not, the collection times decide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise, product

from lab_agent.catalogue.model import Item
from lab_agent.fhir.received_order import ReceivedLine, ReceivedRequest, ReceivedSpecimen
from lab_agent.rules.context import RuleContext
from lab_agent.rules.rule import Severity, Violation, rule

_SECTION = "Specimen: collection"
_TOLERANCE_SECTION = "Specimen: collection (glucose tolerance tests)"
_MOST_CLOCKS_ARE_OFF = timedelta(days=1)


@rule(
    "specimen.collected",
    Severity.REFUSE,
    _SECTION,
    "{where}: expected a date and time with UTC offset, found: {text}. Please send the time of collection with its UTC offset.",
)
def _check_collected(context: RuleContext) -> Iterator[Violation]:
    for specimen, lines in context.specimens():
        if specimen.collected and specimen.collected.at is None:
            yield Violation(f"{specimen.where}.collection.collectedDateTime", lines, {"text": specimen.collected.text})


@rule(
    "specimen.collected-period",
    Severity.WARN,
    _SECTION,
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
    _SECTION,
    "{where}: {text} is in the future. Please send the time at which the biomaterial was collected.",
    reads_clock=True,
)
def _check_collected_future(context: RuleContext) -> Iterator[Violation]:
    for specimen, lines, at, is_certain in _times_ahead(context):
        if is_certain:
            yield Violation(f"{specimen.where}.collection.collectedDateTime", lines, {"text": at.isoformat()})


@rule(
    "specimen.collected-ahead",
    Severity.HOLD,
    _SECTION,
    "{where}: {text} is ahead of the laboratory's clock (the service's clock is ahead of it by {offset} s). The laboratory "
    "checks its clock; if that is right, please check the clock of the ordering system.",
    may_refuse=True,
    may_release=True,
    reads_clock=True,
)
def _check_collected_ahead(context: RuleContext) -> Iterator[Violation]:
    """Held: the clock that is off may be ours. The order goes on by itself when the time has passed."""
    offset = context.facts.service_clock_offset
    for specimen, lines, at, is_certain in _times_ahead(context):
        if not is_certain:
            values = {"text": at.isoformat(), "offset": "?" if offset is None else str(round(offset.total_seconds()))}
            yield Violation(f"{specimen.where}.collection.collectedDateTime", lines, values, (values["text"],))


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
        found[context.type_or_empty(each)].append(each)
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
    timed = [(each.collected.at, each) for each in specimens if each.collected and each.collected.at]
    if len(timed) < len(specimens):
        return []
    given = [(at, context.supporting_info(each).minutes) for at, each in timed]
    told = [(at, frozenset({minutes})) for at, minutes in given if minutes is not None]
    if len(told) == len(specimens):
        return [told]
    ways = time_point_sets if all(time_point_sets) else ()
    return [[(at, frozenset(points)) for at, _ in timed] for points in ways if len(points) <= len(timed)]


def _is_in_sequence(groups: Sequence[_Samples], tolerance: timedelta) -> bool:
    """Whether every sample is near one of its points, every point has a sample, and later points were collected later."""
    samples = [sample for group in groups for sample in group]
    load = min(at for at, _ in samples) - timedelta(minutes=min(min(points) for _, points in samples))
    in_order = sorted((_nearest_point(points, at - load), at) for at, points in samples)
    near = all(abs(at - load - timedelta(minutes=minutes)) <= tolerance for minutes, at in in_order)
    rising = all(at < later for (minutes, at), (after, later) in pairwise(in_order) if minutes < after)
    return near and rising and all(_is_complete(group, load) for group in groups)


def _is_complete(group: _Samples, load: datetime) -> bool:
    found = {_nearest_point(points, at - load) for at, points in group}
    return found == frozenset[int]().union(*(points for _, points in group))


def _nearest_point(points: frozenset[int], since_load: timedelta) -> int:
    return min(sorted(points), key=lambda minutes: abs(since_load - timedelta(minutes=minutes)))

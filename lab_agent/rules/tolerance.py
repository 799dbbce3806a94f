"""Rules about glucose tolerance tests: every sample has its time, and the times follow the test's time points.

Which tests these are is a property of the catalogue's item. The time point of a Specimen is told by its supportingInfo (as our
pre-analytics gave it), or else by its place in time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from lab_agent.catalogue.items import Item
from lab_agent.domain.received import ReceivedLine, ReceivedRequest, ReceivedSpecimen
from lab_agent.rules.case import RuleContext
from lab_agent.rules.material import specimen_supporting_info, specimen_type_code
from lab_agent.rules.rule import Rule, Severity, Violation

TimedSample = tuple[int, datetime]
"""Minutes after the load that it is meant for, and when it was taken."""


def _tolerance_tests(context: RuleContext) -> Iterator[tuple[ReceivedLine, ReceivedRequest, Item, list[ReceivedSpecimen]]]:
    for line, request, items in context.known_lines():
        item = items[0]
        if not item.time_points:
            continue
        types = {need.specimen_code for need in item.requirements if need.time_points}
        timed = [each for each in context.order.specimens_of(request) if specimen_type_code(context, each) in types]
        if timed:
            yield line, request, item, timed


def _check_tolerance_time(context: RuleContext) -> Iterator[Violation]:
    for line, _, item, specimens in _tolerance_tests(context):
        for specimen in specimens:
            if specimen.collected is None:
                yield Violation(f"{specimen.where}.collection.collectedDateTime", (line.id,), {"code": item.id})


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


def _format_points(points: Sequence[int]) -> str:
    return ", ".join(str(point) for point in points)


_TOLERANCE_SECTION = "Specimen: collection (glucose tolerance tests)"
TOLERANCE_RULES = (
    Rule(
        id="specimen.tolerance-time",
        severity=Severity.REFUSE,
        section=_TOLERANCE_SECTION,
        check=_check_tolerance_time,
        message="{where}: is missing, and test {code} needs the time of every sample. Send it.",
    ),
    Rule(
        id="specimen.tolerance-points",
        severity=Severity.REFUSE,
        section=_TOLERANCE_SECTION,
        check=_check_tolerance_points,
        message="{where}: test {code} needs a sample at each of {points} minutes. Send a Specimen for each.",
    ),
    Rule(
        id="specimen.tolerance-sequence",
        severity=Severity.REFUSE,
        section=_TOLERANCE_SECTION,
        check=_check_tolerance_sequence,
        message="{where}: the collection times of test {code} do not follow its sequence of {points} minutes. Check the time of "
        "each sample.",
    ),
)

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
from lab_agent.rules.case import Case
from lab_agent.rules.material import info, type_code
from lab_agent.rules.rule import Problem, Rule, Severity

Sample = tuple[int, datetime]
"""Minutes after the load that it is meant for, and when it was taken."""


def _tests(case: Case) -> Iterator[tuple[ReceivedLine, ReceivedRequest, Item, list[ReceivedSpecimen]]]:
    for line, request, items in case.known_lines():
        item = items[0]
        if not item.time_points:
            continue
        types = {need.specimen_code for need in item.requirements if need.time_points}
        timed = [each for each in case.order.specimens_of(request) if type_code(case, each) in types]
        if timed:
            yield line, request, item, timed


def _mandatory(case: Case) -> Iterator[Problem]:
    for line, _, item, specimens in _tests(case):
        for specimen in specimens:
            if specimen.collected is None:
                yield Problem(f"{specimen.where}.collection.collectedDateTime", (line.id,), {"code": item.id})


def _complete(case: Case) -> Iterator[Problem]:
    for line, request, item, specimens in _tests(case):
        for code, same in _by_type(case, specimens).items():
            told = {info(case, each).minutes for each in same}
            wanted = _points(item, code)
            enough = any(set(points) <= told if None not in told else len(same) >= len(points) for points in wanted)
            if not enough:
                yield Problem(f"{request.where}.specimen", (line.id,), {"code": item.id, "points": _listed(wanted[0])})


def _by_type(case: Case, specimens: Iterable[ReceivedSpecimen]) -> Mapping[str, list[ReceivedSpecimen]]:
    """The Specimens of each type: types of one test may have different time points, and only those sent count."""
    found: dict[str, list[ReceivedSpecimen]] = defaultdict(list)
    for each in specimens:
        found[type_code(case, each) or ""].append(each)
    return found


def _points(item: Item, code: str) -> list[tuple[int, ...]]:
    """The time points of each way to take that type, the fewest first: body sites of one type may have different ones."""
    ways = {tuple(sorted({point.minutes for point in need.time_points})) for need in item.of_type(code)}
    return sorted(ways, key=lambda points: (len(points), points))


def _sequence(case: Case) -> Iterator[Problem]:
    for line, request, item, specimens in _tests(case):
        found = [_samples(case, _points(item, code), same) for code, same in _by_type(case, specimens).items()]
        samples = sorted(sample for each in found for sample in each)
        if all(found) and not _aligned(samples, case.facts.alignment_tolerance):
            points = sorted({minutes for minutes, _ in samples})
            yield Problem(f"{request.where}.specimen", (line.id,), {"code": item.id, "points": _listed(points)})


def _samples(case: Case, wanted: Sequence[tuple[int, ...]], specimens: Sequence[ReceivedSpecimen]) -> list[Sample]:
    """The samples of one type by time point; empty where that cannot be said, or where they may be of a way without any."""
    timed = [(info(case, each).minutes, each.collected.at) for each in specimens if each.collected and each.collected.at]
    if len(timed) < len(specimens):
        return []
    told = [(minutes, at) for minutes, at in timed if minutes is not None]
    if len(told) == len(timed):
        return told
    times = sorted(at for _, at in timed)
    fitting = [points for points in wanted if len(points) in {0, len(times)}]
    return list(zip(fitting[0], times, strict=True)) if len(fitting) == 1 and fitting[0] else []


def _aligned(samples: list[Sample], tolerance: timedelta) -> bool:
    """Tubes of one time point lie together; later points come strictly later, each near its distance from the first."""
    first_minutes, first_at = samples[0]
    near = all(abs((at - first_at) - timedelta(minutes=minutes - first_minutes)) <= tolerance for minutes, at in samples)
    rising = all(at < later for (minutes, at), (after, later) in pairwise(samples) if minutes < after)
    return near and rising


def _listed(points: Sequence[int]) -> str:
    return ", ".join(str(point) for point in points)


_SECTION = "Specimen: collection (glucose tolerance tests)"
RULES = (
    Rule(
        id="specimen.tolerance-time",
        severity=Severity.REFUSE,
        section=_SECTION,
        check=_mandatory,
        message="{where}: is missing, and test {code} needs the time of every sample. Send it.",
    ),
    Rule(
        id="specimen.tolerance-points",
        severity=Severity.REFUSE,
        section=_SECTION,
        check=_complete,
        message="{where}: test {code} needs a sample at each of {points} minutes. Send a Specimen for each.",
    ),
    Rule(
        id="specimen.tolerance-sequence",
        severity=Severity.REFUSE,
        section=_SECTION,
        check=_sequence,
        message="{where}: the collection times of test {code} do not follow its sequence of {points} minutes. Check the time of "
        "each sample.",
    ),
)

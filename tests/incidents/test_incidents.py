"""Nobody waits in the dark: what goes wrong is told by every channel that can know of it, and is over when it was set right."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab_agent.shared.conditions.model import AlertKey
from tests.harness.proof import FIGURES, SHARE
from tests.incidents import (  # noqa: F401 - each registers its incidents
    exchange_incidents,
    machine_incidents,
    neighbour_incidents,
    order_incidents,
    store_incidents,
)
from tests.incidents.catalogue_of_incidents import INCIDENTS, Incident
from tests.incidents.laboratory import DEADLINE, Laboratory, wait_for
from tests.incidents.telling import SCORES, Expected, Score

GROUP_SIZE = 6
SAMPLE = [each for each in INCIDENTS.values() if each.sample]


def group_incidents() -> dict[str, list[Incident]]:
    """Those that one laboratory can go through one after the other, by the name of the first; some have one of their own.

    No group has two of one condition: what comes back soon after it ended is the same outage, which began with the first.
    """
    together = [each for each in INCIDENTS.values() if not each.sample and not (each.alone or each.settings)]
    together.sort(key=lambda each: not each.ends)  # what stays open comes last
    groups: list[list[Incident]] = []
    for each in together:
        free = (group for group in groups if len(group) < GROUP_SIZE and each.key not in {other.key for other in group})
        if group := next(free, None):
            group.append(each)
        else:
            groups.append([each])
    groups += [[each] for each in INCIDENTS.values() if not each.sample and (each.alone or each.settings)]
    return {each[0].name: each for each in groups}


GROUPS = group_incidents()
SHORT = SHARE < 1
PROVEN = dict(list(GROUPS.items())[2::5]) if SHORT else GROUPS
"""The short form of the proof goes through every fifth group."""


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("group", PROVEN.values(), ids=PROVEN)
def test_incidents_are_told(group: list[Incident], database: Path) -> None:
    go_through(group, database)
    FIGURES.add(incidents_told=len(group))


@pytest.mark.timeout(300)
def test_sample_of_incidents_is_told(database: Path) -> None:
    """Some that one agent can go through one after the other."""
    go_through(SAMPLE, database)


def go_through(group: list[Incident], database: Path) -> None:
    """Let each happen to one laboratory. One that is not told leaves the others to be looked at."""
    problems = []
    lab = Laboratory.create(database, group[0].settings)
    try:
        lab.start("service", "api", "agent")
        lab.page("/")
        for each in group:
            lab.begin_incident()
            lab.wait_until_answers()
            try:
                assert_told_and_ended(lab, each)
            except AssertionError as exc:
                problems.append(f"{each.name}: {exc}")
    finally:
        lab.close()
    assert not problems, "\n\n".join(problems)


def assert_told_and_ended(lab: Laboratory, incident: Incident) -> None:
    """Let it happen; all channels must tell it; set it right; its alert must end."""
    began = datetime.now(UTC)
    happening = incident.happen(lab)
    next(happening)
    key = AlertKey(incident.key.condition, lab.fill(incident.key.subject))
    expected = Expected(key, [lab.fill(each) for each in incident.affected], began)
    scores = assert_told(lab, expected, incident.channels)
    problems = [f"{each.channel} does not tell {', '.join(each.missing)}:\n{each.shown}" for each in scores if each.missing]
    next(happening, None)  # set right before anything is asserted: the next incident must not find it
    assert not problems, f"{key}\n" + "\n\n".join(problems)
    if incident.ends and "alert" in incident.channels:
        wait_for(lambda: key not in {each.key for each in lab.alerts()[0]}, f"{key} has ended")


def assert_told(lab: Laboratory, expected: Expected, channels: list[str]) -> list[Score]:
    """Look at the quick channels until they tell everything, or the deadline has passed; then at the commands.

    Where there are no quick ones, the commands are looked at that long: a heartbeat is not old at once.
    """
    deadline = time.monotonic() + 2 * DEADLINE  # an API that hangs is told after two looks: a minute, and their time limits
    quick = [each for each in channels if each != "check"] or channels
    while True:
        scores = [SCORES[each](lab, expected) for each in quick]
        if not any(each.missing for each in scores) or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return [SCORES[each](lab, expected) for each in channels]

"""Nobody waits in the dark: what goes wrong is told by every channel that can know of it, and is over when it was set right."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from tests.incidents import (  # noqa: F401 - each registers its incidents
    clock_incidents,
    exchange_incidents,
    job_incidents,
    machine_incidents,
    neighbour_incidents,
    order_incidents,
    store_incidents,
)
from tests.incidents.catalogue_of_incidents import INCIDENTS, Incident
from tests.incidents.laboratory import DEADLINE, Laboratory, wait_for
from tests.incidents.telling import SCORES, Expected, Score

SHORT = float(os.environ.get("LAB_PROOF_SHARE", "1")) < 1
SAMPLE = [each for each in INCIDENTS.values() if each.is_sample]
LONG = [each for each in INCIDENTS.values() if not each.is_sample]
PROVEN = LONG[:: max(1, len(LONG) // 10)] if SHORT else LONG


@pytest.mark.proof
@pytest.mark.parametrize("incident", PROVEN, ids=lambda each: each.name)
def test_incident_is_told(incident: Incident, database: Path, request: pytest.FixtureRequest) -> None:
    with running_laboratory(incident, database) as lab:
        assert_told_and_ended(lab, incident, request.node)


def test_sample_of_incidents_is_told(database: Path, request: pytest.FixtureRequest) -> None:
    """Some that one agent can go through one after the other."""
    first, *_ = SAMPLE
    with running_laboratory(first, database) as lab:
        for each in SAMPLE:
            assert_told_and_ended(lab, each, request.node)


def test_number_of_incidents() -> None:
    assert len(INCIDENTS) >= 45
    assert {each.key.condition for each in INCIDENTS.values()} <= set(ConditionId)


@contextmanager
def running_laboratory(incident: Incident, database: Path) -> Iterator[Laboratory]:
    lab = Laboratory.create(database, incident.settings)
    try:
        lab.start(*incident.starts)
        if "agent" in incident.starts:
            lab.page("/")
        yield lab
    finally:
        lab.close()


def assert_told_and_ended(lab: Laboratory, incident: Incident, node: pytest.Item) -> None:
    """Let it happen; all channels must tell it; set it right; its alert must end."""
    began = datetime.now(UTC)
    happening = incident.happen(lab)
    next(happening)
    key = AlertKey(incident.key.condition, lab.fill(incident.key.subject))
    expected = Expected(key=key, affected=incident.affected, began=began, complete=datetime.now(UTC))
    scores = assert_told(lab, expected, incident.channels)
    node.user_properties.append((incident.name, {each.channel: str(each) for each in scores}))
    problems = [f"{each.channel} does not tell {', '.join(each.missing)}:\n{each.shown}" for each in scores if each.missing]
    assert not problems, f"{incident.name}, {key}\n" + "\n\n".join(problems)
    next(happening, None)
    if incident.ends and "alert" in incident.channels:
        wait_for(lambda: key not in {each.key for each in lab.alerts()[0]}, f"{key} has ended")


def assert_told(lab: Laboratory, expected: Expected, channels: list[str] | tuple[str, ...]) -> list[Score]:
    """Look at the quick channels until they tell everything, or the deadline has passed; then at the commands, once."""
    deadline = time.monotonic() + DEADLINE
    quick = [each for each in channels if each != "check"]
    while True:
        scores = [SCORES[each](lab, expected) for each in quick]
        if not any(each.missing for each in scores) or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return [SCORES[each](lab, expected) for each in channels]

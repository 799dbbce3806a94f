"""Days that broke a law once, made small: each was found by the proof `days`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.logging_off import no_logs
from tests.simulation.day_run import replay

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with no_logs():
        yield


async def test_worker_that_stood_still_writes_over_no_later_version() -> None:
    """It stands still within an update for an hour; by then, another worker has delivered that version and the next one."""
    steps = [
        (40219, "order", 4, 15, None, 0),
        (48022, "order", 2, 11, None, 0),
        (57775, "crash", 0, 6, 30, 0),
        (57775, "result", 2, 3, "order", 0),
        (68600, "result", 2, 0, "number", 0),
        (68601, "correction", 2, 0, "number", 0),
        (68904, "freeze", 0, 3, 3600, 0),
        (70261, "correction", 2, 0, "number", 0),
    ]
    await replay(308, steps)


async def test_line_that_was_set_aside_is_seen_after_the_end_of_its_order() -> None:
    """It comes late, somebody else takes it on, the other lines get their results, and then it is requested again."""
    steps = [
        (39065, "order", 1, 12, None, 0),
        (40845, "late_line", 1, 0, None, 44),
        (41265, "set_aside", 1, 3, "in-progress", 45),
        (44045, "result", 1, 0, "lines", 0),
        (63478, "result", 1, 1, "number", 0),
    ]
    await replay(4401, steps)

"""Days that broke a law once, made small: each was found by the proof `days`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.logging_off import no_logs
from tests.simulation.day_run import replay


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

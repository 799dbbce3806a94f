"""The agent is killed at the worst moments and started again: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import pytest

from tests.harness.installation import ProcessHarness
from tests.harness.proof import FIGURES

CRASH_POINTS = [
    "before commit order",
    "after commit order",
    "before commit fetch_order:done",
    "after commit fetch_order:done",
    "before commit submit_order:started",  # the file has its temporary name, and the database does not know
    "after commit submit_order:started",
    "after submit",  # the LIS has it, and the database does not know
    "after commit submit_order:done",
    "before commit report",
    "after commit report",  # the report is stored, and its file was not moved away
    "after commit match_report:done",
    "after upload_document",
    "before create Observation",
    "after create Observation",  # created on the service, and the agent does not know
    "after create DiagnosticReport",
    "after commit upload DiagnosticReport",
    "after commit deliver_report:done",
    "before update Task",
    "after update Task",
    "after commit update_line_task:done",
    "before commit update_order_task:done",
]
WORST = [
    "after commit order",
    "before commit fetch_order:done",
    "before commit submit_order:started",
    "after submit",
    "after commit submit_order:done",
    "after commit report",
    "after create Observation",
    "after create DiagnosticReport",
    "after update Task",
    "before commit update_order_task:done",
]
"""The ten worst: some of them are tried each time, and `make proof` tries every crash point."""


@pytest.mark.parametrize(
    "crash_points",
    [
        pytest.param(WORST[::3], id="worst"),
        pytest.param([each for each in WORST if each not in WORST[::3]], id="worst-others", marks=pytest.mark.proof),
        pytest.param([each for each in CRASH_POINTS if each not in WORST], id="others", marks=pytest.mark.proof),
    ],
)
async def test_crashed_agent_restarts_and_completes_every_order(harness: ProcessHarness, crash_points: list[str]) -> None:
    """One order for each crash point; each start also finishes what the killed one before left."""
    orders = []
    for crash_point in crash_points:
        agent = await harness.start_agent(crash_point)
        orders.append(await harness.place_order(crash_point))
        await agent.wait_killed()
    await harness.start_agent()
    for order in orders:
        await harness.wait_until_ended(order)
    for order in orders:
        await harness.check_everything_once(order)
    assert set(harness.lis.received_counts().values()) == {1}
    assert len(harness.lis.received_counts()) == len(orders)
    FIGURES.add(kills_at_the_worst_moments=len(crash_points), lost=0, twice=0)

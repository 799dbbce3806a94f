"""The agent is killed at the worst moments and started again: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import httpx
import pytest

from tests.harness.clock import DEADLINE
from tests.harness.crashing_agent import CRASH_POINTS
from tests.harness.installation import ProcessHarness
from tests.harness.proof import FIGURES, in_full

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
        pytest.param(["after submit"], id="one"),
        pytest.param([each for each in WORST[::3] if each != "after submit"], id="worst", marks=pytest.mark.slow),
        pytest.param([each for each in WORST if each not in WORST[::3]], id="worst-others", marks=[in_full, pytest.mark.proof]),
        pytest.param([each for each in CRASH_POINTS if each not in WORST], id="others", marks=[in_full, pytest.mark.proof]),
    ],
)
async def test_crashed_agent_restarts_and_completes_every_order(harness: ProcessHarness, crash_points: list[str]) -> None:
    """One order for each crash point; each start also finishes what the killed one before left, and its page is there."""
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
    options = {"base_url": harness.workspace.status_url, "trust_env": False, "timeout": DEADLINE}
    async with httpx.AsyncClient(**options, follow_redirects=True) as page:
        assert (await page.get("/orders")).url.path == "/sign-in"
        assert (await page.get("/readyz")).status_code == 200
    assert set(harness.lis.received_counts().values()) == {1}
    assert len(harness.lis.received_counts()) == len(orders)
    FIGURES.add(kills_at_the_worst_moments=len(crash_points), lost=0, twice=0)

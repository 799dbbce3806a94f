"""The lives of many orders among two workers, crashes, lost replies, a busy service and a partner who edits."""

from __future__ import annotations

import os

import pytest

from tests.harness.proof import FIGURES, SHARE
from tests.simulation.simulation_run import simulate

REPLAY = os.environ.get("LAB_SIMULATION_SEED")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits within one call are not waited for; those of the outbox pass by the world's own clock."""
    monkeypatch.setattr("lab_agent.exchange.requests.backoff_delay", lambda *_: 0.0)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 60))])
async def test_invariants_hold_once_system_is_idle(seed: int) -> None:
    await simulate(seed)


@pytest.mark.proof
async def test_two_thousand_runs_keep_invariants() -> None:
    for seed in range(1000, 1000 + (2000 if SHARE >= 1 else int(500 * SHARE))):
        await simulate(seed)
        FIGURES.add(lives_of_orders=1)


if REPLAY is not None:

    async def test_replay_seed_from_environment() -> None:
        await simulate(int(REPLAY))

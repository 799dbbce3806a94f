"""All programs are killed at random moments, by each adapter, on both databases, on good and bad days: nothing is lost or twice.

A short run takes one combination of database and day for each adapter, others every day; its figures say how many it took.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from lab_sandbox.demo.workspace import CONNECTION_KINDS
from tests.harness.kills import Combination, open_killed_installation
from tests.harness.proof import SHARE, Figures, share_of

pytestmark = pytest.mark.proof

KILLS = 63
"""Kills of each of the sixteen combinations: together a thousand."""
FEWEST = 6
_VARIANTS_SHARE = 0.02
_SETTINGS = (("sqlite", True), ("postgresql", False), ("sqlite", False), ("postgresql", True))
"""Database, and whether the day is bad."""
_TODAY = datetime.now(UTC).toordinal() if SHARE > _VARIANTS_SHARE else 0
"""A known-bad variant is tried on the same combinations every day."""


def combinations() -> list[Combination]:
    """All of them, or, of a share, one for each adapter."""
    if SHARE >= 1:
        pairs = list(itertools.product(CONNECTION_KINDS, _SETTINGS))
    else:
        pairs = [(lis, _SETTINGS[(_TODAY + number) % len(_SETTINGS)]) for number, lis in enumerate(CONNECTION_KINDS)]
    return [Combination(lis=lis, database=database, bad_day=is_bad) for lis, (database, is_bad) in pairs]


@pytest.fixture
def postgres(request: pytest.FixtureRequest) -> Callable[[], str]:
    return lambda: str(request.getfixturevalue("postgres_url"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("combination", combinations(), ids=str if SHARE >= 1 else lambda each: each.lis)
async def test_killed_programs_lose_and_double_nothing(
    combination: Combination, postgres: Callable[[], str], figures: Figures
) -> None:
    seed = f"{combination}-{_TODAY}"
    async with open_killed_installation(combination, seed, postgres, hurried=SHARE < 1) as installation:
        killed = await installation.kill_in_turn(share_of(KILLS, at_least=FEWEST), figures)
        await installation.wait_until_ended()
        await installation.check(figures)
    figures.add(combinations_of_16=1, kills=killed.total(), **{f"of_the_{name}": times for name, times in killed.items()})

"""Whole days of two workers, with everything that may go wrong: the laws hold after each step, and a day repeats by its seed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.unit_of_work import Store
from tests.harness.databases import create_database
from tests.harness.logging_off import no_logs
from tests.harness.paths import ROOT
from tests.harness.proof import SHARE, Figures, share_of
from tests.simulation.day_plan import plan_day
from tests.simulation.day_run import DayRun, run_day
from tests.simulation.day_trace import digest_day

pytestmark = [pytest.mark.proof, pytest.mark.timeout(0)]

DAYS = share_of(9_900) if SHARE > 0.1 else 16
"""A day takes most of a second: of a short run, which has a minute, a share of them would take five."""
ON_SQLITE = share_of(100) if SHARE > 0.1 else 1
PARTS = 20 if SHARE >= 1 else 1
"""Each with every twentieth day: they may run side by side."""
REPEATED = share_of(100) if SHARE > 0.1 else 2
REPLAY = os.environ.get("LAB_SIMULATION_SEED")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with no_logs():
        yield


def count_day(figures: Figures, run: DayRun) -> None:
    counts = run.counts
    figures.add(
        days=1,
        steps=counts["steps"],
        orders=counts["orders"],
        results=counts["results"] + counts["corrections"],
        corrections=counts["corrections"],
        withdrawals=counts["withdrawals"],
        orders_on_used_tubes=counts["shared_tubes"],
        clocks_put_right=counts["clocks"],
        senders_without_message_ids=run.laboratory.constant_ids,
        restarts=counts["restarts"],
        stopped_workers=counts["stops"],
        outages=counts["outages"] + counts["refusing_systems"],
        laws_checked=run.laws.checked,
        laws_broken=0,
    )


@pytest.mark.parametrize("part", range(PARTS))
async def test_laws_hold_after_every_step_of_every_day(part: int, figures: Figures) -> None:
    for seed in range(part, DAYS, PARTS):
        count_day(figures, await run_day(plan_day(seed)))
        figures.progress(seed + 1, DAYS)


async def test_laws_hold_on_sqlite(figures: Figures, tmp_path: Path) -> None:
    for seed in range(100_000, 100_000 + ON_SQLITE):
        plan = plan_day(seed)
        store = Store(create_database(tmp_path / f"{seed}.db"), Cipher(new_key()))
        run = DayRun(plan, store=store)
        try:
            await run.run()
        except Exception as error:
            error.add_note(f"day {seed} on SQLite: {plan}")
            raise
        finally:
            await store.close()
        count_day(figures, run)


async def test_same_seed_is_the_same_day(figures: Figures) -> None:
    """In this process, and in a new one whose sets of texts have another order."""
    seeds = range(200_000, 200_000 + REPEATED)
    first = [await digest_day(seed) for seed in seeds]
    assert [await digest_day(seed) for seed in seeds] == first, f"of seeds {seeds}, one is another day in the same process"
    command = [sys.executable, "-m", "tests.simulation.day_trace", *map(str, seeds)]
    environment = os.environ | {"PYTHONHASHSEED": "4711", "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))}
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: ASYNC221
    assert again.returncode == 0, again.stderr
    assert again.stdout.split() == first, f"of seeds {seeds}, one is another day in a new process"
    figures.add(days_repeated=2 * len(seeds))


if REPLAY is not None:

    async def test_replay_seed_from_environment() -> None:
        await run_day(plan_day(int(REPLAY)))

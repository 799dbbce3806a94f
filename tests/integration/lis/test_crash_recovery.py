"""The agent in small is killed at chance moments of handover and intake, and started again: no order twice, no result lost.

The same loop runs over each built-in adapter, with the laboratory system of its contract tests in this process: the killed one is
a real process that keeps its journal in a file, one synced line for each commit.
"""

import asyncio
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab_agent.lis.testing import make_correction, make_order, make_report
from tests.harness.adapter_journal import kept_values
from tests.harness.clock import wait_until
from tests.harness.forked_programs import ForkedProgram
from tests.harness.killed_adapter import start
from tests.harness.proof import FIGURES, share_of
from tests.integration.lis.folder.test_contract import FolderBench
from tests.integration.lis.http.test_contract import HttpBench
from tests.integration.lis.sql.test_contract import SqlBench

Laboratory = FolderBench | HttpBench | SqlBench
KINDS: dict[str, Callable[[Path], Laboratory]] = {
    "folder": FolderBench,
    "http": lambda _: HttpBench(),
    "sql": lambda base: SqlBench(f"sqlite:///{base / 'lis.db'}", as_rows=False),
}


def kill(program: ForkedProgram) -> None:
    program.kill()
    assert program.wait() == -signal.SIGKILL, "the process had ended by itself"


async def loop(kind: str, base: Path, kills: int) -> None:
    """One more order and one more report each round; at its end everything is there once."""
    laboratory, journal, rng = KINDS[kind](base), base / "journal", random.Random(kills)
    report, keys = make_report(1, make_order(1)), {make_order(seed).key for seed in range(kills)}

    async def is_done() -> bool:
        if await laboratory.unacknowledged_count() or not journal.exists():
            return False
        return {f"done|{key}" for key in keys} <= {*journal.read_text().splitlines()}

    try:
        for number in range(kills):
            await laboratory.publish(make_correction(report, f"{number}.0"))
            program = start(kind, laboratory.settings, journal, number + 1)
            time.sleep(rng.uniform(0, 0.15))  # noqa: ASYNC251 — nothing else runs here
            await laboratory.orders()
            kill(program)
        program = start(kind, laboratory.settings, journal, kills)
        await wait_until(is_done, "everything is handed over and kept", interval=0.02)
        kill(program)
        assert sorted(await laboratory.orders()) == sorted(keys)
        assert sorted(kept_values(journal)) == sorted(f"{number}.0" for number in range(kills))
        assert not await laboratory.bad_results_kept()
        if isinstance(laboratory, SqlBench):
            lines = await asyncio.to_thread(laboratory.ask, laboratory.tables.lines.select())
            assert len(lines) == sum(len(make_order(seed).lines) for seed in range(kills))
    finally:
        if not isinstance(laboratory, FolderBench):  # there a kill may leave a temporary file, which goes when it is old
            await laboratory.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_agent_killed_five_times_exactly_once(kind: str, tmp_path: Path) -> None:
    await loop(kind, tmp_path, 5)


@pytest.mark.proof
@pytest.mark.parametrize("kind", KINDS)
async def test_agent_killed_hundred_times_exactly_once(kind: str, tmp_path: Path) -> None:
    kills = share_of(100, at_least=5)
    await loop(kind, tmp_path, kills)
    FIGURES.add(kills=kills, lost=0, twice=0)

"""The agent in small is killed at chance moments of handover and intake, and started again: no order twice, no result lost.

The same loop runs over each built-in adapter, with the laboratory system of its contract tests in this process: the killed one is
a real process that keeps its journal in a file, one synced line for each commit.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.testing import make_correction, make_order, make_report
from tests.harness.adapter_journal import kept_values
from tests.harness.clock import wait_until
from tests.harness.paths import ROOT
from tests.harness.proof import FIGURES, SHARE
from tests.integration.lis.folder.test_contract import FolderBench
from tests.integration.lis.http.test_contract import HttpBench
from tests.integration.lis.sql.test_contract import SqlBench

PROCESS = """
import asyncio, json, os, sys
from contextlib import suppress
from pathlib import Path
from lab_agent.errors import LabAgentError, LisOutcomeUnknown, LisUnavailable
from lab_agent.lis.folder import FolderAdapter
from lab_agent.lis.http import HttpAdapter
from lab_agent.lis.sql import SqlAdapter
from lab_agent.lis.testing import make_order
from tests.harness.adapter_journal import Journal

KINDS = {"folder": FolderAdapter, "http": HttpAdapter, "sql": SqlAdapter}

async def main(task):
    kind = KINDS[task["kind"]]
    adapter = kind(kind.Settings.model_validate(task["settings"]), task["kind"])
    journal = Journal(Path(task["journal"]))
    while True:
        try:
            await adapter.start(journal)
            break
        except LisUnavailable:
            await asyncio.sleep(0.01)
    while True:
        for seed in range(task["orders"]):
            with suppress(LisUnavailable, LisOutcomeUnknown):
                await journal.hand_over(adapter, make_order(seed))
        with suppress(LabAgentError):
            await adapter.collect()
        await asyncio.sleep(0.002)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        asyncio.run(main(json.loads(line)))
        os._exit(1)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

Laboratory = FolderBench | HttpBench | SqlBench
KINDS: dict[str, Callable[[Path], Laboratory]] = {
    "folder": FolderBench,
    "http": lambda _: HttpBench(),
    "sql": lambda base: SqlBench(f"sqlite:///{base / 'lis.db'}", as_rows=False),
}


@dataclass
class Launcher:
    process: subprocess.Popen[str]

    def start(self, task: dict[str, Any]) -> int:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        return int(self._line())

    def kill(self, child: int) -> None:
        os.kill(child, signal.SIGKILL)
        assert int(self._line()) == -signal.SIGKILL, "the process had ended by itself"

    def _line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with subprocess.Popen(
        [sys.executable, "-c", PROCESS], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Launcher(process)
        assert process.stdin
        process.stdin.close()


async def loop(kind: str, base: Path, launcher: Launcher, kills: int) -> None:
    """One more order and one more report each round; at its end everything is there once."""
    laboratory, journal, rng = KINDS[kind](base), base / "journal", random.Random(kills)
    report, keys = make_report(1, make_order(1)), {make_order(seed).key for seed in range(kills)}
    task = {"kind": kind, "settings": laboratory.settings, "journal": str(journal)}

    async def is_done() -> bool:
        if await laboratory.unacknowledged_count() or not journal.exists():
            return False
        return {f"done|{key}" for key in keys} <= {*journal.read_text().splitlines()}

    try:
        for number in range(kills):
            await laboratory.publish(make_correction(report, f"{number}.0"))
            child = launcher.start({**task, "orders": number + 1})
            time.sleep(rng.uniform(0, 0.15))  # noqa: ASYNC251 — nothing else runs here
            await laboratory.orders()
            launcher.kill(child)
        child = launcher.start({**task, "orders": kills})
        await wait_until(is_done, "everything is handed over and kept", interval=0.02)
        launcher.kill(child)
        assert sorted(await laboratory.orders()) == sorted(keys)
        assert sorted(kept_values(journal)) == sorted(f"{number}.0" for number in range(kills))
        assert not await laboratory.bad_results_kept()
        if isinstance(laboratory, SqlBench):
            lines = await asyncio.to_thread(laboratory.ask, laboratory.tables.lines.select())
            assert len(lines) == sum(len(make_order(seed).lines) for seed in range(kills))
    finally:
        await laboratory.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_agent_killed_five_times_exactly_once(kind: str, tmp_path: Path, launcher: Launcher) -> None:
    """Killed at five random moments, the agent submits no order twice and loses no result."""
    await loop(kind, tmp_path, launcher, 5)


@pytest.mark.proof
@pytest.mark.parametrize("kind", KINDS)
async def test_agent_killed_hundred_times_exactly_once(kind: str, tmp_path: Path, launcher: Launcher) -> None:
    """Killed at a hundred random moments, the agent submits no order twice and loses no result."""
    await loop(kind, tmp_path, launcher, max(5, int(100 * SHARE)))
    FIGURES.add(kills=max(5, int(100 * SHARE)), lost=0, twice=0)

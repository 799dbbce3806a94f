"""A real process is killed at every step of a handover and of a collection, and started again: once each, none lost.

The process counts its steps (each fsync, rename, and each commit of its journal) and kills itself just before one of them.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.serialization import dump_message
from lab_agent.lis.testing import make_correction, make_order, make_report
from tests.harness import forked_programs
from tests.harness.adapter_journal import Journal, kept_values
from tests.harness.clock import DEADLINE

MODULE = "tests.integration.lis.folder.test_crash_recovery"


def main() -> None:
    """Be the process that is killed."""
    steps, (base, task, last) = count(1), sys.argv[1:]

    def stepping(call: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **named: Any) -> Any:
            if next(steps) == int(last):
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **named)

        return stepped

    for place, name in ((os, "fsync"), (os, "rename"), (os, "replace"), (Journal, "commit")):
        setattr(place, name, stepping(getattr(place, name)))
    asyncio.run(work(Path(base), task))


async def work(base: Path, task: str) -> None:
    adapter = FolderAdapter(FolderSettings(orders=base / "orders", results=base / "results", settle=0), "folder")
    journal = Journal(base / "journal")
    await adapter.start(journal)
    if task == "hand_over":
        await journal.hand_over(adapter, make_order(1))
    else:
        while await adapter.collect():
            pass
    await adapter.stop()


def run(base: Path, task: str, last: int) -> bool:
    """Start a process; whether it was killed before its step of that number."""
    code = forked_programs.start(MODULE, str(base), task, str(last)).wait(DEADLINE)
    assert code in {0, -signal.SIGKILL}
    return code != 0


@pytest.fixture(scope="module", autouse=True)
def _prepared() -> None:
    forked_programs.prepare(MODULE)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name in ("orders", "results"):
        (tmp_path / name).mkdir()
    return tmp_path


def take(base: Path) -> list[str]:
    """The LIS takes what it sees."""
    keys = []
    for path in (base / "orders").glob("*.json"):
        if not path.name.startswith("."):
            keys.append(json.loads(path.read_bytes())["key"])
            path.unlink()
    return keys


@pytest.mark.parametrize(("last", "quick_lis"), [*((last, True) for last in range(1, 10)), (6, False), (7, False), (8, False)])
def test_killed_process_submits_order_once(base: Path, last: int, quick_lis: bool) -> None:
    """Wherever the process dies in a submit, the order is handed over exactly once."""
    killed = run(base, "hand_over", last)
    taken = take(base) if quick_lis else []
    assert not run(base, "hand_over", 0)
    assert taken + take(base) == [make_order(1).key]
    assert not list((base / "orders").glob(".*.part"))
    assert killed == (last <= 8), "the steps of a handover have changed: adapt the range"


@pytest.mark.parametrize("last", range(1, 11))
def test_killed_process_keeps_each_result_once(base: Path, last: int) -> None:
    """Wherever the process dies in a collection, each result is kept exactly once."""
    report = make_report(1, make_order(1))
    for index, digits in enumerate(("1.20", "1.30", "1.20")):
        path = base / "results" / f"{index}.json"
        path.write_bytes(dump_message(make_correction(report, digits)))
        os.utime(path, (1_700_000_000 + index,) * 2)
    killed = run(base, "collect", last)
    assert not run(base, "collect", 0)
    assert kept_values(base / "journal") == ["1.20", "1.30", "1.20"]
    assert sorted(path.name for path in (base / "results").iterdir()) == ["done", "failed"]
    bodies = [path for path in (base / "results" / "done").iterdir() if path.stat().st_size]
    assert len(bodies) == 3
    assert not list((base / "results" / "failed").iterdir())
    assert killed == (last <= 9), "the steps of a collection have changed: adapt the range"

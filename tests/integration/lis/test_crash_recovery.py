"""The agent in small is killed at chance moments of handover and intake, and started again: no order twice, no result lost.

The same loop runs over each built-in adapter, with the laboratory system in this process: the killed one is a real process that
keeps its journal in a file, one synced line for each commit.
"""

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
from typing import Any, Protocol

import pytest
from sqlalchemy import func, insert, select

from lab_agent.lis.testing import make_correction, make_order, make_report
from lab_agent.serialization import dump_message
from tests.fakes.http_lis import AGENT_SECRET, LIS_SECRET, HttpLis
from tests.harness.adapter_journal import kept_values
from tests.harness.clock import DEADLINE
from tests.harness.databases import create_staging_tables
from tests.harness.paths import ROOT
from tests.harness.programs import free_port
from tests.harness.proof import FIGURES, SHARE

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


class Laboratory(Protocol):
    """A laboratory system: its adapter's settings, what it got, and what it has to say."""

    settings: dict[str, Any]

    def orders(self) -> list[str]: ...
    def put_out(self, body: bytes) -> None: ...
    def waiting(self) -> int: ...
    def close(self) -> None: ...


class Folders:
    def __init__(self, base: Path) -> None:
        self.base, self.taken, self.number = base, list[str](), 0
        for name in ("orders", "results"):
            (base / name).mkdir()
        self.settings: dict[str, Any] = {"orders": str(base / "orders"), "results": str(base / "results"), "settle": 0}

    def orders(self) -> list[str]:
        for path in (self.base / "orders").glob("[!.]*.json"):
            self.taken.append(json.loads(path.read_bytes())["key"])
            path.unlink()
        return self.taken

    def put_out(self, body: bytes) -> None:
        self.number += 1
        path = self.base / "results" / f"{self.number}.tmp"
        path.write_bytes(body)
        path.rename(path.with_suffix(".json"))

    def waiting(self) -> int:
        return sum(path.suffix == ".json" or path.name.startswith(".claimed") for path in (self.base / "results").iterdir())

    def close(self) -> None:
        assert not list((self.base / "results" / "failed").iterdir())


class Webhooks:
    def __init__(self, base: Path) -> None:
        self.lis = HttpLis(free_port())
        self.settings: dict[str, Any] = {
            "url": self.lis.url,
            "secret": AGENT_SECRET,
            "incoming_secret": LIS_SECRET,
            "port": self.lis.agent_port,
            "status_path": "orders/{key}",
        }

    def orders(self) -> list[str]:
        return list(self.lis.orders)

    def put_out(self, body: bytes) -> None:
        self.lis.queue_result(body)

    def waiting(self) -> int:
        return len(self.lis.outbox)

    def close(self) -> None:
        self.lis.close()
        assert self.lis.bad_signatures == 0


class Tables:
    def __init__(self, base: Path) -> None:
        self.settings: dict[str, Any] = {"url": f"sqlite:///{base / 'lis.db'}"}
        self.engine, self.tables = create_staging_tables(self.settings["url"])

    def ask(self, query: Any) -> list[Any]:
        with self.engine.begin() as connection:
            return list(connection.execute(query).scalars())

    def orders(self) -> list[str]:
        return self.ask(select(self.tables.orders.c.order_key))

    def put_out(self, body: bytes) -> None:
        with self.engine.begin() as connection:
            connection.execute(insert(self.tables.results).values(document=body.decode(), ready=1))

    def waiting(self) -> int:
        results = self.tables.results
        return int(self.ask(select(func.count()).select_from(results).where(results.c.processed_at.is_(None)))[0])

    def close(self) -> None:
        whole = select(func.count()).select_from(self.tables.lines)
        assert self.ask(whole)[0] == sum(len(make_order(seed).lines) for seed in range(len(self.orders())))
        self.engine.dispose()


KINDS: dict[str, Callable[[Path], Laboratory]] = {"folder": Folders, "http": Webhooks, "sql": Tables}


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


def loop(kind: str, base: Path, launcher: Launcher, kills: int) -> None:
    """One more order and one more report each round; at its end everything is there once."""
    laboratory, journal, rng = KINDS[kind](base), base / "journal", random.Random(kills)
    report = make_report(1, make_order(1))
    task = {"kind": kind, "settings": laboratory.settings, "journal": str(journal)}
    try:
        for number in range(kills):
            laboratory.put_out(dump_message(make_correction(report, f"{number}.0")))
            child = launcher.start({**task, "orders": number + 1})
            time.sleep(rng.uniform(0, 0.15))
            laboratory.orders()
            launcher.kill(child)
        child = launcher.start({**task, "orders": kills})
        keys = {make_order(seed).key for seed in range(kills)}
        end = time.monotonic() + DEADLINE
        while laboratory.waiting() or not {f"done|{key}" for key in keys} <= {*journal.read_text().splitlines()}:
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.02)
        launcher.kill(child)
        assert sorted(laboratory.orders()) == sorted(keys)
        assert sorted(kept_values(journal)) == sorted(f"{number}.0" for number in range(kills))
    finally:
        laboratory.close()


@pytest.mark.parametrize("kind", KINDS)
def test_agent_killed_five_times_exactly_once(kind: str, tmp_path: Path, launcher: Launcher) -> None:
    """Killed at five random moments, the agent submits no order twice and loses no result."""
    loop(kind, tmp_path, launcher, 5)


@pytest.mark.proof
@pytest.mark.parametrize("kind", KINDS)
def test_agent_killed_hundred_times_exactly_once(kind: str, tmp_path: Path, launcher: Launcher) -> None:
    """Killed at a hundred random moments, the agent submits no order twice and loses no result."""
    loop(kind, tmp_path, launcher, max(5, int(100 * SHARE)))
    FIGURES.add(kills=max(5, int(100 * SHARE)), lost=0, twice=0)

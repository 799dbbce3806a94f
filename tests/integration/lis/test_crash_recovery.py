"""The agent in small is killed at chance moments of handover and intake, and started again: no order twice, no result lost.

The same loop runs over each built-in adapter, with the laboratory system in this process: the killed one is a real process that
keeps its journal in a file, one synced line for each commit.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from sqlalchemy import create_engine, func, insert, select, text

from lab_agent.lis.sql.staging_tables import create_statements, make_tables
from lab_agent.lis.testing import make_correction, make_order, make_report
from lab_agent.serialization import dump_message
from tests.fakes.http_lis import AGENT_SECRET, LIS_SECRET, HttpLis

DEADLINE = 60.0
SHARE = float(os.environ.get("LAB_PROOF_SHARE", "1"))

PROCESS = """
import asyncio, json, os, sys
from contextlib import suppress
from lab_agent.errors import LabAgentError, LisOutcomeUnknown, LisUnavailable
from lab_agent.lis.folder import FolderAdapter
from lab_agent.lis.http import HttpAdapter
from lab_agent.lis.sql import SqlAdapter
from lab_agent.lis.testing import make_order, resume_submit

KINDS = {"folder": FolderAdapter, "http": HttpAdapter, "sql": SqlAdapter}

class Journal:
    def __init__(self, path):
        self.path = path
        text = open(path).read() if os.path.exists(path) else ""
        whole = text[: text.rfind("\\n") + 1]
        if whole != text:  # a line that the kill tore was never committed
            os.truncate(path, len(whole.encode()))
        self.kept = set(whole.splitlines())
    def commit(self, line):
        with open(self.path, "a") as file:
            file.write(line + "\\n")
            file.flush()
            os.fsync(file.fileno())
        self.kept.add(line)

class Inbox:
    def __init__(self, journal):
        self.journal = journal
    async def accept_all(self, messages):
        return frozenset([name for name, content in messages.items() if await self.accept(name, content)])
    async def find_accepted(self, messages):
        return frozenset([name for name in messages if await self.was_accepted(name)])
    async def was_accepted(self, message):
        return any(line.startswith(f"kept|{message}|") for line in self.journal.kept)
    async def accept(self, message, content):
        if await self.was_accepted(message):
            return False
        self.journal.commit(f"kept|{message}|{content.observations[0].value_quantity.value}")
        return True

async def hand_over(adapter, journal, order):
    if f"done|{order.key}" in journal.kept:
        return
    if f"prepared|{order.key}" in journal.kept:
        assert await resume_submit(adapter, order, prepared_committed=True)
    else:
        await adapter.prepare(order)
        journal.commit(f"prepared|{order.key}")
        await adapter.submit(order)
    journal.commit(f"done|{order.key}")

async def main(task):
    kind = KINDS[task["kind"]]
    adapter = kind(kind.Settings.model_validate(task["settings"]), task["kind"])
    journal = Journal(task["journal"])
    while True:
        try:
            await adapter.start(Inbox(journal))
            break
        except LisUnavailable:
            await asyncio.sleep(0.01)
    while True:
        for seed in range(task["orders"]):
            with suppress(LisUnavailable, LisOutcomeUnknown):
                await hand_over(adapter, journal, make_order(seed))
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
        with closing(socket.socket()) as sock:
            sock.bind(("127.0.0.1", 0))
            self.lis = HttpLis(sock.getsockname()[1])
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
        self.engine = create_engine(self.settings["url"])
        self.tables = make_tables("lab_", None)
        with self.engine.begin() as connection:
            for statement in filter(str.strip, create_statements("sqlite", "lab_").split(";")):
                connection.execute(text(statement))

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
    command = [sys.executable, "-c", PROCESS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
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
        wait(lambda: not laboratory.waiting() and {f"done|{key}" for key in keys} <= set(lines(journal)))
        launcher.kill(child)
        assert sorted(laboratory.orders()) == sorted(keys)
        kept = [line.split("|")[2] for line in lines(journal) if line.startswith("kept|")]
        assert sorted(kept) == sorted(f"{number}.0" for number in range(kills))
    finally:
        laboratory.close()


def lines(journal: Path) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []


def wait(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not reached():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_agent_killed_five_times_exactly_once(kind: str, tmp_path: Path, launcher: Launcher) -> None:
    """Killed at five random moments, the agent submits no order twice and loses no result."""
    loop(kind, tmp_path, launcher, 5)


@pytest.mark.proof
@pytest.mark.parametrize("kind", KINDS)
def test_agent_killed_hundred_times_exactly_once(kind: str, tmp_path: Path, launcher: Launcher) -> None:
    """Killed at a hundred random moments, the agent submits no order twice and loses no result."""
    loop(kind, tmp_path, launcher, max(5, int(100 * SHARE)))

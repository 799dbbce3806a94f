"""One order and its result, and an agent of which one call on a file fails: service and laboratory system are outside of it."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import uvicorn

from tests.harness import forked_programs
from tests.harness.clock import DEADLINE
from tests.harness.databases import create_database
from tests.harness.documents import final_report
from tests.harness.orders import find_order
from tests.harness.traced_agent import DATABASE, ENDED, ORDERS, RESULTS, UNFINISHED, is_settled
from tests.harness.traced_calls import Fault, TracedCall, injecting, listing, parse_calls, traced
from tests.harness.world import World

PHASES = ("handed_over", "closed")
"""Intake and delivery, by the state of the order at their end."""
VALUE = "1.20"
_START = timedelta(minutes=10)
"""Between two starts of the agent: a lease of the former one has expired."""


class Outcome(Enum):
    """What became of an agent of which a call failed."""

    WENT_ON = "went on"
    ENDED = "ended"
    """With an error, before it had begun: its supervisor starts it again."""
    UNFINISHED = "unfinished"
    """It never came to the end."""
    KILLED = "killed"
    NOT_REACHED = "not reached"
    """It never came to the call."""


class ServiceThread:
    """The exchange service of whichever world is set, on a port of this machine."""

    def __init__(self) -> None:
        self.app: Any = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._server = uvicorn.Server(uvicorn.Config(self._call, interface="asgi3", lifespan="off", log_config=None))
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve(sockets=[self._listener])), daemon=True)
        self._thread.start()
        forked_programs.prepare("tests.harness.traced_agent")

    async def _call(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(DEADLINE)


@dataclass
class TracedLaboratory:
    """A world with one order, the folders of the laboratory system, and an agent that is started as often as it takes."""

    folder: Path
    service: ServiceThread
    world: World
    task: str
    about: str = ""
    """What was done to it, for a failing assertion."""
    starts: int = 0
    received: list[dict[str, Any]] = field(default_factory=list)
    """The orders that the laboratory system has found, as often as it has found them."""

    @classmethod
    def create(cls, folder: Path, service: ServiceThread, seed: object) -> TracedLaboratory:
        """A fresh one: the service is that of this world from now on."""
        world = World(seed)
        folder.mkdir()
        for name in (ORDERS, RESULTS):
            (folder / name).mkdir()
        create_database(folder / DATABASE)
        service.app = world.app
        task = world.place_order(find_order(world.clock.now(), lines=1, specimens=1))
        return cls(folder, service, world, task)

    @property
    def log(self) -> Path:
        """What the agent has logged; not among its files."""
        return self.folder.with_suffix(".log")

    @property
    def order_key(self) -> str:
        return str(self.world.order_key_of(self.task))

    # --- the agent

    def list_calls(self, phase: str) -> list[TracedCall]:
        log = self.folder / "calls.log"
        assert self._start(phase, listing(), log) == 0, self.describe()
        return parse_calls(log.read_text(), self.folder, {self.order_key: "ORDER"})

    def go_through(self, phase: str) -> None:
        assert self._start(phase) == 0, self.describe()

    def fail(self, phase: str, call: TracedCall, fault: Fault) -> Outcome:
        """Begin a phase, one call of which fails so, or is the last."""
        log, path = self.folder / "injected.log", self.folder / call.path.replace("ORDER", self.order_key)
        code = self._start(phase, injecting(call, path, fault), log)
        if code == fault.exit_code:
            return Outcome.KILLED
        if fault.kills or log.read_text().count("(INJECTED)") != 1:
            assert code == 0, self.describe()
            return Outcome.NOT_REACHED
        outcomes = {0: Outcome.WENT_ON, ENDED: Outcome.ENDED, UNFINISHED: Outcome.UNFINISHED}
        assert code in outcomes, self.describe()
        return outcomes[code]

    def _start(self, phase: str, options: tuple[str, ...] = (), log: Path | None = None) -> int:
        self.starts += 1
        now = self.world.clock.now() + self.starts * _START
        task = {"folder": str(self.folder), "service": self.service.port, "now": now.isoformat(), "start": self.starts}
        words = json.dumps({**task, "until": phase})
        reading, writing = socket.socketpair()
        with reading, writing, self.log.open("ab") as output:
            process = forked_programs.start(
                "tests.harness.traced_agent", words, stdin=reading.fileno(), stdout=output, stderr=output
            )
            try:
                if log is None:
                    return _go(process, writing)
                with traced(process.pid, log, *options):
                    return _go(process, writing)
            finally:
                process.kill()
                process.wait(DEADLINE)

    # --- the laboratory system

    def take_orders(self) -> None:
        """Take what lies there under a name of an order, whole or not, and report each order once."""
        for file in sorted((self.folder / ORDERS).glob("[!.]*")):
            if file.is_dir():
                continue
            text = file.read_text()
            file.unlink()
            assert text, f"the laboratory system finds an empty file\n{self.describe()}"
            self.received.append(json.loads(text))
        if len(self.received) == 1 and not self.reported():
            self._report(self.received[0])

    def reported(self) -> bool:
        return (self.folder / "reported").exists()

    def _report(self, order: dict[str, Any]) -> None:
        (line,) = order["lines"]
        body = final_report("report", order["key"], line["key"], self.world.clock.now())
        partial = self.folder / RESULTS / ".result.part"
        partial.write_text(json.dumps(body))
        partial.rename(self.folder / RESULTS / "result.json")
        (self.folder / "reported").touch()

    # --- what can be seen

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """A copy of the database as it lies there, with what is in its log: the agent's own stays untouched."""
        copy = self.folder / "copy"
        copy.mkdir()
        try:
            for name in (DATABASE, f"{DATABASE}-wal"):
                if (self.folder / name).exists():
                    shutil.copy(self.folder / name, copy)
            with closing(sqlite3.connect(copy / DATABASE)) as connection:
                yield connection
        finally:
            shutil.rmtree(copy)

    def check_acknowledged(self) -> None:
        """What was acknowledged, to the service or to the laboratory system, is in the database, and that is whole."""
        moved = list((self.folder / RESULTS / "done").glob("*.json"))
        statuses = {self.world.get_task(self.task)["status"], *(each["status"] for each in self.world.line_tasks(self.task))}
        with self.database() as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)], self.describe()
            orders = connection.execute("SELECT count(*) FROM orders").fetchone()[0]
            reports = connection.execute("SELECT count(*) FROM reports").fetchone()[0]
        assert reports == 1 or not any(each.stat().st_size for each in moved), f"a result is lost\n{self.describe()}"
        assert orders == 1 or (statuses == {"requested"} and not self.received), f"an order is lost\n{self.describe()}"

    def check_once(self) -> None:
        """All has come to its end: one order, one result with its digits."""
        assert [each["key"] for each in self.received] == [self.order_key], f"not handed over once\n{self.describe()}"
        statuses = [self.world.get_task(self.task)["status"], *(each["status"] for each in self.world.line_tasks(self.task))]
        assert set(statuses) == {"completed"}, f"{statuses}\n{self.describe()}"
        (report,), (observation,) = self.world.resources("DiagnosticReport"), self.world.resources("Observation")
        assert report["status"] == observation["status"] == "final", self.describe()
        assert str(observation["valueQuantity"]["value"]) == VALUE, f"{observation}\n{self.describe()}"
        left = [path.name for path in (self.folder / RESULTS).glob("*.json")]
        done = [path.read_text() for path in (self.folder / RESULTS / "done").iterdir()]
        assert not left, f"{left}\n{self.describe()}"
        assert sum(bool(text) for text in done) == 1, f"{done}\n{self.describe()}"
        with self.database() as connection:
            assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)
            assert connection.execute("SELECT count(*) FROM reports").fetchone() == (1,)
            assert is_settled(connection.execute, "closed"), self.describe()

    def alerts(self) -> list[str]:
        """The conditions that were told, each as often as it was; all have ended."""
        with self.database() as connection:
            return [name for (name,) in connection.execute("SELECT condition FROM alerts ORDER BY opened_at")]

    def describe(self) -> str:
        return f"{self.about}\n{self.log.read_text()[-6000:]}"


def _go(process: forked_programs.ForkedProgram, writing: socket.socket) -> int:
    writing.sendall(b"go\n")
    return process.wait(DEADLINE)

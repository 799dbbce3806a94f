"""The processes of one measurement: the stub service, the agent and the floor, and waiting for what the agent does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.child_process import ChildProcess, start_child
from benchmarks.sample_order import ORDER_MARK
from benchmarks.workspace import Workspace, make_workspace

_DEADLINE = 300.0
_LOOK_EVERY = 0.02


@dataclass(frozen=True, slots=True)
class Usage:
    """What a number of orders cost: seconds of CPU, and of time."""

    cpu: float
    elapsed: float
    orders: int

    @property
    def cpu_per_order(self) -> float:
        """Milliseconds of CPU."""
        return 1000 * self.cpu / self.orders

    @property
    def orders_per_second(self) -> float:
        """By the clock on the wall."""
        return self.orders / self.elapsed


@dataclass(slots=True)
class Bench:
    """A stub service, an agent that works with it, and the floor beside them."""

    stub: ChildProcess
    agent: ChildProcess
    floor: ChildProcess
    workspace: Workspace
    _next_order: int = field(default=1)

    def take_numbers(self, count: int) -> int:
        """Reserve numbers for orders; the first one."""
        first, self._next_order = self._next_order, self._next_order + count
        return first

    def run_intake(self, count: int) -> Usage:
        """Let the agent take in new orders, from the poll to the file of each in the folder of the laboratory system."""
        before = self.workspace.count_orders("handed_over")
        self.stub.ask(offer=[self.take_numbers(count), count])
        started, cpu = time.monotonic(), self.agent.ask(now="poll")["cpu"]
        self.wait_for_orders(before + count, "handed_over")
        elapsed = time.monotonic() - started
        return Usage(self.agent.ask()["cpu"] - cpu, elapsed, count)

    def run_floor(self, requests: list[tuple[str, str, str]], count: int) -> Usage:
        """Let the floor make its requests (method, target, body) for as many orders."""
        started = time.monotonic()
        answer = self.floor.ask(requests=requests, first=self.take_numbers(count), count=count)
        return Usage(answer["cpu"], time.monotonic() - started, count)

    def wait_for_orders(self, count: int, *states: str) -> None:
        """Wait until this many orders are in these states. Raises `RuntimeError` if they do not get there."""
        deadline = time.monotonic() + _DEADLINE
        while (found := self.workspace.count_orders(*states)) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} instead of {count} orders are {states} after {_DEADLINE:g} seconds")
            time.sleep(_LOOK_EVERY)

    def read_targets(self) -> dict[str, str]:
        """The address of each resource of an order, by its reference."""
        return {each: f"fhir/{each}" for each in self.stub.greeting["sample"]["references"]}

    def take_requests(self) -> dict[str, Any]:
        """How often what was asked of the stub since the last time."""
        return dict(self.stub.ask(requests="take")["requests"])


@contextmanager
def open_bench(*, latency: float = 0.0, more_settings: str = "") -> Iterator[Bench]:
    """Start the three processes with a database in SQLite; the service answers after `latency` seconds."""
    with TemporaryDirectory(prefix="lab-agent-benchmark-") as name, start_child(Path(name), "benchmarks.stub_service") as stub:
        base_url = stub.greeting["base_url"]
        stub.ask(latency=latency)
        workspace = make_workspace(Path(name), base_url, more_settings=more_settings)
        with (
            start_child(Path(name), "benchmarks.agent", str(workspace.settings_file)) as agent,
            start_child(Path(name), "benchmarks.floor", base_url) as floor,
        ):
            yield Bench(stub, agent, floor, workspace)


def intake_requests(bench: Bench) -> list[tuple[str, str, str]]:
    """The GETs that an order of the sample needs at least: its lines, what they are about, and its Task before the handover."""
    kinds = ("procedurerequest/", "specimen/", "patient/")
    linked = [target for name, target in bench.read_targets().items() if name.startswith(kinds)]
    order_task = bench.stub.greeting["sample"]["order_task"]
    lines = f"fhir/task?part-of=task/{ORDER_MARK}-{order_task.rpartition('-')[2]}"
    return [("GET", target, "") for target in (lines, *linked, f"fhir/{order_task}")]

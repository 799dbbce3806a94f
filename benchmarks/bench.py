"""The processes of one measurement: the stub service, the agent and the floor, and waiting for what the agent does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.child_process import ChildProcess, Json, start_child
from benchmarks.measurement import Counts, Run, Usage
from benchmarks.workspace import Workspace, make_workspace

WriteResult = Callable[[Path, Json], None]
"""Writes the result of an order (as the agent wrote it) into a folder."""
_DEADLINE = 300.0
_LOOK_EVERY = 0.02
_COLLECT_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class FloorRequest:
    """A request of the floor; in each part `ORDER_MARK` stands for the number of the order."""

    method: str
    target: str
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Bench:
    """A stub service, an agent that works with it, and the floor beside them."""

    stub: ChildProcess
    agents: tuple[ChildProcess, ...]
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
        started, cpu = time.monotonic(), self._cpu(now="poll")
        self.wait_for_orders(before + count, "handed_over")
        elapsed = time.monotonic() - started
        return Usage(self._cpu() - cpu, elapsed, count)

    @property
    def agent(self) -> ChildProcess:
        """The only agent, or the first one."""
        return self.agents[0]

    def _cpu(self, **command: str) -> float:
        """CPU of all agents so far, in seconds; each gets the command."""
        return float(sum(each.ask(**command)["cpu"] for each in self.agents))

    def idle_share(self, open_orders: int, seconds: float) -> float:
        """The share of a core that the agents need while nothing comes, with so many orders listed at each poll."""
        self.stub.ask(offer=[self._next_order - open_orders, open_orders])
        before = self._cpu()
        time.sleep(seconds)
        return (self._cpu() - before) / seconds

    def run_floor(self, requests: Sequence[FloorRequest], count: int) -> Usage:
        """Let the floor make its requests for as many orders."""
        started = time.monotonic()
        answer = self.floor.ask(requests=[asdict(each) for each in requests], first=self.take_numbers(count), count=count)
        return Usage(answer["cpu"], time.monotonic() - started, count)

    def run_delivery(self, write_result: WriteResult, count: int) -> Usage:
        """Let the agent deliver a report about each of as many new orders, from the result file to the end of the order."""
        self._prepare_results(write_result, count)
        return self._deliver(count)

    def intake_counts(self, count: int) -> Counts:
        """What the intake of an order asks of others."""
        return self._count(lambda: self.run_intake(count), count)

    def delivery_counts(self, write_result: WriteResult, count: int) -> Counts:
        """What the delivery of a report asks of others."""
        self._prepare_results(write_result, count)
        return self._count(lambda: self._deliver(count), count)

    def intake_profile(self, count: int) -> dict[str, float]:
        """Where the CPU of intakes goes: its shares by package."""
        return self._profile(lambda: self.run_intake(count))

    def delivery_profile(self, write_result: WriteResult, count: int) -> dict[str, float]:
        """Where the CPU of deliveries goes: its shares by package."""
        self._prepare_results(write_result, count)
        return self._profile(lambda: self._deliver(count))

    def _profile(self, run: Run) -> dict[str, float]:
        """Look in a round of its own: looking costs CPU."""
        self.agent.ask(profile="start")
        run()
        found: dict[str, float] = self.agent.ask(profile="stop")["profile"]
        whole = sum(found.values())
        return {name: seconds / whole for name, seconds in found.items()}

    def _count(self, run: Run, count: int) -> Counts:
        """Count in a round of its own: counting costs CPU."""
        self.stub.ask(requests="take")
        self.agent.ask(statements="count")
        run()
        counted = self.agent.ask(statements="take")
        requests: dict[str, int] = self.stub.ask(requests="take")["requests"]
        return Counts(
            statements=counted["statements"] / count,
            transactions=(counted["commits"] + counted["rollbacks"]) / count,
            rollbacks=counted["rollbacks"] / count,
            reads=counted["reads"] / count,
            requests=sum(requests.values()) / count,
        )

    def _prepare_results(self, write_result: WriteResult, count: int) -> None:
        """Have new orders taken in, and write the result of each."""
        self.run_intake(count)
        for file in self.workspace.orders.glob("*.json"):
            write_result(self.workspace.results, json.loads(file.read_bytes()))
            file.unlink()

    def _deliver(self, count: int) -> Usage:
        before = self.workspace.count_orders("closed")
        started, cpu = time.monotonic(), self.agent.ask()["cpu"]
        self._collect_results()
        self.wait_for_orders(before + count, "closed")
        elapsed = time.monotonic() - started
        return Usage(self.agent.ask()["cpu"] - cpu, elapsed, count)

    def _collect_results(self) -> None:
        """Let the agent collect until the folder is empty: a file is read once it has not changed between two collections."""
        deadline = time.monotonic() + _DEADLINE
        while any(self.workspace.results.glob("*.json")):
            if time.monotonic() > deadline:
                raise RuntimeError(f"result files are left after {_DEADLINE:g} seconds")
            self.agent.ask(now="collect")
            time.sleep(_COLLECT_EVERY)

    def wait_for_orders(self, count: int, *states: str) -> None:
        """Wait until this many orders are in these states. Raises `RuntimeError` if they do not get there."""
        deadline = time.monotonic() + _DEADLINE
        while (found := self.workspace.count_orders(*states)) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} instead of {count} orders are {states} after {_DEADLINE:g} seconds")
            time.sleep(_LOOK_EVERY)

    @property
    def sample(self) -> dict[str, Any]:
        """The order that is copied: `bodies` by reference, and the references of its Tasks."""
        sample: dict[str, Any] = self.stub.greeting["sample"]
        return sample


@contextmanager
def open_bench(*, latency: float = 0.0, database: str | None = None, workers: int = 1) -> Iterator[Bench]:
    """Start the processes; the service answers after `latency` seconds. The database is SQLite, unless another one is given."""
    with TemporaryDirectory(prefix="lab-agent-benchmark-") as name, start_child(Path(name), "benchmarks.stub_service") as stub:
        base_url = stub.greeting["base_url"]
        stub.ask(latency=latency)
        workspace = make_workspace(Path(name), base_url, database=database)
        with ExitStack() as stack:
            start = partial(start_child, Path(name))
            arguments = ("benchmarks.agent", str(workspace.settings_file))
            agents = tuple(stack.enter_context(start(*arguments)) for _ in range(workers))
            yield Bench(stub, agents, stack.enter_context(start("benchmarks.floor", base_url)), workspace)


def intake_requests(bench: Bench) -> list[FloorRequest]:
    """The GETs that an order of the sample needs at least: its lines, what they are about, and its Task before the handover."""
    linked = [name for name in bench.sample["bodies"] if name.startswith(("procedurerequest/", "specimen/", "patient/"))]
    order_task: str = bench.sample["order_task"]
    return [FloorRequest("GET", f"fhir/{target}") for target in (f"task?part-of={order_task}", *linked, order_task)]

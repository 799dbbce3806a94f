"""What is larger than anybody expects: how long the event loop is busy with one thing, how much memory it takes, how fast it is.

The time of the loop is the CPU of its thread between two turns of a task that only sleeps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.api import preanalytics
from benchmarks.bench import Bench, open_bench
from benchmarks.delivery import write_result
from benchmarks.measurement import Measurement, RunOptions

_MOST_BLOCKED = 100.0
"""Milliseconds."""
_DEADLINE = 1200.0
_PAUSE = 0.1
_BASKET = 200


def measure(options: RunOptions) -> list[Measurement]:
    """Measure a long poll, a large answer, a large basket, and many result files at once."""
    return [
        *_measure_poll(options.choose(2000, 20_000)),
        *_measure_answer(30_000_000, options.choose(5, 20)),
        *_measure_files(10_000 if options.large else options.choose(200, 1000)),
        *_measure_basket(options.choose(1, 3)),
    ]


@dataclass(frozen=True, slots=True)
class _Observed:
    blocked: float
    memory: float
    elapsed: float

    def to_measurements(self, what: str) -> list[Measurement]:
        return [
            Measurement(name=f"{what}: loop busy at most", value=self.blocked, unit="ms", at_most=_MOST_BLOCKED),
            Measurement(name=f"{what}: most memory", value=self.memory, unit="MB"),
        ]


class _Observation:
    """Watches an agent from now on."""

    def __init__(self, bench: Bench) -> None:
        self._agent = bench.agent
        self._agent.ask(loop="watch")
        self._started = time.monotonic()

    def end(self) -> _Observed:
        """What was seen."""
        elapsed = time.monotonic() - self._started
        answer = self._agent.ask(loop="take")
        return _Observed(1000 * answer["blocked"], answer["peak_memory"] / 1_000_000, elapsed)


def _measure_poll(tasks: int) -> list[Measurement]:
    """A poll that lists very many Tasks, until each has its order; the orders themselves are left."""
    with open_bench() as bench:
        bench.run_intake(5)
        observation = _Observation(bench)
        bench.stub.ask(offer=[bench.take_numbers(tasks), tasks])
        bench.agent.ask(now="poll")
        bench.wait_for_orders(tasks + 5, "seen", "fetched", "held", "handed_over")
        seen = observation.end()
    what = f"poll of {tasks:,} Tasks"
    return [*seen.to_measurements(what), Measurement(name=f"{what}: all seen after", value=seen.elapsed, unit="s")]


def _measure_answer(size: int, others: int) -> list[Measurement]:
    """An order with a resource of `size` bytes among others."""
    with open_bench() as bench:
        bench.run_intake(5)
        first = bench.take_numbers(0)
        bench.stub.ask(pad=[first, size])
        observation = _Observation(bench)
        bench.run_intake(1 + others)
        return observation.end().to_measurements(f"answer of {size // 1_000_000} MB")


def _measure_files(files: int) -> list[Measurement]:
    """Result files at once, with the agent's own intervals; they are about unknown orders, and end at the match desk."""
    with open_bench() as bench:
        bench.run_intake(1)
        for number in range(files):
            lines = [{"key": f"L{number:015}"}]
            write_result(bench.workspace.results, {"key": f"R{number:015}", "lines": lines})
        observation = _Observation(bench)
        bench.agent.ask(now="collect")
        _wait_until_collected(bench)
        seen = observation.end()
    what = f"{files:,} result files at once"
    return [*seen.to_measurements(what), Measurement(name=f"{what}: stored", value=files / seen.elapsed, unit="files/s")]


def _wait_until_collected(bench: Bench) -> None:
    deadline = time.monotonic() + _DEADLINE
    while any(bench.workspace.results.glob("*.json")):
        if time.monotonic() > deadline:
            raise RuntimeError(f"result files are left after {_DEADLINE:g} seconds")
        time.sleep(_PAUSE)


def _measure_basket(slices: int) -> list[Measurement]:
    """The tubes of a large basket; its CPU is the most that the loop of `lab-api` can be busy with it."""
    found = preanalytics(slices, size=_BASKET)
    return [Measurement(name=f"basket of {_BASKET} items: CPU", value=found.cpu_ms, unit="ms/request", at_most=_MOST_BLOCKED)]

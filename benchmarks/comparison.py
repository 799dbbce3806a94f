"""Intake beside a concurrent poller and a sequential script, with a service that answers at once, and with a distant one."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from benchmarks.bench import Bench, open_bench
from benchmarks.child_process import ChildProcess, start_child
from benchmarks.measurement import Measurement, RunOptions, Usage

_LATENCIES = (0.0, 0.02)
"""Seconds."""
_DISTANT_FACTOR = 5
"""How many times the sequential script intake is to be with a service that is 20 ms away."""


def measure(options: RunOptions) -> list[Measurement]:
    """Measure orders a second by the clock, and CPU."""
    return [each for latency in _LATENCIES for each in _measure_at(latency, options)]


def _measure_at(latency: float, options: RunOptions) -> list[Measurement]:
    with open_bench(latency=latency) as bench:
        folder, base_url = bench.workspace.folder, bench.stub.greeting["base_url"]
        with (
            start_child(folder, "benchmarks.other_pollers", "fhirpy", base_url, str(folder)) as fhirpy,
            start_child(folder, "benchmarks.other_pollers", "sequential", base_url, str(folder)) as sequential,
        ):
            bench.run_intake(20)
            many, few = options.choose(40, 100), options.choose(10, 20)
            rounds = [
                (_run(bench, sequential, few), _run(bench, fhirpy, many), bench.run_intake(many))
                for _ in range(options.choose(1, 2))
            ]
    return _to_measurements(f"at {1000 * latency:g} ms", rounds, _DISTANT_FACTOR if latency else 1)


def _to_measurements(where: str, rounds: list[tuple[Usage, Usage, Usage]], least_factor: float) -> list[Measurement]:
    names = ("sequential script", "fhirpy poller", "intake")
    speeds = [
        Measurement(
            name=f"{name} {where}",
            value=median(each[index].orders_per_second for each in rounds),
            unit="orders/s",
            note=f"{median(each[index].cpu_per_order for each in rounds):.1f} ms of CPU an order",
        )
        for index, name in enumerate(names)
    ]
    factors = [
        Measurement(
            name=f"intake / {names[index]} {where}",
            value=median(each[2].orders_per_second / each[index].orders_per_second for each in rounds),
            unit="",
            at_least=least_factor if index == 0 else None,
        )
        for index in (0, 1)
    ]
    return [*speeds, *factors]


def _run(bench: Bench, poller: ChildProcess, count: int) -> Usage:
    """Let a poller take in as many new orders."""
    bench.stub.ask(offer=[bench.take_numbers(count), count])
    started = time.monotonic()
    cpu = poller.ask()["cpu"]
    elapsed = time.monotonic() - started
    _check_files(bench.workspace.folder, count)
    return Usage(cpu, elapsed, count)


def _check_files(folder: Path, count: int) -> None:
    files = list(folder.glob("*-t*.json"))
    if len(files) != count:
        raise RuntimeError(f"{len(files)} instead of {count} orders were written")
    for file in files:
        file.unlink()

"""Intake: from the poll to the file of each order in the folder of the laboratory system."""

from __future__ import annotations

from benchmarks.bench import Bench, intake_requests, open_bench
from benchmarks.measurement import Measurement, RunOptions, median


def measure(options: RunOptions) -> list[Measurement]:
    """Measure the intake of orders of 5 lines and 3 tubes against their 11 GETs."""
    with open_bench() as bench:
        bench.run_intake(options.choose(10, 30))
        bench.run_floor(intake_requests(bench), 20)
        return [*_measure_cost(bench, options), *_measure_counts(bench, options.choose(10, 40))]


def _measure_cost(bench: Bench, options: RunOptions) -> list[Measurement]:
    count, floors, ours = options.choose(30, 150), [], []
    requests = intake_requests(bench)
    for _ in range(options.choose(1, 5)):
        floors.append(bench.run_floor(requests, count))
        ours.append(bench.run_intake(count))
    ratio = median(floor.cpu / our.cpu for floor, our in zip(floors, ours, strict=True))
    return [
        Measurement(name="CPU", value=median(each.cpu_per_order for each in ours), unit="ms/order"),
        Measurement(name=f"floor: {len(requests)} GETs", value=median(each.cpu_per_order for each in floors), unit="ms/order"),
        Measurement(name="floor / ours", value=ratio, unit="", at_least=0.3, note="by CPU"),
        Measurement(name="throughput", value=median(each.orders_per_second for each in ours), unit="orders/s"),
    ]


def _measure_counts(bench: Bench, count: int) -> list[Measurement]:
    """Count in a round of its own: counting costs CPU."""
    bench.take_requests()
    bench.agent.ask(statements="count")
    bench.run_intake(count)
    counted, requests = bench.agent.ask(statements="take"), sum(bench.take_requests().values())
    ended = counted["commits"] + counted["rollbacks"]
    return [
        Measurement(name="statements", value=counted["statements"] / count, unit="per order", at_most=25),
        Measurement(name="transactions", value=ended / count, unit="per order", at_most=5),
        Measurement(name="rolled back", value=counted["rollbacks"] / count, unit="per order"),
        Measurement(name="requests", value=requests / count, unit="per order"),
    ]

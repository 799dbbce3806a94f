"""Intake: from the poll to the file of each order in the folder of the laboratory system."""

from __future__ import annotations

from benchmarks.bench import Bench, intake_requests, open_bench
from benchmarks.measurement import Measurement, RunOptions, measure_counts, measure_ratio, measure_shares


def measure(options: RunOptions) -> list[Measurement]:
    """Measure the intake of orders of 5 lines and 3 tubes against their 11 GETs."""
    with open_bench() as bench:
        requests = intake_requests(bench)
        bench.run_intake(options.choose(10, 30))
        bench.run_floor(requests, 20)
        count = options.choose(30, 100)
        return [
            *measure_ratio(
                f"{len(requests)} GETs",
                lambda: bench.run_floor(requests, count),
                lambda: bench.run_intake(count),
                rounds=options.choose(1, 5),
            ),
            *measure_counts(bench.intake_counts(options.choose(20, 100)), most_statements=25, most_transactions=5),
            _measure_idle(bench, options),
            *measure_shares(bench.intake_profile(count)),
        ]


def _measure_idle(bench: Bench, options: RunOptions) -> Measurement:
    """What it costs to wait, with the intervals of the defaults: a poll comes every 15 seconds."""
    orders = options.choose(50, 500)
    share = bench.idle_share(orders, options.choose(4, 32))
    return Measurement(name=f"idle, {orders} open orders", value=100 * share, unit="% of a core")

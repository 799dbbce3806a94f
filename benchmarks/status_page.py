"""The status page beside very many orders: each page against the same page rendered from constants, on both databases."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import text

from benchmarks.bench import open_bench
from benchmarks.delivery import write_result
from benchmarks.measurement import Measurement, RunOptions
from benchmarks.postgres import postgres_server
from benchmarks.seeding import copy_order

_SECONDS_APART = 20.0
"""4,320 orders a day."""
_AT_MOST = 3.0
"""Times the page from constants, at the 95th percentile."""


def measure(options: RunOptions) -> list[Measurement]:
    """Measure on SQLite, then on PostgreSQL."""
    with postgres_server() as server:
        return [*_measure("SQLite", lambda: None, options), *_measure("PostgreSQL", server.create_database, options)]


def _measure(name: str, create: Callable[[], str | None], options: RunOptions) -> list[Measurement]:
    orders = 1_000_000 if options.large else options.choose(1000, 50_000)
    with open_bench(database=create()) as bench:
        bench.run_delivery(write_result, 1)
        bench.stub.ask(offer=[0, 0])
        copy_order(bench.workspace.engine, "closed", 0, orders, apart=_SECONDS_APART)
        with bench.workspace.engine.connect() as connection:
            barcode = str(connection.execute(text("SELECT barcode FROM label_uses ORDER BY number DESC LIMIT 1")).scalar_one())
            key = str(connection.execute(text("SELECT key FROM orders LIMIT 1")).scalar_one())
        rare, common = barcode[-7:], barcode[:4]
        paths = {
            "overview": "/",
            "list": "/orders",
            "list, deep in it": f"/orders?after=2000-01-01T00:00:00%2B00:00~{key}",
            "list of a state": "/orders?state=closed",
            "search, rare part": f"/orders?search={rare}",
            "search, common part": f"/orders?search={common}",
            "search, nothing": "/orders?search=zzzzzz",
        }
        timed = bench.agent.ask(pages=list(paths.values()), times=options.choose(20, 60))["pages"]
    return [
        Measurement(
            name=f"{name}: {page} with {orders:,} orders / from constants",
            value=timed[path][0] / timed[path][1],
            unit="",
            at_most=_AT_MOST,
            note=f"p95 {timed[path][0]:.1f} ms, {timed[path][1]:.1f} ms from constants",
        )
        for page, path in paths.items()
    ]

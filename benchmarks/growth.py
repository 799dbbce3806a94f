"""Growth: what open and closed orders in the database cost, on SQLite and on PostgreSQL, and what a second worker gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from sqlalchemy import Engine, text

from benchmarks.bench import Bench, FloorRequest, intake_requests, open_bench
from benchmarks.delivery import write_result
from benchmarks.measurement import Measurement, RunOptions
from benchmarks.postgres import PostgresServer, postgres_server
from benchmarks.seeding import copy_order

_ACTIONS = {"idle poll": "poll", "overview page": "overview"}
"""Commands of the agent's process."""
_LATENCIES = (0.0, 0.02)
"""Seconds."""


@dataclass(frozen=True, slots=True)
class _Database:
    """A kind of database: `create` makes an empty one, `cpu_seconds` is what its server has used."""

    name: str
    create: Callable[[], str | None]
    cpu_seconds: Callable[[], float]


def measure(options: RunOptions) -> list[Measurement]:
    """Measure growth, then two workers."""
    with postgres_server() as server:
        sqlite = _Database("SQLite", lambda: None, lambda: 0.0)
        postgres = _Database("PostgreSQL", server.create_database, server.cpu_seconds)
        found = []
        for database in (sqlite, postgres):
            found += [*_measure_open_orders(database, options), *_measure_closed_orders(database, options)]
        for latency in _LATENCIES:
            found += _measure_workers(server, latency, options)
    return found


def _measure_open_orders(database: _Database, options: RunOptions) -> list[Measurement]:
    """CPU an order by the number of open orders, each time against the floor in the same minute."""
    sizes = (100, 1000) if options.quick else (1000, 10_000, 50_000)
    costs = {}
    with open_bench(database=database.create()) as bench:
        requests, count = intake_requests(bench), options.choose(20, 60)
        bench.run_intake(options.choose(5, 30))
        there = 0
        for size in sizes:
            copy_order(bench.workspace.engine, "handed_over", there, size - there)
            there = size
            rounds = [_cost_against_floor(bench, database, requests, count) for _ in range(options.choose(1, 3))]
            costs[size] = median(rounds)
    return [
        Measurement(
            name=f"{database.name}: an order with {size:,} open ones / with {sizes[0]:,}",
            value=costs[size] / costs[sizes[0]],
            unit="",
            at_most=1.15,
            note="CPU by the floor's" if database.name == "SQLite" else "CPU with that of the server, by the floor's",
        )
        for size in sizes[1:]
    ]


def _cost_against_floor(bench: Bench, database: _Database, requests: list[FloorRequest], count: int) -> float:
    floor = bench.run_floor(requests, count).cpu
    before = database.cpu_seconds()
    ours = bench.run_intake(count).cpu
    used: float = ours + database.cpu_seconds() - before
    return used / floor


def _measure_closed_orders(database: _Database, options: RunOptions) -> list[Measurement]:
    """Poll and page beside one closed order and beside very many, in turns: two agents with a database each."""
    closed = 1_000_000 if options.large else options.choose(1000, 20_000)
    with open_bench(database=database.create()) as empty, open_bench(database=database.create()) as full:
        for bench in (empty, full):
            bench.run_delivery(write_result, 1)
            bench.stub.ask(offer=[0, 0])
        size = _database_bytes(full.workspace.engine)
        copy_order(full.workspace.engine, "closed", 0, closed)
        size = _database_bytes(full.workspace.engine) - size
        costs = {name: _pairs_of_costs(database, empty, full, command, options) for name, command in _ACTIONS.items()}
    compared = [
        Measurement(
            name=f"{database.name}: {name} with {closed:,} closed orders / with one",
            value=median(many / few for few, many in pairs),
            unit="",
            at_most=1.1,
            note=f"{1000 * median(many for _, many in pairs):.1f} ms of CPU",
        )
        for name, pairs in costs.items()
    ]
    return [*compared, Measurement(name=f"{database.name}: disk", value=size / closed / 1000, unit="kB/closed order")]


def _pairs_of_costs(
    database: _Database, empty: Bench, full: Bench, command: str, options: RunOptions
) -> list[tuple[float, float]]:
    """What it costs without closed orders and with them, in turns; the first pair warms up."""
    times = options.choose(10, 20)
    pairs = [
        (_cost_of(empty, database, command, times), _cost_of(full, database, command, times))
        for _ in range(1 + options.choose(3, 7))
    ]
    return pairs[1:]


def _database_bytes(engine: Engine) -> int:
    """How large the database is."""
    pages = "(SELECT page_count FROM pragma_page_count()) * (SELECT page_size FROM pragma_page_size())"
    size = pages if engine.dialect.name == "sqlite" else "pg_database_size(current_database())"
    with engine.connect() as connection:
        return int(connection.execute(text(f"SELECT {size}")).scalar_one())


def _cost_of(bench: Bench, database: _Database, command: str, times: int) -> float:
    """Seconds of CPU of one poll or page, with that of the database's server."""
    before: float = bench.agent.ask()["cpu"] + database.cpu_seconds()
    after: float = bench.agent.ask(**{command: times})["cpu"] + database.cpu_seconds()
    return (after - before) / times


def _measure_workers(server: PostgresServer, latency: float, options: RunOptions) -> list[Measurement]:
    """Orders a second of two workers by those of one. Both run with the stub and the server on the same cores."""
    count, rounds = options.choose(15, 80), options.choose(1, 3)
    with (
        open_bench(latency=latency, database=server.create_database()) as one,
        open_bench(latency=latency, database=server.create_database(), workers=2) as two,
    ):
        for bench in (one, two):
            bench.run_intake(options.choose(5, 20))
        speeds = [(one.run_intake(count).orders_per_second, two.run_intake(count).orders_per_second) for _ in range(rounds)]
    return [
        Measurement(
            name=f"PostgreSQL: two workers / one, at {1000 * latency:g} ms",
            value=median(second / first for first, second in speeds),
            unit="",
            at_least=1.8 if latency else 1.0,
            note=f"{median(second for _, second in speeds):.1f} orders/s",
        )
    ]

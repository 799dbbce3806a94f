"""The status page beside very many orders: each page against the same page rendered from constants, on both databases."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.client import HTTPConnection
from statistics import median, quantiles

from sqlalchemy import text

from benchmarks.bench import open_bench
from benchmarks.child_process import Json
from benchmarks.delivery import write_result
from benchmarks.measurement import Measurement, RunOptions
from benchmarks.postgres import postgres_server
from benchmarks.seeding import copy_order
from lab_agent.status.sessions import SESSION_COOKIE

_SECONDS_APART = 20.0
"""4,320 orders a day."""
_WARM_UP = 15
"""Requests before: PostgreSQL makes plans of its own for the first ones of a connection."""
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
            middle = text("SELECT barcode FROM label_uses ORDER BY number LIMIT 1 OFFSET :half")
            barcode = str(connection.execute(middle, {"half": orders // 2}).scalar_one())
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
        served = bench.agent.ask(pages="serve")["pages"]
        return [_compare(f"{name}: {page} with {orders:,} orders", served, path, options) for page, path in paths.items()]


def _compare(name: str, served: Json, path: str, options: RunOptions) -> Measurement:
    """Get the page and the same from constants in turns, over a connection to each, as a browser does."""
    page, constant = (HTTPConnection("127.0.0.1", served[server]) for server in ("port", "constant"))
    cookie = {"Cookie": f"{SESSION_COOKIE}={served['cookie']}"}
    ours, floor = list[float](), list[float]()
    for number in range(_WARM_UP + options.choose(20, 200)):
        took, least = _get(page, path, cookie), _get(constant, "/", cookie)
        if number >= _WARM_UP:
            ours.append(took)
            floor.append(least)
    page.close()
    constant.close()
    p95, least_p95 = (1000 * quantiles(each, n=20)[-1] for each in (ours, floor))
    note = f"p95 {p95:.1f} ms, {least_p95:.1f} ms from constants; median {1000 * median(ours):.1f} and {1000 * median(floor):.1f}"
    return Measurement(name=f"{name} / from constants", value=p95 / least_p95, unit="", at_most=_AT_MOST, note=note)


def _get(connection: HTTPConnection, path: str, headers: dict[str, str]) -> float:
    """Get a page; the seconds until its end. Raises `RuntimeError` if it is not shown."""
    begun = time.perf_counter()
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    took = time.perf_counter() - begun
    if answer.status != 200:
        raise RuntimeError(f"{path} was answered with {answer.status}: {body[-600:]!r}")
    return took

"""Settings that are each valid and do not go together."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lab_agent.settings.api import ApiSettings
from lab_agent.settings.exchange import ExchangeSettings
from lab_agent.settings.groups import LisRouteSettings, LisSettings, ResultsSettings, RulesSettings, WorkerSettings
from lab_agent.shared.errors import Problem, did_you_mean

_OWN_PLACES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "folder": (("orders",), ("results",)),
    "hl7v2": (("orders.port", "orders.host", "orders.role"), ("folder",)),
    "http": (("url",),),
    "sql": (("url", "table_schema", "table_prefix"),),
}
"""Where a laboratory system is, by the kind of its adapter: keys whose values together belong to one table alone."""
_FOLDER_RESULTS = ("results", "done", "failed")
"""The folders of a folder adapter in which result files stand: what one table moves away, no other one may read."""
_FIRST_COUNTS = "the first route that a line fits counts: remove the name here, or put this route first"


def find_contradictions(groups: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Find settings that contradict each other, in the groups that were read; each by its name."""
    fitting = [(check, names) for check, names in _CHECKS if all(name in groups for name in names)]
    return tuple(problem for check, names in fitting for problem in check(*(groups[name] for name in names)))


def find_missing_login_secret(exchange: ExchangeSettings) -> Iterator[Problem]:
    """Find the secret that signing in at the service needs and that is not set."""
    if secret := exchange.oauth.missing_secret:
        hint = f"set it, or give it as the credential exchange.oauth.{secret}"
        yield Problem(f"exchange.oauth.{secret}", f"is missing; the grant {exchange.oauth.grant!r} needs it", hint)


def _check_hosting(results: ResultsSettings, api: ApiSettings) -> Iterator[Problem]:
    if results.documents == "host" and not api.public_url:
        what = "is host, but the address at which partners find documents is not set"
        yield Problem("results.documents", what, 'set api.public_url, or documents = "upload"')


def _check_pool_names(api: ApiSettings) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for number, pool in enumerate(api.pools):
        if (other := first.setdefault(pool.name, number)) != number:
            yield Problem(f"api.pools.{number}.name", f"is also the name of api.pools.{other}", "give each pool its own name")


def _check_pool_labels(api: ApiSettings, rules: RulesSettings) -> Iterator[Problem]:
    """Find pools whose barcodes our own worker would reject in the order that comes back with them."""
    for number, pool in enumerate(api.label_pools):
        wrong = [label for label in map(pool.label, (pool.first, pool.last)) if not re.fullmatch(rules.label_pattern, label)]
        if wrong and not pool.second:
            what = f"makes barcodes that orders are rejected for, such as {wrong[0]}: they do not match rules.label_pattern"
            yield Problem(f"api.pools.{number}.pattern", what, "change it, or rules.label_pattern")


def _check_intervals(worker: WorkerSettings) -> Iterator[Problem]:
    if worker.poll_longest < worker.poll_interval:
        yield Problem("worker.poll_longest", "is shorter than worker.poll_interval", "make it at least as long")
    if worker.backoff_longest < worker.backoff_first:
        yield Problem("worker.backoff_longest", "is shorter than worker.backoff_first", "make it at least as long")


def _check_lease(exchange: ExchangeSettings, worker: WorkerSettings, lis: LisSettings) -> Iterator[Problem]:
    for name, timeout in (("exchange.timeout", exchange.timeout), ("lis.call_timeout", lis.call_timeout)):
        if worker.lease <= timeout:
            what = f"is not longer than {name}, so two workers could do the same job"
            yield Problem("worker.lease", what, f"make it longer than {timeout:g} seconds")


def _check_adapters(exchange: ExchangeSettings, lis: LisSettings) -> Iterator[Problem]:
    names = list(lis.tables)
    wanted = {"lis.default": lis.default} | {
        f"exchange.contracts.{code}.adapter": contract.adapter
        for code, contract in exchange.contracts.items()
        if contract.adapter
    }
    wanted |= {f"lis.routes.{number}.adapter": route.adapter for number, route in enumerate(lis.routes)}
    for where, name in wanted.items():
        if name not in names:
            hint = did_you_mean(name, names) or f"add the table, or name one of: {', '.join(names) or 'none yet'}"
            yield Problem(where, f"there is no table [lis.{name}]", hint)


def _check_route_contracts(exchange: ExchangeSettings, lis: LisSettings) -> Iterator[Problem]:
    codes = list(exchange.contracts)
    for number, route in enumerate(lis.routes):
        if route.contract is not None and route.contract not in codes:
            hint = did_you_mean(route.contract, codes) or f"add the table [exchange.contracts.{route.contract}]"
            yield Problem(f"lis.routes.{number}.contract", f"there is no contract {route.contract!r}", hint)


def _check_route_overlaps(lis: LisSettings) -> Iterator[Problem]:
    """Find what a route names in vain, since an earlier one takes all of it."""
    for number, route in enumerate(lis.routes):
        before = [(place, each) for place, each in enumerate(lis.routes[:number]) if each.contract in {None, route.contract}]
        for place, other in before:
            if other.groups or other.items:
                yield from _named_twice(route, number, other, place)
            else:
                what = f"is never reached: lis.routes.{place} takes its contract whole"
                yield Problem(f"lis.routes.{number}", what, _FIRST_COUNTS)


def _named_twice(route: LisRouteSettings, number: int, other: LisRouteSettings, place: int) -> Iterator[Problem]:
    for key, mine, theirs in (("groups", route.groups, other.groups), ("items", route.items, other.items)):
        for name in mine:
            if name in theirs:
                what = f"names {name!r} in vain: lis.routes.{place} takes it first"
                yield Problem(f"lis.routes.{number}.{key}", what, _FIRST_COUNTS)


def _check_shared_systems(lis: LisSettings) -> Iterator[Problem]:
    """Find tables that reach one laboratory system by the same way: both parts of an order would be one order there."""
    seen: dict[tuple[str, str, tuple[str, ...]], str] = {}
    for name, table in lis.tables.items():
        kind = str(table.get("adapter", name))
        for keys in _OWN_PLACES.get(kind, ()):
            place = tuple(_value_at(table, key) for key in keys)
            if place[0] and (first := seen.setdefault((kind, keys[0], place), name)) != name:
                hint = "give each table a laboratory system of its own, or remove one"
                yield Problem(f"lis.{name}.{keys[0]}", f"is that of [lis.{first}] too", hint)


def _check_result_folders(lis: LisSettings) -> Iterator[Problem]:
    """Find folders in which one table puts what it has taken, and another one looks for results: they would be taken twice."""
    tables = {name: table for name, table in lis.tables.items() if table.get("adapter", name) == "folder"}
    read = {folder: name for name, table in tables.items() if (folder := _value_at(table, "results"))}
    for name, table in tables.items():
        for key in _FOLDER_RESULTS[1:]:
            if other := read.get(_result_folder(table, key)):
                what = f"is the folder in which [lis.{other}] looks for results"
                yield Problem(f"lis.{name}.{key}", what, "give what was taken a folder of its own")


def _result_folder(table: Mapping[str, Any], key: str) -> str:
    """A folder of a folder adapter as it works with it: without a setting, one of that name beneath `results`."""
    results = _value_at(table, "results")
    return _value_at(table, key) or (os.path.join(results, key) if results else "")  # noqa: PTH118 - the text of a setting


def _value_at(table: Mapping[str, Any], key: str) -> str:
    """A value of a raw adapter table as text, without what only spells a path differently; empty if it is not set."""
    found: Any = table
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return "" if found is None else os.path.normpath(str(found))


_CHECKS: tuple[tuple[Callable[..., Iterator[Problem]], tuple[str, ...]], ...] = (
    (_check_intervals, ("worker",)),
    (_check_lease, ("exchange", "worker", "lis")),
    (_check_adapters, ("exchange", "lis")),
    (_check_route_contracts, ("exchange", "lis")),
    (_check_route_overlaps, ("lis",)),
    (_check_shared_systems, ("lis",)),
    (_check_result_folders, ("lis",)),
    (_check_hosting, ("results", "api")),
    (_check_pool_names, ("api",)),
    (_check_pool_labels, ("api", "rules")),
)
"""Each check, with the groups that it compares."""

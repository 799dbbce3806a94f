"""Settings that are each valid and do not go together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lab_agent.catalogue_service.label_allocation import to_label_pools
from lab_agent.errors import Problem
from lab_agent.settings.api import ApiSettings
from lab_agent.settings.errors import closest_match
from lab_agent.settings.exchange import ExchangeSettings
from lab_agent.settings.groups import LisSettings, ResultsSettings, RulesSettings, WorkerSettings


def find_contradictions(
    exchange: ExchangeSettings,
    worker: WorkerSettings,
    lis: LisSettings,
    results: ResultsSettings,
    api: ApiSettings,
    rules: RulesSettings,
) -> tuple[Problem, ...]:
    """Find what contradicts itself."""
    together = (
        *_check_intervals(worker),
        *_check_lease(exchange, worker, lis),
        *_check_adapters(exchange, lis),
        *_check_hosting(results, api),
    )
    return (*together, *_check_pool_names(api), *_check_pool_labels(api, rules))


def find_missing_login_secret(exchange: ExchangeSettings) -> Iterator[Problem]:
    """Find what is missing for signing in at the service."""
    if secret := exchange.oauth.missing_secret:
        mend = f"set it, or give it as the credential exchange.oauth.{secret}"
        yield Problem(f"exchange.oauth.{secret}", f"is missing; the grant {exchange.oauth.grant!r} needs it", mend)


def _check_hosting(results: ResultsSettings, api: ApiSettings) -> Iterator[Problem]:
    if results.documents == "host" and not api.public_url:
        what = "is host, and nobody knows the address at which partners find documents"
        yield Problem("results.documents", what, 'set api.public_url, or documents = "upload"')


def _check_pool_names(api: ApiSettings) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for number, pool in enumerate(api.pools):
        if (other := first.setdefault(pool.name, number)) != number:
            yield Problem(f"api.pools.{number}.name", f"is also the name of api.pools.{other}", "give each pool its own name")


def _check_pool_labels(api: ApiSettings, rules: RulesSettings) -> Iterator[Problem]:
    """Pools whose barcodes our own worker would refuse in the order that comes back with them."""
    for number, pool in enumerate(to_label_pools(api)):
        wrong = [label for label in map(pool.label, (pool.first, pool.last)) if not re.fullmatch(rules.label_pattern, label)]
        if wrong and not pool.second:
            what = f"makes barcodes that orders are refused for, as {wrong[0]}: they do not fit rules.label_pattern"
            yield Problem(f"api.pools.{number}.pattern", what, "change it, or rules.label_pattern")


def _check_intervals(worker: WorkerSettings) -> Iterator[Problem]:
    if worker.poll_longest < worker.poll_interval:
        yield Problem("worker.poll_longest", "is shorter than worker.poll_interval", "make it at least as long")
    if worker.backoff_longest < worker.backoff_first:
        yield Problem("worker.backoff_longest", "is shorter than worker.backoff_first", "make it at least as long")


def _check_lease(exchange: ExchangeSettings, worker: WorkerSettings, lis: LisSettings) -> Iterator[Problem]:
    for name, timeout in (("exchange.timeout", exchange.timeout), ("lis.call_timeout", lis.call_timeout)):
        if worker.lease <= timeout:
            what = f"does not outlast {name}, so that two workers could do the same thing"
            yield Problem("worker.lease", what, f"make it longer than {timeout:g} seconds")


def _check_adapters(exchange: ExchangeSettings, lis: LisSettings) -> Iterator[Problem]:
    names = list(lis.tables)
    wanted = {"lis.default": lis.default} | {
        f"exchange.contracts.{code}.adapter": contract.adapter
        for code, contract in exchange.contracts.items()
        if contract.adapter
    }
    for where, name in wanted.items():
        if name not in names:
            near = closest_match(name, names)
            mend = f"did you mean {near}?" if near else f"add the table, or name one of: {', '.join(names) or 'none yet'}"
            yield Problem(where, f"there is no table [lis.{name}]", mend)

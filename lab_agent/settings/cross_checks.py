"""Settings that are each valid and do not go together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lab_agent.errors import Problem, did_you_mean
from lab_agent.settings.api import ApiSettings
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
    """Find settings that contradict each other."""
    together = (
        *_check_intervals(worker),
        *_check_lease(exchange, worker, lis),
        *_check_adapters(exchange, lis),
        *_check_hosting(results, api),
    )
    return (*together, *_check_pool_names(api), *_check_pool_labels(api, rules))


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
    for where, name in wanted.items():
        if name not in names:
            hint = did_you_mean(name, names) or f"add the table, or name one of: {', '.join(names) or 'none yet'}"
            yield Problem(where, f"there is no table [lis.{name}]", hint)

"""The settings as the catalogue's room needs them: which contracts they name, and their pools of labels."""

from __future__ import annotations

from collections.abc import Mapping

from lab_agent.catalogue.agreement import disagreements
from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogue.pools import Pool
from lab_agent.errors import Problem
from lab_agent.settings.api import ApiPoolSettings, ApiSettings


def check_contracts(catalogue: Catalogue, exchange: Mapping[str, object], api: ApiSettings) -> list[Problem]:
    """What catalogue and settings do not agree on."""
    named = {f"[[api.tokens]] {each.name}": each.contracts for each in api.tokens}
    named |= {f"[[api.basic]] {each.name}": each.contracts for each in api.basic}
    named |= {f"[[api.pools]] {each.name}": each.contracts for each in api.pools}
    return disagreements(catalogue, exchange, named)


def pools_of(api: ApiSettings) -> tuple[Pool, ...]:
    """The pools of the settings."""
    return tuple(map(_pool, api.pools))


def _pool(each: ApiPoolSettings) -> Pool:
    return Pool(
        name=each.name,
        pattern=each.pattern,
        first=each.first,
        last=each.last,
        check_digit=each.check_digit,
        contracts=None if each.contracts is None else frozenset(each.contracts),
        second=each.second,
        warn_below=each.warn_below,
    )

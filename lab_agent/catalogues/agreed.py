"""The settings as the catalogue's room needs them: which contracts they name, and their pools of labels."""

from __future__ import annotations

from collections.abc import Mapping

from lab_agent.catalogue.agreement import find_contract_mismatches
from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogue.pools import LabelPool
from lab_agent.errors import Problem
from lab_agent.settings.api import ApiPoolSettings, ApiSettings


def check_contracts(catalogue: Catalogue, exchange: Mapping[str, object], api: ApiSettings) -> list[Problem]:
    """What catalogue and settings do not agree on."""
    named = {f"[[api.tokens]] {each.name}": each.contracts for each in api.tokens}
    named |= {f"[[api.basic]] {each.name}": each.contracts for each in api.basic}
    named |= {f"[[api.pools]] {each.name}": each.contracts for each in api.pools}
    return find_contract_mismatches(catalogue, exchange, named)


def to_label_pools(api: ApiSettings) -> tuple[LabelPool, ...]:
    """The pools of the settings."""
    return tuple(map(_to_label_pool, api.pools))


def _to_label_pool(pool: ApiPoolSettings) -> LabelPool:
    return LabelPool(
        name=pool.name,
        pattern=pool.pattern,
        first=pool.first,
        last=pool.last,
        check_digit=pool.check_digit,
        contracts=None if pool.contracts is None else frozenset(pool.contracts),
        second=pool.second,
        warn_below=pool.warn_below,
    )

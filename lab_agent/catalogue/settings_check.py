"""Contracts of the settings and of the catalogue against each other.

A contract that only the settings know gets no answer from the API; one that only the catalogue knows has its orders held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab_agent.catalogue.model import Catalogue
from lab_agent.errors import Problem, did_you_mean


def find_contract_mismatches(
    catalogue: Catalogue, configured_contracts: Mapping[str, object], referenced_contracts: Mapping[str, tuple[str, ...] | None]
) -> list[Problem]:
    """Give what does not agree. `exchange` has its contracts; `named` those that other settings name, by place."""
    return [
        *_missing_in_catalogue(catalogue, configured_contracts),
        *_missing_in_settings(catalogue, configured_contracts),
        *_unknown_references(catalogue, referenced_contracts),
    ]


def _missing_in_catalogue(catalogue: Catalogue, configured_contracts: Mapping[str, object]) -> Iterator[Problem]:
    for code in configured_contracts:
        if code not in catalogue.contracts:
            mend = did_you_mean(code, catalogue.contracts) or "add it to the sheet contracts, or remove the table"
            yield Problem(f"[exchange.contracts.{code}]", "is not in the catalogue", mend)


def _missing_in_settings(catalogue: Catalogue, configured_contracts: Mapping[str, object]) -> Iterator[Problem]:
    for code in catalogue.contracts:
        if code not in configured_contracts:
            mend = f"add the table [exchange.contracts.{code}]: until then its orders are held"
            yield Problem(f"contracts, {code}", "is not in the settings", mend)


def _unknown_references(catalogue: Catalogue, referenced_contracts: Mapping[str, tuple[str, ...] | None]) -> Iterator[Problem]:
    for where, codes in referenced_contracts.items():
        for code in codes or ():
            if code not in catalogue.contracts:
                mend = did_you_mean(code, catalogue.contracts) or "correct the code"
                yield Problem(where, f"contract {code!r} is not in the catalogue", mend)

"""Compares the contracts of the settings with those of the catalogue.

A contract that is only in the settings gets no answer from the API; the orders of one that is only in the catalogue are held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab_agent.catalogue.model import Catalogue
from lab_agent.errors import Problem, did_you_mean


def find_contract_mismatches(
    catalogue: Catalogue, configured_contracts: Mapping[str, object], referenced_contracts: Mapping[str, tuple[str, ...] | None]
) -> list[Problem]:
    """Give what does not agree. `referenced_contracts` are those that other settings name, by the place of the setting."""
    return [
        *_missing_in_catalogue(catalogue, configured_contracts),
        *_missing_in_settings(catalogue, configured_contracts),
        *_unknown_references(catalogue, referenced_contracts),
    ]


def _missing_in_catalogue(catalogue: Catalogue, configured_contracts: Mapping[str, object]) -> Iterator[Problem]:
    for code in configured_contracts:
        if code not in catalogue.contracts:
            hint = did_you_mean(code, catalogue.contracts) or "add it to the sheet contracts, or remove the table"
            yield Problem(f"[exchange.contracts.{code}]", "is not in the catalogue", hint)


def _missing_in_settings(catalogue: Catalogue, configured_contracts: Mapping[str, object]) -> Iterator[Problem]:
    for code in catalogue.contracts:
        if code not in configured_contracts:
            hint = f"add the table [exchange.contracts.{code}]; until then its orders are held"
            yield Problem(f"contracts, {code}", "is not in the settings", hint)


def _unknown_references(catalogue: Catalogue, referenced_contracts: Mapping[str, tuple[str, ...] | None]) -> Iterator[Problem]:
    for where, codes in referenced_contracts.items():
        for code in codes or ():
            if code not in catalogue.contracts:
                hint = did_you_mean(code, catalogue.contracts) or "correct the code"
                yield Problem(where, f"contract {code!r} is not in the catalogue", hint)

"""Contracts of the settings and of the catalogue against each other.

A contract that only the settings know gets no answer from the API; one that only the catalogue knows has its orders held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab_agent.catalogue.cells import did_you_mean
from lab_agent.catalogue.items import Catalogue
from lab_agent.errors import Problem


def disagreements(
    catalogue: Catalogue, exchange: Mapping[str, object], named: Mapping[str, tuple[str, ...] | None]
) -> list[Problem]:
    """Give what does not agree. `exchange` has its contracts; `named` those that other settings name, by place."""
    return [*_missing(catalogue, exchange), *_extra(catalogue, exchange), *_unknown(catalogue, named)]


def _missing(catalogue: Catalogue, exchange: Mapping[str, object]) -> Iterator[Problem]:
    for code in exchange:
        if code not in catalogue.contracts:
            mend = did_you_mean(code, catalogue.contracts) or "add it to the sheet contracts, or remove the table"
            yield Problem(f"[exchange.contracts.{code}]", "is not in the catalogue", mend)


def _extra(catalogue: Catalogue, exchange: Mapping[str, object]) -> Iterator[Problem]:
    for code in catalogue.contracts:
        if code not in exchange:
            mend = f"add the table [exchange.contracts.{code}]: until then its orders are held"
            yield Problem(f"contracts, {code}", "is not in the settings", mend)


def _unknown(catalogue: Catalogue, named: Mapping[str, tuple[str, ...] | None]) -> Iterator[Problem]:
    for where, codes in named.items():
        for code in codes or ():
            if code not in catalogue.contracts:
                mend = did_you_mean(code, catalogue.contracts) or "correct the code"
                yield Problem(where, f"contract {code!r} is not in the catalogue", mend)

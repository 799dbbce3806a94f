"""Compares the contracts and routes of the settings with the catalogue.

A contract that is only in the settings gets no answer from the API; the orders of one that is only in the catalogue are held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from lab_agent.catalogue.model import Catalogue
from lab_agent.shared.errors import Problem, did_you_mean


def find_contract_mismatches(
    catalogue: Catalogue, configured_contracts: Mapping[str, object], referenced_contracts: Mapping[str, tuple[str, ...] | None]
) -> list[Problem]:
    """Give what does not agree. `referenced_contracts` are those that other settings name, by the place of the setting."""
    return [
        *_missing_in_catalogue(catalogue, configured_contracts),
        *_missing_in_settings(catalogue, configured_contracts),
        *_unknown_references(catalogue, referenced_contracts),
    ]


class Route(Protocol):
    """A route of the settings (`[[lis.routes]]`), as far as the catalogue knows what it names."""

    @property
    def contract(self) -> str | None:
        """Code of the contract; None for all."""
        ...

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups of items."""
        ...

    @property
    def items(self) -> tuple[str, ...]:
        """Items by their codes."""
        ...


def find_route_problems(catalogue: Catalogue, routes: Sequence[Route]) -> list[Problem]:
    """Give the groups and items that routes name and the catalogue does not have: their lines would go where the others go."""
    return [problem for number, route in enumerate(routes) for problem in _unknown_names(catalogue, number, route)]


def _unknown_names(catalogue: Catalogue, number: int, route: Route) -> Iterator[Problem]:
    items = [item for item, _ in _items_of(catalogue, route)]
    groups = list(dict.fromkeys(group for _, group in _items_of(catalogue, route) if group))
    for key, wanted, known in (("groups", route.groups, groups), ("items", route.items, items)):
        for name in wanted:
            if name not in known:
                of = "" if route.contract is None else f" of contract {route.contract!r}"
                hint = did_you_mean(name, known) or "correct it, or import the catalogue that has it"
                yield Problem(f"lis.routes.{number}.{key}", f"{name!r} is not in the catalogue{of}", hint)


def _items_of(catalogue: Catalogue, route: Route) -> Iterator[tuple[str, str]]:
    """The items that the contract of a route offers, each with its group."""
    for code, contract in catalogue.contracts.items():
        if route.contract in {None, code}:
            yield from ((item.id, item.group) for item in contract.items.values())


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

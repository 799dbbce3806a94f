"""Which laboratory system gets a line: the first route that fits, the contract's, the default; and what cannot be routed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lab_agent.orders.line_routing import LineRouter
from lab_agent.settings.exchange import ContractSettings
from lab_agent.settings.groups import LisRouteSettings
from lab_agent.shared.code_systems import CodeSystems
from lab_agent.shared.values import CodeableConcept, Coding

SYSTEMS = CodeSystems(base_url="https://exchange.example/api/", lab_codes_url="https://codes.example")
GROUPS = {"001": "Chemistry", "002": "Cultures", "003": ""}


def router(*routes: dict[str, Any]) -> LineRouter:
    contracts = {"C-2": ContractSettings(adapter="second")}
    return LineRouter(SYSTEMS, [LisRouteSettings(**each) for each in routes], contracts, "main")


def assessed(*items: str, catalogue: bool = True, contract: str = "C-1") -> Any:
    """An order of these items, as far as routes look at it."""
    system = SYSTEMS.nomenclature.url
    lines = [
        SimpleNamespace(id=item, request=SimpleNamespace(code=CodeableConcept(coding=(Coding(system=system, code=item),))))
        for item in items
    ]
    known = SimpleNamespace(group=lambda _, item: GROUPS.get(item)) if catalogue else None
    return SimpleNamespace(contract=contract, catalogue=known, received=SimpleNamespace(lines=lines))


def test_first_route_that_fits_counts() -> None:
    routes = router({"items": ("002",), "adapter": "special"}, {"groups": ("Cultures", "Chemistry"), "adapter": "micro"})
    assert routes.route(assessed("001", "002", "003"), ["001", "002", "003"]) == {"001": "micro", "002": "special", "003": "main"}


def test_contract_names_the_adapter_of_the_rest() -> None:
    routes = router({"groups": ("Cultures",), "adapter": "micro"})
    assert routes.route(assessed("001", "002", contract="C-2"), ["001", "002"]) == {"001": "second", "002": "micro"}


def test_only_accepted_lines_are_routed() -> None:
    assert router().route(assessed("001", "002"), ["002"]) == {"002": "main"}


@pytest.mark.parametrize(
    ("routes", "held"),
    [
        ([{"groups": ("Cultures",), "adapter": "micro"}], True),
        ([{"groups": ("Cultures",), "contract": "C-9", "adapter": "micro"}], False),
        ([{"items": ("777",), "adapter": "micro"}, {"groups": ("Cultures",), "adapter": "micro"}], False),
        ([{"contract": "C-1", "adapter": "micro"}], False),
    ],
)
def test_item_of_unknown_group_is_held_where_it_matters(routes: list[dict[str, Any]], held: bool) -> None:
    """Sent where the others go, a culture would be at the wrong laboratory system."""
    assert (router(*routes).hold_reason(assessed("777"), ["777"]) is not None) is held


def test_order_without_catalogue_is_held_for_groups() -> None:
    routes = router({"groups": ("Cultures",), "adapter": "micro"})
    assert "001" in (routes.hold_reason(assessed("001", catalogue=False), ["001"]) or "")
    assert routes.hold_reason(assessed("001"), ["001"]) is None
    assert routes.hold_reason(assessed("003"), ["003"]) is None, "an item of no group is of none"

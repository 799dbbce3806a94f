"""The settings compared with the catalogue: where each problem is, and what it is about."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import pytest

from lab_agent.catalogue.model import Catalogue, Contract, Item
from lab_agent.catalogue.settings_check import find_contract_mismatches, find_route_problems
from lab_agent.catalogue.turnaround import Turnaround


@dataclass(frozen=True)
class Route:
    contract: str | None = None
    groups: tuple[str, ...] = ()
    items: tuple[str, ...] = ()


def contract(code: str, *items: tuple[str, str]) -> Contract:
    made = {id_: Item(id_, id_, Decimal(1), Turnaround(Decimal(1)), group=group) for id_, group in items}
    return Contract(code, code, made)


CONTRACTS = (contract("C-100", ("001", "blood"), ("002", "")), contract("C-200", ("003", "urine")))
OFFERED = Catalogue("1", {each.code: each for each in CONTRACTS}, {}, {})


def places(problems: list[object]) -> list[str]:
    assert all(getattr(each, "hint", "") and getattr(each, "what", "") for each in problems)
    return [getattr(each, "where", "") for each in problems]


@pytest.mark.parametrize(
    ("configured", "referenced", "where"),
    [
        (("C-100", "C-200"), {}, []),
        (("C-100", "C-200", "C-300"), {}, ["[exchange.contracts.C-300]"]),
        (("C-100",), {}, ["contracts, C-200"]),
        (("C-100", "C-200"), {"api.a": ("C-100", "C-9"), "api.b": None, "api.c": ()}, ["api.a"]),
        (("C-9", "C-100"), {"api.a": ("C-8",)}, ["[exchange.contracts.C-9]", "contracts, C-200", "api.a"]),
    ],
)
def test_contract_that_one_side_lacks_is_a_problem(
    configured: tuple[str, ...], referenced: dict[str, tuple[str, ...] | None], where: list[str]
) -> None:
    assert places([*find_contract_mismatches(OFFERED, dict.fromkeys(configured), referenced)]) == where


@pytest.mark.parametrize("setting", ["C-101", "c-100"])
def test_misspelt_contract_is_suggested(setting: str) -> None:
    both = dict.fromkeys(("C-100", "C-200"))
    (found,) = find_contract_mismatches(OFFERED, both, {"api.a": (setting,)})
    assert setting in found.what
    assert "C-100" in found.hint
    assert "C-100" in find_contract_mismatches(OFFERED, {**both, setting: None}, {})[0].hint


@pytest.mark.parametrize(
    ("routes", "where"),
    [
        ([Route(groups=("blood", "urine"), items=("001", "003"))], []),
        ([Route("C-100", groups=("urine",))], ["lis.routes.0.groups"]),
        ([Route("C-200", groups=("urine",), items=("003", "001"))], ["lis.routes.0.items"]),
        ([Route(), Route(groups=("Blood",), items=("9",))], ["lis.routes.1.groups", "lis.routes.1.items"]),
        ([Route(groups=("",))], ["lis.routes.0.groups"]),
        ([Route("C-300", items=("001",))], ["lis.routes.0.items"]),
    ],
)
def test_route_to_what_is_not_offered_is_a_problem(routes: list[Route], where: list[str]) -> None:
    assert places([*find_route_problems(OFFERED, routes)]) == where


def test_problem_of_a_route_names_contract_and_suggestion() -> None:
    (everywhere,) = find_route_problems(OFFERED, [Route(groups=("bloods",))])
    assert "'bloods'" in everywhere.what
    assert everywhere.what.endswith("catalogue")
    assert "blood" in everywhere.hint
    (here,) = find_route_problems(OFFERED, [Route("C-200", items=("03",))])
    assert "'C-200'" in here.what
    assert "003" in here.hint

"""What an item takes: its biomaterial types, containers, methods and time points, and the order of kinds of tubes."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from lab_agent.catalogue.basket import BasketLine
from lab_agent.catalogue.model import Catalogue, Container, Contract, Item, Requirement, SpecimenOption, TimePoint
from lab_agent.catalogue.preanalytics import calculate
from lab_agent.catalogue.turnaround import Turnaround
from lab_agent.shared.errors import UnknownContractError

T5, T9 = Container("T5", "T5", "tube", Decimal(5), Decimal("0.5")), Container("T9", "T9", "tube")


def need(code: int, container: Container | None = T5, **more: object) -> Requirement:
    made = Requirement("i", SpecimenOption("", code, ""), container, Decimal(1), "draw")
    return replace(made, **more)  # type: ignore[arg-type]


ITEM = Item(
    "i",
    "i",
    Decimal(1),
    Turnaround(Decimal(1)),
    options=(need(10), need(10, T9), need(11, None, time_points=(TimePoint(60, "later"), TimePoint(0, "first")))),
    required=(need(20, T9, time_points=(TimePoint(60, "later"),)),),
)


def test_types_are_those_of_options_and_of_required_ones() -> None:
    assert (ITEM.option_types, ITEM.required_types) == ({"10", "11"}, {"20"})
    assert [each.specimen_code for each in ITEM.requirements] == ["10", "10", "11", "20"]
    assert ITEM.time_points == (0, 60)


@pytest.mark.parametrize(
    ("code", "count", "containers"),
    [("10", 2, {"T5", "T9"}), (10, 2, {"T5", "T9"}), ("11", 1, set()), (20, 1, {"T9"}), ("9", 0, set())],
)
def test_requirements_are_found_by_their_type(code: str | int, count: int, containers: set[str]) -> None:
    assert len(ITEM.requirements_of_type(code)) == count
    assert {each.specimen_code for each in ITEM.requirements_of_type(code)} <= {str(code)}
    assert ITEM.container_types(code) == containers


def test_kind_without_body_site_comes_first() -> None:
    options = (SpecimenOption("", 10, "", "ARM"), SpecimenOption("", 10, ""))
    groups = calculate(Catalogue("1", {}, {}, {}), [BasketLine(0, ITEM, tuple(need(10, option=each) for each in options))]).groups
    assert [each.kind.bodysite_code for each in groups if each.kind.specimen_code == 10] == [None, "ARM"]


def test_methods_are_those_of_the_time_points_if_there_are_any() -> None:
    assert (T5.usable_volume, T9.usable_volume) == (Decimal("4.5"), None), "without dead volume"
    assert ITEM.options[0].methods == {"draw"}
    assert ITEM.options[2].methods == {"first", "later"}


def test_kinds_of_tubes_are_ordered_by_type_container_and_minutes() -> None:
    chosen = (need(10, T9), need(10), need(10, None), need(10, T5, time_points=(TimePoint(60, "a"), TimePoint(0, "b"))), need(9))
    groups = calculate(Catalogue("1", {}, {}, {}), [BasketLine(0, replace(ITEM, required=()), chosen)]).groups
    kinds = [(each.kind.specimen_code, each.kind.container and each.kind.container.type, each.kind.minutes) for each in groups]
    assert kinds == [(9, "T5", None), (10, None, None), (10, "T5", None), (10, "T5", 0), (10, "T5", 60), (10, "T9", None)]


def test_contract_and_item_are_found_by_their_codes() -> None:
    """One that is not there is told without the others."""
    contract = Contract("C", "", {"i": ITEM})
    catalogue = Catalogue("1", {"C": contract}, {}, {})
    assert catalogue.find_contract("C") is contract
    assert (catalogue.item("C", "i"), catalogue.item("C", "j"), catalogue.find_contract("D")) == (ITEM, None, None)
    with pytest.raises(UnknownContractError) as caught:
        catalogue.item("D" * 60, "i")
    assert caught.value.problems[0].where == "contract"
    assert "D" * 51 not in caught.value.problems[0].what

"""An order made from our own answers is never refused, whatever is in the basket and in the catalogue."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_agent.catalogue.model import Catalogue, Container, Contract, Item, Requirement, SpecimenOption, TimePoint
from lab_agent.catalogue.turnaround import Turnaround
from lab_sandbox.partner.basket import Basket, BasketItem
from lab_sandbox.partner.order_bundle import LabelSequence
from lab_sandbox.partner.order_generator import OrderPlan
from tests.unit.rules.sample import CATALOGUE, OLD_ORDER, judge
from tests.unit.rules.test_partner_orders import partner_order

VESSELS = {
    "A": Container("A", "A", "a tube", Decimal(3), Decimal("0.5"), "ml"),
    "B": Container("B", "B", "a jar"),
}
POINTS = ((), (), (0, 60, 120), (0, 120), (60,))


@st.composite
def plans(draw: st.DrawFn, contract: Contract) -> OrderPlan:
    """Some tests of a contract, each with a choice of biomaterial where it has one."""
    ids = draw(st.lists(st.sampled_from(sorted(contract.items)), min_size=1, max_size=6, unique=True))
    chosen = []
    for number, each in enumerate(ids):
        item = BasketItem(id=each, caption=each, guid=f"g{number}")
        if offered := contract.items[each].options:
            wish = draw(st.sampled_from(offered)).option
            parts = {"bodysite_code": wish.bodysite_code, "container_type": wish.container_type}
            item = replace(item, specimen_code=str(wish.specimen_code), **parts)
        chosen.append(item)
    number = OLD_ORDER if all(contract.items[each].old_order_pattern for each in ids) else None
    return OrderPlan(seed="1", basket=Basket("C-100", tuple(chosen)), old_order_number=number)


@st.composite
def requirements(draw: st.DrawFn, item: str, code: int) -> Requirement:
    """One way to take a type: each type of one test may have time points of its own, or none."""
    vessel = VESSELS[draw(st.sampled_from("AB"))]
    site = draw(st.sampled_from((None, "S")))
    return Requirement(
        item,
        SpecimenOption("", code, "", site, "", vessel.type, vessel.name),
        vessel,
        draw(st.sampled_from((Decimal("0.2"), Decimal("1.3"), Decimal("6.1")))),
        draw(st.sampled_from("mn")),
        own_tube=draw(st.booleans()),
        time_points=tuple(TimePoint(minutes, f"{minutes} min") for minutes in draw(st.sampled_from(POINTS))),
    )


@st.composite
def catalogues(draw: st.DrawFn) -> Catalogue:
    """A few tests with types to choose from and required ones; one type may be taken from two body sites."""
    offered = {}
    for name in ("i0", "i1", "i2"):
        options = [draw(requirements(name, code)) for code in draw(st.lists(st.sampled_from((1, 1, 2)), max_size=3))]
        needed = draw(st.lists(st.sampled_from((4, 5)), max_size=2, unique=True))
        offered[name] = Item(
            name,
            name,
            Decimal(1),
            Turnaround(Decimal(1)),
            multiple_specimen=draw(st.booleans()),
            options=tuple({(each.option.specimen_code, each.option.bodysite_code): each for each in options}.values()),
            required=tuple(draw(requirements(name, code)) for code in needed),
        )
    return Catalogue("v", {"C-100": Contract("C-100", "C", offered)}, VESSELS, {})


@settings(max_examples=60, deadline=None)
@given(plan=plans(CATALOGUE.contract("C-100")))
def test_order_from_our_basket_response_is_accepted(plan: OrderPlan) -> None:
    """An order made from our own basket responses is accepted without any finding."""
    judgement = judge(partner_order(plan, CATALOGUE, LabelSequence()))
    assert [finding.message for finding in judgement.findings()] == []
    assert len(judgement.accepted_lines) == len(plan.basket.items)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data(), catalogue=catalogues())
def test_order_from_random_catalogue_response_is_accepted(data: st.DataObject, catalogue: Catalogue) -> None:
    """An order made from the basket responses of any catalogue is accepted, too."""
    plan = data.draw(plans(catalogue.contract("C-100")))
    judgement = judge(partner_order(plan, catalogue, LabelSequence()), catalogue=catalogue)
    assert [finding.message for finding in judgement.findings()] == []

"""Two containers with one barcode, and how much of a tube is enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.catalogue.model import Catalogue
from lab_agent.rules import container
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.rules.context import Facts, RuleContext
from tests.unit.rules.test_catalogue_history import with_item
from tests.unit.rules.test_rule_table import GOOD, Wire, put, s1, s2, same_tube, second_label, second_subject, tube

LABEL_RULES = ("tube.label-shared", "tube.label-times", "tube.label-contradicts")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda _: None, "tube.label-shared"),
        (second_subject, "tube.label-contradicts"),
        (
            lambda wire: s2(wire)["container"][0].update(type={"coding": [{**tube(wire)["type"]["coding"][0], "code": "EDTA6"}]}),
            "tube.label-contradicts",
        ),
        (lambda wire: s2(wire)["container"][0].update(type={}), "tube.label-shared"),
        (put(s2, "subject", to=None), "tube.label-shared"),
    ],
    ids=["one tube", "other patient", "other container", "container not said", "patient not said"],
)
def test_barcode_is_of_one_tube_unless_something_contradicts(
    change: Callable[[Wire], None], rule: str, wire: Wire, assess_wire: Any, rule_outcomes: Any
) -> None:
    same_tube(wire)
    change(wire)
    assert [each for each in rule_outcomes(assess_wire(wire)) if each in LABEL_RULES] == [rule]


@pytest.mark.parametrize(("setting", "rule"), [("https://lab.example/second-labels", "system"), (None, "unset")])
def test_numbers_in_the_form_of_a_second_barcode_are_named(
    wire: Wire, order_from_wire: Any, catalogue: Catalogue, facts: Facts, setting: str | None, rule: str
) -> None:
    second_label("042.075", "1234-5678")(wire)
    tube(wire)["identifier"][1]["system"] = "urn:clinic"
    tube(wire)["identifier"].append({"value": "8765-4321"})
    facts = replace(facts, systems=replace(facts.systems, second_labels_system=setting))
    context = RuleContext(order_from_wire(wire), CatalogueHistory.from_catalogue(catalogue), facts)
    check = {"system": container._check_second_label_system, "unset": container._check_second_label_unset}[rule].check
    (found,) = check(context)
    assert (found.values["label"], found.evidence) == ("1234-5678, 8765-4321", ("1234-5678", "8765-4321"))
    assert found.line_ids == ("t1",)


@pytest.mark.parametrize(
    ("volume", "quantity", "values"),
    [
        ("0.5", "0.5", None),
        ("0.5", "0.49", ("0.49", "0.5")),
        ("2.7", "2.7", None),
        ("2.7", "2.69", ("2.69", "2.7")),
        ("6.1", "0.7", None),
        ("6.1", "0.69", ("0.69", "0.7")),
        ("5.4", "2.7", None),
        ("5.4", "2.69", ("2.69", "2.7")),
        ("0", "0.01", None),
    ],
)
def test_tube_holds_at_least_rest_of_split_volume(
    wire: Wire, order_from_wire: Any, catalogue: Catalogue, facts: Facts, volume: str, quantity: str, values: Any
) -> None:
    """A tube of 2.7 ml that items may use: of a larger volume, one tube is filled with what the others leave."""
    tube(wire)["specimenQuantity"]["value"] = Decimal(quantity)
    changed = with_requirement(catalogue, volume=Decimal(volume))
    assert too_little(order_from_wire(wire), changed, facts) == ([] if values is None else [values])


def test_volume_without_a_container_is_needed_whole(wire: Wire, order_from_wire: Any, catalogue: Catalogue, facts: Facts) -> None:
    tube(wire)["specimenQuantity"]["value"] = Decimal("2E+1")
    changed = with_requirement(catalogue, container=None, volume=Decimal("1E+2"))
    assert too_little(order_from_wire(wire), changed, facts) == [("20", "100")]


def test_container_type_unnamed_by_catalogue_is_not_missing(wire: Wire, assess_wire: Any, catalogue: Catalogue) -> None:
    del tube(wire)["type"]
    changed = CatalogueHistory.from_catalogue(with_requirement(catalogue, container=None))
    assert assess_wire(wire, catalogue=changed).findings() == ()


def with_requirement(catalogue: Catalogue, **changes: Any) -> Catalogue:
    """The catalogue with another requirement of the first test."""
    (option,) = catalogue.contract("C-100").items["001.001"].options
    return with_item(catalogue, "001.001", options=(replace(option, **changes),))


def too_little(order: Any, catalogue: Catalogue, facts: Facts) -> list[tuple[str, str]]:
    """The quantities that are too small, each with what is needed."""
    context = RuleContext(order, CatalogueHistory.from_catalogue(catalogue), facts)
    found = [each.values for each in container._check_quantity_enough.check(context)]
    assert all(each["code"] == "001.001" for each in found)
    return [(each["quantity"], each["needed"]) for each in found]


@pytest.mark.parametrize("view", [None, CatalogueHistory(())], ids=["none", "no version"])
def test_without_catalogue_no_container_beside_a_labelled_tube_needs_a_barcode(
    wire: Wire, assess_wire: Any, rule_outcomes: Any, view: CatalogueHistory | None
) -> None:
    """It may be what the tube travels in: nobody knows its code. A Specimen without any barcode lacks one all the same."""
    warned = {"catalogue": view, "severities": {"order.catalogue": "warn"}}
    GOOD["a tube in its cool bag"](wire)
    assert rule_outcomes(assess_wire(wire, **warned)) == {"order.catalogue": "warn"}
    for each in s1(wire)["container"]:
        each.pop("identifier", None)
    assert rule_outcomes(assess_wire(wire, **warned)) == {"order.catalogue": "warn", "tube.label": "refuse"}
    del s1(wire)["container"][1]
    assert rule_outcomes(assess_wire(wire, **warned)) == {"order.catalogue": "warn", "tube.label": "refuse"}

"""What several rules ask about an order: its types, its contract, its clocks, and what makes a test a repeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.catalogue.model import Catalogue
from lab_agent.domain.received_order import ReferenceText
from lab_agent.rules.catalogue_history import CatalogueHistory, VersionPeriod
from lab_agent.rules.context import Facts, RuleContext
from tests.unit.rules.test_catalogue_history import HOUR, ORDERED, without_item
from tests.unit.rules.test_rule_table import SERVICE, Wire, both, pr1, pr2, put, s1, s2, second_label, tube_twice


def test_type_to_look_for_is_empty_without_one(wire: Wire, order_from_wire: Any, catalogue: Catalogue, facts: Facts) -> None:
    put(s1, "type", to=None)(wire)
    context = RuleContext(order_from_wire(wire), CatalogueHistory.from_catalogue(catalogue), facts)
    assert [context.type_or_empty(each) for each in context.order.specimens] == ["", "12"]


def test_reference_to_nothing_names_no_contract(wire: Wire, order_from_wire: Any, facts: Facts) -> None:
    context = RuleContext(order_from_wire(wire), None, facts)
    assert context.contract_code(ReferenceText(where="ProcedureRequest[0].supportingInfo[0]")) is None


@pytest.mark.parametrize("where", [0, 1])
def test_form_of_a_second_barcode_counts_for_its_tests_tube_alone(
    wire: Wire, order_from_wire: Any, catalogue: Catalogue, facts: Facts, where: int
) -> None:
    second_label("042.075", None)(wire)
    labels = [each["container"][0]["identifier"] for each in (s1(wire), s2(wire))]
    labels[where].insert(0, {"system": labels[where][0]["system"], "value": "1234-5678"})
    context = RuleContext(order_from_wire(wire), CatalogueHistory.from_catalogue(catalogue), facts)
    tube = [each for _, each, _ in context.containers()][where]
    usual = labels[where][1]["value"]
    assert [each.value for each in context.labels(tube)] == ([usual] if where == 0 else ["1234-5678", usual])
    assert context.second_label_candidates(tube) == (("1234-5678",) if where == 0 else (usual,))
    assert context.barcodes(tube) == ((usual, "1234-5678") if where == 0 else ("1234-5678",))


def test_several_containers_are_compared_without_catalogue(wire: Wire, assess_wire: Any, rule_outcomes: Any) -> None:
    tube_twice(wire)
    assert rule_outcomes(assess_wire(wire, catalogue=None)) == {"order.catalogue": "hold", "tube.label-shared": "warn"}


@pytest.mark.parametrize(("seconds", "difference"), [(None, 0), (0, 0), (120, 0), (-120, 0), (121, 121), (-121, 121)])
def test_clocks_differ_beyond_the_tolerance(facts: Facts, seconds: int | None, difference: int) -> None:
    offset = None if seconds is None else timedelta(seconds=seconds)
    assert replace(facts, service_clock_offset=offset).clock_difference == timedelta(seconds=difference)


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (HOUR, {"line.item-withdrawn": "warn"}),
        (-HOUR, {"line.item-withdrawn": "warn"}),
        (HOUR / 60, {"line.item": "refuse"}),
        (None, {"line.item": "refuse"}),
    ],
)
def test_version_is_seen_longer_while_clocks_differ(
    wire: Any,
    assess_wire: Any,
    rule_outcomes: Any,
    catalogue: Catalogue,
    facts: Facts,
    offset: timedelta | None,
    found: dict[str, str],
) -> None:
    ended = ORDERED - 24 * HOUR - HOUR / 120
    view = CatalogueHistory((VersionPeriod(without_item(catalogue, "001.001")), VersionPeriod(catalogue, active_until=ended)))
    differ = replace(facts, service_clock_offset=offset)
    assert rule_outcomes(assess_wire(wire, catalogue=view, facts=differ)) == found


def s3(wire: Wire) -> Any:
    return wire["resources"]["Specimen/s3"]


def at_site(where: Callable[[Wire], Any], code: str) -> Callable[[Wire], None]:
    """The Specimen names its body site."""
    return lambda wire: where(wire)["collection"].update(bodySite={"coding": [{"code": code}]})


def told_site(where: Callable[[Wire], Any], code: str) -> Callable[[Wire], None]:
    """The supportingInfo of the Specimen names its body site."""
    return lambda wire: where(wire)["extension"][0].update(valueString=f"specimen=11,site={code}")


def in_container(wire: Wire) -> None:
    s3(wire)["container"][0]["type"] = {"coding": [{"system": SERVICE + "specimen_type", "code": "EDTA6"}]}


@pytest.mark.parametrize(
    ("change", "is_repeat"),
    [
        (lambda _: None, True),
        (in_container, False),
        (at_site(s3, "EAR"), False),
        (both(at_site(s1, "EAR"), at_site(s3, "EAR")), True),
        (both(at_site(s1, "EAR"), at_site(s3, "THR")), False),
        (both(at_site(s1, "EAR"), told_site(s3, "EAR")), True),
        (both(at_site(s1, "EAR"), told_site(s1, "THR"), told_site(s3, "THR")), False),
    ],
    ids=["all is the same", "container", "site of one", "one site", "two sites", "one site in two fields", "field before text"],
)
def test_same_test_is_no_repeat_from_other_material(
    change: Callable[[Wire], None], is_repeat: bool, wire: Wire, assess_wire: Any, rule_outcomes: Any
) -> None:
    """By biomaterial type, body site and containers (table of silences: how one item carries several specimen types)."""
    first = s1(wire)
    wire["resources"]["Specimen/s3"] = {
        **first,
        "collection": dict(first["collection"]),
        "container": [{**first["container"][0]}],
        "extension": [{**first["extension"][0]}],
    }
    pr2(wire).update(code=pr1(wire)["code"], specimen=[{"reference": "specimen/s3"}])
    change(wire)
    assert ("line.repeat" in rule_outcomes(assess_wire(wire))) is is_repeat

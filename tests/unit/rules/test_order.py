"""References that lead elsewhere or to the wrong type, and tests that a catalogue which cannot be read may have offered."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from lab_agent.catalogue.model import Catalogue
from lab_agent.rules.catalogue_history import CatalogueHistory, VersionPeriod
from tests.unit.rules.test_catalogue_history import HOUR, ORDERED, without_item
from tests.unit.rules.test_rule_table import Wire, pr1


def test_line_is_checked_after_one_that_leads_elsewhere(wire: Wire, assess_wire: Any) -> None:
    first, second = wire["line_tasks"]
    first["basedOn"] = [{"reference": "https://other.example/api/procedurerequest/1"}]
    second["basedOn"] = []
    found = {(each.rule, each.line) for each in assess_wire(wire).findings()}
    assert {each for each in found if each[0].startswith("order.")} == {("order.address", None), ("order.line-based-on", "t2")}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"subject": {"reference": "specimen/s1"}}, "ProcedureRequest[0].subject"),
        ({"subject": {"display": "Lovelace Ada"}}, "ProcedureRequest[0].subject"),
        ({"specimen": [{"reference": "specimen/s1"}, {"reference": "patient/p1"}]}, "ProcedureRequest[0].specimen[1]"),
        ({"specimen": [{"reference": "specimen/s1"}, {"display": "a tube"}]}, "ProcedureRequest[0].specimen[1]"),
    ],
)
def test_reference_leads_to_resource_of_right_type(wire: Wire, assess_wire: Any, change: dict[str, Any], where: str) -> None:
    pr1(wire).update(change)
    found = [(each.where, each.line) for each in assess_wire(wire).findings() if each.rule == "order.reference-form"]
    assert found == [(where, "t1")]


@pytest.mark.parametrize(
    ("ended", "lifetime", "found"),
    [
        (ORDERED - 23 * HOUR, None, {"order.catalogue": "hold", "line.item": "refuse"}),
        (ORDERED - 25 * HOUR, None, {"line.item": "refuse"}),
        (ORDERED - 25 * HOUR, 26 * 3600, {"order.catalogue": "hold", "line.item": "refuse"}),
    ],
)
def test_unreadable_version_possibly_offering_test_holds(
    wire: Any,
    assess_wire: Any,
    rule_outcomes: Any,
    catalogue: Catalogue,
    ended: datetime,
    lifetime: int | None,
    found: dict[str, str],
) -> None:
    """A test that an unreadable catalogue version may have offered holds the line."""
    view = CatalogueHistory(
        (VersionPeriod(without_item(catalogue, "001.001", cache_lifetime_seconds=lifetime)),), unreadable_until=(ended,)
    )
    assert rule_outcomes(assess_wire(wire, catalogue=view)) == found
    readable = CatalogueHistory((VersionPeriod(catalogue),), unreadable_until=(ended,))
    assert assess_wire(wire, catalogue=readable).findings() == ()

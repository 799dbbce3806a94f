"""References that lead elsewhere or to the wrong type, in each place of an order."""

from __future__ import annotations

from typing import Any

import pytest

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

"""The biomaterial types that a test needs beside one to choose."""

from __future__ import annotations

from typing import Any

import pytest

from lab_agent.catalogue.model import Catalogue
from lab_agent.rules.catalogue_history import CatalogueHistory
from tests.unit.rules.test_catalogue_history import with_item
from tests.unit.rules.test_rule_table import Wire, body_answers, both, item


def test_every_missing_type_is_named(wire: Wire, assess_wire: Any) -> None:
    both(item("002.015"), body_answers)(wire)
    (reason,) = (each.message for each in assess_wire(wire).findings() if each.rule == "specimen.required")
    assert "biomaterial type 10, 21." in reason


@pytest.mark.parametrize("multiple", [False, True])
def test_required_type_alone_is_no_choice(
    wire: Wire, assess_wire: Any, rule_outcomes: Any, catalogue: Catalogue, multiple: bool
) -> None:
    """The order brings what the test needs always, and none of the types to choose from."""
    options, required = (catalogue.contract("C-100").items[each].options for each in ("001.001", "004.001"))
    changed = with_item(catalogue, "004.001", options=options, required=required, multiple_specimen=multiple)
    found = rule_outcomes(assess_wire(wire, catalogue=CatalogueHistory.from_catalogue(changed)))
    assert found == {"specimen.one-type": "refuse"}

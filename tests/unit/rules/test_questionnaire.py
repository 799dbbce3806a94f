"""Which answers a question takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab_agent.catalogue.model import Catalogue, QuestionType
from lab_agent.rules.catalogue_history import CatalogueHistory
from tests.unit.rules.test_rule_table import Wire, answers, put


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, {"questionnaire.choice": "refuse"}),
        ({"options": ()}, {}),
        ({"type": QuestionType.STRING}, {}),
    ],
)
def test_answer_is_of_the_options_of_a_choice(
    wire: Wire, assess_wire: Any, rule_outcomes: Any, catalogue: Catalogue, changes: dict[str, Any], outcome: dict[str, str]
) -> None:
    """A string question takes any answer, and so does a choice whose options the catalogue does not have."""
    put(answers, "item", 0, "item", 0, "item", 0, "answer", to=[{"valueString": "aspirin"}])(wire)
    asked = replace(catalogue.questions["anticoagulant"], **changes)
    changed = replace(catalogue, questions={**catalogue.questions, "anticoagulant": asked})
    assert rule_outcomes(assess_wire(wire, catalogue=CatalogueHistory.from_catalogue(changed))) == outcome

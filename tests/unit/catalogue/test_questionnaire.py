"""The questions of a basket: merged, required if anybody requires, in one order (interface: Questionnaire)."""

from __future__ import annotations

import random
from typing import Any

from lab_agent.catalogue.model import Catalogue, Item
from lab_agent.catalogue.questionnaire import build_questionnaire


def items(sample: Catalogue, *ids: str) -> list[Item]:
    return [sample.contract("C-100").items[each] for each in ids]


def asked(sample: Catalogue, *ids: str) -> dict[str, bool]:
    return {node.question.link_id: node.required for node in build_questionnaire(sample, items(sample, *ids)).questions()}


def test_no_questions_give_only_type_and_status(sample: Catalogue) -> None:
    """Only resourceType and status are there when no answers are needed."""
    assert build_questionnaire(sample, items(sample, "001.001")).as_json() == {
        "resourceType": "Questionnaire",
        "status": "active",
    }


def test_catalogue_without_questions_asks_nothing() -> None:
    empty = build_questionnaire(Catalogue("1", {}, {}, {}), [])
    assert (empty.root, empty.questions()) == (None, ())


def test_duplicate_questions_merged_and_required_wins(sample: Catalogue) -> None:
    assert asked(sample, "004.002") == {"anticoagulant": False}
    for basket in (("004.002", "004.001", "004.001"), ("004.001", "004.002")):
        assert asked(sample, *basket) == {"anticoagulant": True}


def test_questions_follow_catalogue_order(sample: Catalogue) -> None:
    ids = [each for each, item in sample.contract("C-100").items.items() if item.question_refs]
    whole = build_questionnaire(sample, items(sample, *ids)).as_json()
    for seed in range(10):
        random.Random(seed).shuffle(ids)
        assert build_questionnaire(sample, items(sample, *ids)).as_json() == whole


def test_questionnaire_json_matches_interface(sample: Catalogue) -> None:
    wire = build_questionnaire(sample, items(sample, "003.010", "060.001")).as_json()
    assert list(wire) == ["resourceType", "status", "item"]
    assert (wire["resourceType"], wire["status"]) == ("Questionnaire", "active")
    top = wire["item"]
    assert isinstance(top, dict)
    assert (top["type"], top["required"]) == ("group", True)
    women, allergen = top["item"]
    assert (women["linkId"], women["required"]) == ("women", False)
    day, pregnancy = women["item"]
    assert day == {
        "linkId": "cycle-day",
        "text": "Day of the menstrual cycle",
        "type": "string",
        "required": False,
        "repeats": False,
    }
    assert [each["linkId"] for each in pregnancy["item"]] == ["pregnant"]
    assert (allergen["required"], allergen["repeats"]) == (True, True)
    assert allergen["option"][0] == {"system": "https://lab.example/codes/allergen", "code": "d1"}
    for node in walk(top):
        assert set(node) - {"item", "option"} == {"linkId", "text", "type", "required", "repeats"}
        assert ("item" in node) == (node["type"] == "group")
        assert ("option" in node) == (node["type"] == "choice")


def walk(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(inner for child in node.get("item", []) for inner in walk(child))]

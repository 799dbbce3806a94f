"""What the API answers from the sample catalogue, whole, as `answers.json` has it.

With WRITE_ANSWERS=1 the test writes that file anew; look at what has changed in it.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lab_agent.catalogue.basket import Basket, read_basket
from lab_agent.catalogue.labels import second_label_patterns
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.nomenclature import nomenclature, turnarounds
from lab_agent.catalogue.preanalytics import calculate, explain_preanalytics
from lab_agent.catalogue.questionnaire import build_questionnaire

FILE = Path(__file__).with_name("answers.json")
KNOWN: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
BASKETS: dict[str, list[dict[str, Any]]] = {
    "one test": [{"id": "001.001", "guid": "g1"}],
    "two that share": [{"id": "002.001", "specimen_code": 10, "guid": "g2"}, {"id": "002.002", "guid": "g1"}],
    "two types of one test": [{"id": "002.001", "specimen_code": 10}, {"id": "002.001", "specimen_code": 13}],
    "a tolerance test": [{"id": "006.001", "guid": "g1"}],
    "required types": [{"id": "002.015", "guid": "g1"}, {"id": "051.001", "specimen_code": [31, 20], "guid": "g2"}],
    "a second barcode": [{"id": "042.036", "guid": "g1"}, {"id": "042.076", "guid": "g2"}],
    "questions": [{"id": "003.010"}, {"id": "060.001"}, {"id": "004.002"}, {"id": "004.001"}],
    "a body site": [{"id": "050.001", "bodysite_code": "EAR"}, {"id": "050.001", "bodysite_code": "NOS"}],
}


def compare(name: str, answer: Any) -> None:
    """Hold an answer against what is known of it."""
    found = json.loads(json.dumps(answer, ensure_ascii=False, default=str))
    if os.environ.get("WRITE_ANSWERS"):
        KNOWN[name] = found
        rows = (f"{json.dumps(each)}: {json.dumps(KNOWN[each], ensure_ascii=False)}" for each in KNOWN)
        FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    assert found == KNOWN[name]


@pytest.mark.parametrize("contract", ["C-100", "C-200"])
def test_nomenclature_is_as_known(sample: Catalogue, contract: str) -> None:
    for item in nomenclature(sample.contract(contract)):
        compare(f"{contract} {item['id']}", item)


def test_turnarounds_are_as_known(sample: Catalogue) -> None:
    compare("eta", turnarounds(sample.contract("C-100"), sample.notices, datetime(2026, 1, 2, tzinfo=UTC)))


@pytest.mark.parametrize("name", BASKETS)
def test_basket_is_answered_as_known(sample: Catalogue, name: str) -> None:
    asked = read(sample, name)
    answer = calculate(sample, asked.lines)
    labels = [f"L{number}" for number, _ in enumerate(answer.tubes)]
    second = [tuple(map(str, second_label_patterns(asked, tube))) for tube in answer.tubes]
    compare(name, answer.as_json(labels, include_transport=True, second_labels=second))
    compare(f"{name}, without transport", answer.as_json([None] * len(labels)))
    compare(f"{name}, in lines", [line.split() for line in explain_preanalytics(answer)])
    compare(f"{name}, asked", build_questionnaire(sample, [line.item for line in asked.lines]).as_json())


def read(sample: Catalogue, name: str) -> Basket:
    return read_basket({"contract": "C-100", "analyticsrequests": BASKETS[name]}, sample.contracts, 50)

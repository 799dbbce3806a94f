"""What each way to be wrong is told by: the places, lines, values and evidence of its violations, as `violations.json` has them.

With WRITE_VIOLATIONS=1 the test writes that file anew; look at what has changed in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.turnaround import Delayed, Notice, NoticePeriod, Stopped
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.patient_identity import PatientMatch
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.rules.context import Facts, LabelHolder, RuleContext
from lab_agent.rules.engine import RULES
from tests.unit.rules.test_rule_table import BAD, Wire, answers, both, item, patient, pr1, pr2, put, s1

FILE = Path(__file__).with_name("violations.json")
KNOWN: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}


NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
DAY = NoticePeriod(NOON - timedelta(days=1), NOON + timedelta(days=1))


def unknown_contract(wire: Wire) -> None:
    for request in (pr1(wire), pr2(wire)):
        request["supportingInfo"] = [{"reference": "contract/unknown"}]


def in_use(match: PatientMatch) -> dict[str, Any]:
    holders = frozenset(LabelHolder(match, OrderKey(order)) for order in ("R2", "R1"))
    return {"labels_in_use": {"10000001": holders}}


def nothing(_: Wire) -> None:
    """The order as it is."""


ELSEWHERE: dict[str, tuple[Callable[[Wire], None], dict[str, Any], Callable[[Catalogue], CatalogueHistory | None]]] = {
    "no catalogue": (nothing, {}, lambda _: None),
    "malformed": (put(pr1, "note", to="text"), {}, CatalogueHistory.from_catalogue),
    "label of another patient": (nothing, in_use(PatientMatch.DIFFERENT), CatalogueHistory.from_catalogue),
    "label of this patient": (nothing, in_use(PatientMatch.SAME), CatalogueHistory.from_catalogue),
    "unknown contract": (nothing, {"known_contracts": frozenset({"C-200"})}, CatalogueHistory.from_catalogue),
    "unknown contract resource": (unknown_contract, {}, CatalogueHistory.from_catalogue),
    "neither catalogue nor known contract": (unknown_contract, {}, lambda _: None),
    "stopped": (nothing, {}, lambda known: noticed(known, Stopped(DAY))),
    "stopped since": (nothing, {}, lambda known: noticed(known, Stopped(replace(DAY, start=NOON)))),
    "delayed": (nothing, {}, lambda known: noticed(known, Delayed(DAY, Decimal("1E+2")))),
    "answers without status": (put(answers, "status", to=None), {}, CatalogueHistory.from_catalogue),
    "type of another test": (
        both(item("002.001"), put(s1, "type", "coding", 0, "code", to="99")),
        {},
        CatalogueHistory.from_catalogue,
    ),
    "dashes without a number": (
        put(patient, "name", to=[{"family": "Doe", "given": ["-", "-"], "period": {"start": "2020", "end": "2030"}}]),
        {},
        CatalogueHistory.from_catalogue,
    ),
    "number without dashes": (
        put(patient, "name", to=[{"family": "0123456789", "given": ["Ada"]}, {"family": "Old", "period": {"end": "2001"}}]),
        {},
        CatalogueHistory.from_catalogue,
    ),
    "clocks differ": (
        put(patient, "birthDate", to="1850-01-01"),
        {"service_clock_offset": timedelta(hours=1)},
        CatalogueHistory.from_catalogue,
    ),
}
"""By name: a change of the order, other facts, and the catalogue."""


def noticed(catalogue: Catalogue, status: Stopped | Delayed) -> CatalogueHistory:
    return CatalogueHistory.from_catalogue(replace(catalogue, notices=(Notice("001.001", status, "C-100"),)))


@pytest.mark.parametrize(("number", "mutate"), [pytest.param(at, each[1], id=each[0]) for at, each in enumerate(BAD)])
def test_violations_are_told_with_place_and_values(
    number: int, mutate: Callable[[Wire], None], wire: Wire, order_from_wire: Any, catalogue: Catalogue, facts: Facts
) -> None:
    mutate(wire)
    if wire["questionnaire_responses"] == 0:
        wire["questionnaire_responses"] = None
    compare(f"{number} {BAD[number][0]}", RuleContext(order_from_wire(wire), CatalogueHistory.from_catalogue(catalogue), facts))


@pytest.mark.parametrize("name", ELSEWHERE)
def test_violations_by_what_is_known_elsewhere(
    name: str, wire: Wire, order_from_wire: Any, catalogue: Catalogue, facts: Facts
) -> None:
    mutate, known, history = ELSEWHERE[name]
    mutate(wire)
    compare(name, RuleContext(order_from_wire(wire), history(catalogue), replace(facts, **known)))


def compare(name: str, context: RuleContext) -> None:
    """Hold what the rules find against what is known of it."""
    found = {
        rule.id: [[each.where, list(each.line_ids), dict(each.values), list(each.evidence)] for each in rule.check(context)]
        for rule in RULES
    }
    told = {rule: violations for rule, violations in found.items() if violations}
    if os.environ.get("WRITE_VIOLATIONS"):
        KNOWN[name] = told
        rows = (f"{json.dumps(each, ensure_ascii=False)}: {json.dumps(KNOWN[each], ensure_ascii=False)}" for each in KNOWN)
        FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    assert told == KNOWN[name]


def test_file_has_no_other_rows() -> None:
    assert set(KNOWN) == {*(f"{number} {rule}" for number, (rule, _) in enumerate(BAD)), *ELSEWHERE}

"""One row for each way to be wrong: the sample order is right, and each mutation is found by exactly the rule that names it.

`violations.json` has the places, lines, values and evidence of what is found. With WRITE_VIOLATIONS=1 the tests write that file
anew; look at what has changed in it.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lab_agent.catalogue.turnaround import Delayed, Notice, NoticePeriod, Stopped
from lab_agent.fhir.patient_identity import PatientMatch
from lab_agent.rules.context import LabelHolder, RuleContext
from lab_agent.rules.engine import RULES, assess
from lab_agent.shared.ids import OrderKey
from tests.unit.fhir.sample import Change, answers, patient, pr1, put, s1
from tests.unit.rules.bad_orders import BAD, GOOD
from tests.unit.rules.sample import CATALOGUE, FACTS, HOUR, both, context, contracts, item, outcomes, whole

FILE = Path(__file__).with_name("violations.json")
KNOWN: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
CLOCKS = (timedelta(days=-9000), timedelta(days=9000))
READ_CLOCK = {each.id for each in RULES if each.reads_clock}


def compare(name: str, known: RuleContext) -> None:
    """Hold what the rules find against what is known of it."""
    found = {
        rule.id: [[each.where, list(each.line_ids), dict(each.values), list(each.evidence)] for each in rule.check(known)]
        for rule in RULES
    }
    told = {rule: violations for rule, violations in found.items() if violations}
    if os.environ.get("WRITE_VIOLATIONS"):
        KNOWN[name] = told
        rows = (f"{json.dumps(each, ensure_ascii=False)}: {json.dumps(KNOWN[each], ensure_ascii=False)}" for each in KNOWN)
        FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    assert told == KNOWN[name]


@pytest.mark.parametrize("number", range(len(BAD)), ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(BAD)])
def test_mutation_violates_exactly_its_rule(number: int) -> None:
    """It is found by no other rule, told with its place and values, and by any clock, but where the rule reads the clock."""
    rule, change = BAD[number]
    known = context(change)
    severity = next(each.severity for each in RULES if each.id == rule)
    judgement = assess(known.order, catalogue=known.catalogue, facts=known.facts)
    assert {(each.rule, each.severity) for each in judgement.findings()} == {(rule, severity)}
    compare(f"{number} {rule}", known)
    found = {(each.rule, each.where) for each in judgement.findings()}
    for shift in CLOCKS:
        shifted = replace(known.facts, now=known.facts.now + shift)
        by_clock = assess(known.order, catalogue=known.catalogue, facts=shifted).findings()
        assert {name for name, _ in {(each.rule, each.where) for each in by_clock} ^ found} <= READ_CLOCK


@pytest.mark.parametrize("name", GOOD)
def test_valid_variant_is_accepted_without_findings(name: str) -> None:
    assert outcomes(GOOD[name]) == ""


def noticed(status: Stopped | Delayed) -> Any:
    return replace(CATALOGUE, notices=(Notice("001.001", status, "C-100"),))


def in_use(match: PatientMatch, *labels: str) -> dict[str, Any]:
    holders = frozenset(LabelHolder(match, OrderKey(order)) for order in ("R2", "R1"))
    return dict.fromkeys(labels or ("10000001",), holders)


DAY = NoticePeriod(FACTS.now - 24 * HOUR, FACTS.now + 24 * HOUR)
UNKNOWN_CONTRACT = contracts({"reference": "contract/unknown"})
NAMED, ENDED = {"family": "Doe", "given": ["-", "-"]}, {"family": "Old", "period": {"end": "2001"}}
ELSEWHERE: dict[str, tuple[Change, dict[str, Any]]] = {
    "no catalogue": (whole, {"catalogue": None}),
    "malformed": (put(pr1, "note", to="text"), {}),
    "label of another patient": (whole, {"labels_in_use": in_use(PatientMatch.DIFFERENT)}),
    "label of this patient": (whole, {"labels_in_use": in_use(PatientMatch.SAME)}),
    "unknown contract": (whole, {"known_contracts": frozenset({"C-200"})}),
    "unknown contract resource": (UNKNOWN_CONTRACT, {}),
    "neither catalogue nor known contract": (UNKNOWN_CONTRACT, {"catalogue": None}),
    "stopped": (whole, {"catalogue": noticed(Stopped(DAY))}),
    "stopped since": (whole, {"catalogue": noticed(Stopped(replace(DAY, start=FACTS.now)))}),
    "delayed": (whole, {"catalogue": noticed(Delayed(DAY, Decimal("1E+2")))}),
    "answers without status": (put(answers, "status", to=None), {}),
    "type of another test": (both(item("002.001"), put(s1, "type", "coding", 0, "code", to="99")), {}),
    "dashes without a number": (put(patient, "name", to=[{**NAMED, "period": {"start": "2020", "end": "2030"}}]), {}),
    "number without dashes": (put(patient, "name", to=[{"family": "0123456789", "given": ["Ada"]}, ENDED]), {}),
    "clocks differ": (put(patient, "birthDate", to="1850-01-01"), {"service_clock_offset": HOUR}),
}
"""By name: a change of the order, and other facts or another catalogue."""


@pytest.mark.parametrize("name", ELSEWHERE)
def test_violations_by_what_is_known_elsewhere(name: str) -> None:
    change, known = ELSEWHERE[name]
    compare(name, context(change, **known))


def test_every_rule_has_rows_and_every_row_is_known() -> None:
    assert set(KNOWN) == {*(f"{number} {rule}" for number, (rule, _) in enumerate(BAD)), *ELSEWHERE}
    others = {"line.item-withdrawn", "order.clocks-differ", "specimen.collected-future", "tube.second-label-unset"}
    assert {rule for found in KNOWN.values() for rule in found} | others == {rule.id for rule in RULES}


@pytest.mark.parametrize(
    ("match", "outcome"),
    [
        (PatientMatch.SAME, "tube.label-reused=warn"),
        (PatientMatch.DIFFERENT, "tube.label-in-use=hold"),
        (PatientMatch.UNKNOWN, "tube.label-in-use=hold"),
    ],
)
def test_label_in_use_warns_or_holds_by_patient(match: PatientMatch, outcome: str) -> None:
    assert outcomes(labels_in_use=in_use(match)) == outcome
    assert outcomes(labels_in_use=in_use(match, "99999999")) == ""


@pytest.mark.parametrize("known", [frozenset({"C-200"}), frozenset()])
def test_unknown_contract_holds(known: frozenset[str]) -> None:
    assert outcomes(known_contracts=known) == outcomes(item("999.999"), known_contracts=known) == "order.contract-known=hold"


def test_unknown_contract_reference_holds() -> None:
    assert outcomes(UNKNOWN_CONTRACT) == "order.contract-known=hold"

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
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.patient_identity import PatientMatch
from lab_agent.rules.context import LabelHolder, RuleContext
from lab_agent.rules.engine import RULES, assess
from tests.unit.rules.sample import (
    CATALOGUE,
    FACTS,
    HOUR,
    LAB,
    OLD_ORDER,
    PERIOD,
    SERVICE,
    SHARED_LABEL,
    Change,
    alone,
    another_old_order,
    answer,
    answers,
    body_answers,
    both,
    both_in_label_system,
    clinic_number,
    coded,
    collected,
    collected_apart,
    container_before,
    context,
    contract,
    contracts,
    elsewhere,
    follow_up,
    foreign_extension,
    global_subject,
    item,
    line_task,
    no_specimens,
    order_task,
    outcomes,
    patient,
    pr1,
    pr2,
    put,
    rights,
    s1,
    s2,
    same_test_twice,
    same_tube,
    second_label,
    second_label_in,
    second_subject,
    specimen,
    system_of_code,
    third_task,
    tolerance,
    tube,
    tube_twice,
    two_types,
    urine,
    whole,
)

FILE = Path(__file__).with_name("violations.json")
KNOWN: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
CLOCKS = (timedelta(days=-9000), timedelta(days=9000))
READ_CLOCK = {each.id for each in RULES if each.reads_clock}

BAD: list[tuple[str, Change]] = [
    ("order.has-lines", put(whole, "line_tasks", to=[])),
    ("order.task-code", put(order_task, "code", "coding", 0, "code", to="Other")),
    ("order.task-code", put(order_task, "code", "coding", 0, "system", to="x")),
    ("order.task-code", put(order_task, "code", to=None)),
    ("order.line-based-on", put(line_task, "basedOn", to=None)),
    ("order.line-based-on", lambda wire: line_task(wire)["basedOn"].append({"reference": "procedurerequest/pr2"})),
    ("order.line-based-on", lambda wire: line_task(wire)["basedOn"].append({"reference": "patient/p1"})),
    ("order.address", put(line_task, "basedOn", 0, "reference", to="https://other.example/Task/1")),
    ("order.address", elsewhere),
    ("order.address", put(pr1, "specimen", 0, "reference", to="http://exchange.example/api/fhir/Specimen/s1")),
    ("order.address", put(pr1, "specimen", 0, "reference", to="https://exchange.example/other/fhir/Specimen/s1")),
    ("order.address", put(pr1, "subject", "reference", to="http://localhost:8080/fhir/Patient/p1")),
    ("order.address", put(s1, "subject", "reference", to="http://localhost:8080/fhir/Patient/p1")),
    ("order.address", put(answers, "source", "reference", to="http://localhost:8080/fhir/Patient/p1")),
    ("order.address", put(pr1, "supportingInfo", to=[{"reference": "http://localhost/contract/c1"}])),
    ("order.contract-system-known", put(pr1, "supportingInfo", 0, "identifier", "system", to="https://other.example/agreement")),
    ("order.one-task-per-request", third_task),
    ("order.line-part-of", put(line_task, "partOf", to=None)),
    ("order.line-part-of", put(line_task, "partOf", 0, "reference", to="task/other")),
    ("order.reference-form", put(pr1, "specimen", 0, "reference", to="urn:uuid:4c1c")),
    ("order.reference-form", put(pr1, "specimen", 0, "reference", to="https://exchange.example/api/Specimen?identifier=s1")),
    ("order.reference-form", put(pr1, "specimen", 0, "reference", to="patient/p1")),
    ("order.reference-form", put(pr1, "subject", "reference", to="urn:uuid:4c1c")),
    ("order.readable", lambda wire: (wire.update(unreadable=["Specimen/s1"]), wire["resources"].pop("Specimen/s1"))),
    ("order.readable", lambda wire: wire["resources"].pop("Specimen/s1")),
    ("order.readable", lambda wire: wire["resources"].pop("Patient/p1")),
    ("order.has-specimens", no_specimens),
    ("order.requisition", put(pr1, "requisition", to=None)),
    ("order.requisition", put(pr1, "requisition", "value", to="")),
    ("order.one-requisition", put(pr1, "requisition", "value", to="4712")),
    ("order.one-requisition", put(pr1, "requisition", "system", to="https://other.example")),
    ("order.contract", put(pr1, "supportingInfo", to=None)),
    ("order.contract", put(pr1, "supportingInfo", to=[{"reference": "urn:uuid:4c1c"}])),
    ("order.one-contract", put(pr1, "supportingInfo", 0, "identifier", "value", to="C-200")),
    ("order.one-contract", contracts({"reference": "contract/c1", "identifier": contract("C-200")})),
    ("order.one-contract-link", put(pr1, "supportingInfo", to=[{"reference": "contract/c1"}])),
    ("order.contract-system", put(pr1, "supportingInfo", 0, "identifier", "system", to="https://lab.example/codes//contract")),
    ("order.contract-system", put(pr1, "supportingInfo", 0, "identifier", "system", to=None)),
    ("order.one-patient", second_subject),
    ("line.status", put(pr1, "status", to="completed")),
    ("line.status", put(pr1, "status", to=None)),
    ("line.subject", put(pr1, "subject", to=None)),
    ("line.code", put(pr1, "code", to=None)),
    ("line.code", put(pr1, "code", "coding", 0, "code", to=None)),
    ("line.code-system", put(pr1, "code", "coding", 0, "system", to="http://loinc.org")),
    ("line.code-system", put(pr1, "code", "coding", 0, to={"system": "http://loinc.org", "code": "58410-2"})),
    ("line.code-system-spelling", put(pr1, "code", "coding", 0, "system", to=None)),
    ("line.code-system-spelling", system_of_code("https://exchange.example/apiterminology/nomenclature")),
    ("line.code-system-spelling", system_of_code("https://exchange.example/api//terminology/nomenclature")),
    ("line.item", item("999.999")),
    ("line.item", item("01.001")),
    ("line.repeat", same_test_twice),
    ("line.time", put(pr1, "occurrenceDateTime", to="2026-03-02T09:00:00")),
    ("line.time", put(pr1, "occurrenceDateTime", to=None)),
    ("line.time-future", put(pr1, "occurrenceDateTime", to="2026-03-02T19:00:00+03:00")),
    ("line.old-order-form", follow_up("12345-ABCDE")),
    ("line.old-order", both(alone, follow_up(None))),
    ("line.old-order", both(alone, follow_up("1234-ABCDE-12345678"))),
    ("line.old-order-unasked", put(pr1, "basedOn", to=[{"identifier": {"system": LAB + "/mis", "value": OLD_ORDER}}])),
    ("specimen.present", put(pr1, "specimen", to=[])),
    ("specimen.patient", put(s1, "subject", "reference", to="patient/p2")),
    ("specimen.patient", put(s1, "subject", to=None)),
    ("specimen.type", put(s1, "type", to=None)),
    ("specimen.type", put(s1, "type", "coding", 0, "system", to="http://snomed.info/sct")),
    ("specimen.type-system", put(s1, "type", "coding", 0, "system", to=SERVICE + "specimen_type")),
    ("specimen.type-offered", put(s1, "type", "coding", 0, "code", to="10")),
    ("specimen.type-offered", put(s1, "type", "coding", 0, "code", to="011")),
    ("specimen.one-type", both(item("002.001"), two_types)),
    ("specimen.required", both(item("002.015"), specimen("10", "SST5"), body_answers)),
    ("specimen.method-system", put(s1, "collection", "method", "coding", 0, "system", to="x")),
    ("specimen.method", put(s1, "collection", "method", "coding", 0, "code", to="Arterial puncture")),
    ("specimen.method", put(s1, "collection", "method", to=None)),
    ("specimen.site", put(s1, "extension", 0, "valueString", to="specimen=11,site=THR")),
    ("specimen.collected", collected("2026-03-02")),
    ("specimen.collected-period", put(s1, "collection", to={**PERIOD, "collectedPeriod": {"start": "2026-03-01", "end": "x"}})),
    ("specimen.collected-ahead", collected("2026-03-02T18:00:00+03:00")),
    ("specimen.collected-ahead", collected("2027-03-02T18:00:00+03:00")),
    ("specimen.extension", put(s1, "extension", to=None)),
    ("specimen.extension", put(s1, "extension", 0, "url", to="https://exchange.example/api/extra/supportinginfo2")),
    ("specimen.extension", lambda wire: s1(wire)["extension"].append(s1(wire)["extension"][0])),
    (
        "specimen.extension",
        foreign_extension,
    ),
    ("specimen.tolerance-time", tolerance("08:00:00", "", "10:00:00")),
    ("specimen.tolerance-points", tolerance("08:00:00", "09:00:00")),
    ("specimen.tolerance-points", tolerance("08:00:00", "09:00:00", points=None)),
    ("specimen.tolerance-points", tolerance("08:00:00", "09:00:00", "09:05:00", points=(0, 60, 60))),
    ("specimen.tolerance-points", tolerance("09:00:00", "10:00:00", points=(60, 120))),
    ("specimen.tolerance-sequence", tolerance("08:00:00", "10:00:00", "09:00:00")),
    ("specimen.tolerance-sequence", tolerance("08:00:00", "08:00:00", "10:00:00")),
    ("specimen.tolerance-sequence", tolerance("08:00:00", "09:00:00", "10:16:00")),
    ("specimen.tolerance-sequence", tolerance("08:00:00", "08:00:00", "09:00:00", "10:00:00", points=(0, 10, 60, 120))),
    ("specimen.tolerance-sequence", tolerance("08:00:00", "09:00:00", "10:30:00", points=None)),
    ("specimen.tolerance-sequence", tolerance("08:00:00", "08:00:00", "08:00:00", "08:00:00", points=None)),
    ("specimen.tolerance-sequence", tolerance("08:00:00", "09:00:00", "10:00:00", "11:00:00", points=None)),
    ("tube.label", put(s1, "container", to=[])),
    ("tube.label", put(tube, "identifier", to=[])),
    ("tube.label", put(tube, "identifier", 0, "value", to="")),
    ("tube.label", put(tube, "identifier", 0, "system", to="https://other.example/tubes")),
    ("tube.label", container_before("EDTA3")),
    ("tube.label-form", put(tube, "identifier", 0, "value", to="10 0001")),
    ("tube.label-form", put(tube, "identifier", 0, "value", to="1")),
    ("tube.label-system", put(tube, "identifier", 0, "system", to=LAB + "//labels")),
    ("tube.label-contradicts", SHARED_LABEL),
    ("tube.label-contradicts", both(tube_twice, SHARED_LABEL)),
    ("tube.label-shared", same_tube),
    ("tube.label-shared", both(same_tube, collected_apart(seconds=4))),
    ("tube.label-shared", both(same_tube, collected_apart(minutes=15))),
    ("tube.label-times", both(same_tube, collected_apart(minutes=16))),
    ("tube.label-shared", tube_twice),
    ("tube.label-shared", both(same_tube, put(s2, "collection", "collectedDateTime", to=None))),
    ("tube.second-label", second_label("042.036", None)),
    ("tube.second-label", second_label("042.075", "123-4567")),
    ("tube.second-label", second_label("042.076", "1234-5678")),
    ("tube.second-label-system", second_label_in("urn:second")),
    ("tube.second-label-system", both_in_label_system),
    ("tube.second-label", both(second_label("042.075", "1234-567"), put(tube, "identifier", 1, "system", to="urn:second"))),
    ("tube.type", put(tube, "type", "coding", 0, "code", to="NOSUCH")),
    ("tube.type-missing", put(tube, "type", to=None)),
    ("tube.type", put(tube, "type", "coding", 0, "system", to="http://snomed.info/sct")),
    ("tube.type-system", put(tube, "type", "coding", 0, "system", to=SERVICE + "specimen-type")),
    ("tube.type-fits", put(tube, "type", "coding", 0, "code", to="SST5")),
    ("tube.type-fits", both(put(tube, "type", "coding", 0, "code", to="SST5"), container_before("TR-COOL"))),
    ("tube.quantity", put(tube, "specimenQuantity", "value", to=0)),
    ("tube.quantity", put(tube, "specimenQuantity", "value", to=Decimal("-1E+2"))),
    ("tube.quantity", put(tube, "specimenQuantity", "value", to=Decimal("-1.5"))),
    ("tube.quantity-missing", put(tube, "specimenQuantity", to=None)),
    ("tube.quantity-enough", put(tube, "specimenQuantity", "value", to=Decimal("0.49"))),
    ("patient.gender", put(patient, "gender", to=None)),
    ("patient.gender-code", put(patient, "gender", to="f")),
    ("patient.birth-date", put(patient, "birthDate", to=None)),
    ("patient.birth-date-whole", put(patient, "birthDate", to="1990")),
    ("patient.birth-date-whole", put(patient, "birthDate", to="1990-02")),
    ("patient.birth-date-whole", put(patient, "birthDate", to="2026")),
    ("patient.birth-date", put(patient, "birthDate", to="1990-13")),
    ("patient.birth-date", put(patient, "birthDate", to="1990-02-30")),
    ("patient.birth-possible", put(patient, "birthDate", to="2026-03-04")),
    ("patient.birth-possible", put(patient, "birthDate", to="1890-01-01")),
    ("patient.anonymous", put(patient, "name", 0, "family", to="0123456789")),
    ("patient.anonymous", put(patient, "name", to=[{"family": "012345678", "given": ["-", "-"]}])),
    ("patient.global", global_subject),
    ("questionnaire.unknown", lambda wire: wire.update(questionnaire_responses=None)),
    ("questionnaire.completed", put(answers, "status", to="in-progress")),
    ("questionnaire.source", put(answers, "source", "reference", to="patient/p9")),
    ("questionnaire.subject", put(answers, "subject", "reference", to="procedurerequest/pr9")),
    ("questionnaire.visible", put(whole, "questionnaire_responses", to=[])),
    ("questionnaire.required", put(answers, "item", 0, "item", 0, to={"linkId": "drugs"})),
    ("questionnaire.choice", put(answers, "item", 0, "item", 0, "item", 0, "answer", 0, "valueCoding", "code", to="aspirin")),
    ("questionnaire.once", answer("anticoagulant", {"valueString": "warfarin"})),
    ("questionnaire.once", both(*(answer("anticoagulant", {"valueString": each}) for each in ("warfarin", "heparin")))),
    ("rights.update", put(line_task, "meta", "security", to=rights(("read", "lab-guid")))),
    ("rights.update", put(order_task, "meta", "security", to=rights(("updatebody", "other")))),
    ("rights.read", put(pr1, "meta", "security", to=rights(("owner", "clinic-guid")))),
    ("line.old-order", both(alone, follow_up(OLD_ORDER, "https://other.example/codes/mis"))),
    ("line.old-order", both(alone, follow_up(OLD_ORDER, "https://other.example/mis"))),
    ("line.old-order", both(alone, follow_up(OLD_ORDER, "https://clinic.example/orders"))),
    ("line.old-order", both(alone, follow_up(OLD_ORDER, LAB + "/labels"))),
    ("line.old-order", both(alone, follow_up(OLD_ORDER), another_old_order)),
    ("line.old-order-form", follow_up(OLD_ORDER, "https://clinic.example/orders")),
    ("line.old-order-system", both(alone, follow_up(OLD_ORDER, None))),
    ("line.old-order-system", both(alone, follow_up(OLD_ORDER, LAB + "/mis/"))),
    ("tube.second-label-system", second_label_in(None)),
    ("tube.second-label-system", second_label_in("https://clinic.example/second-labels")),
    ("tube.second-label-system", second_label_in("https://clinic.example/racks")),
    ("tube.second-label-system", both(second_label_in(LAB + "/mis"), lambda wire: tube(wire)["identifier"].reverse())),
    ("tube.second-label", both(second_label("042.075", "77"), clinic_number("1234-5678"))),
    ("tube.label-several", lambda wire: tube(wire)["identifier"].append({"system": LAB + "/labels", "value": "10000009"})),
    ("order.readable", put(line_task, "basedOn", 0, "reference", to="procedurerequest/a/b")),
    ("order.readable", put(pr1, "specimen", 0, "reference", to="specimen/s?1")),
    ("order.readable", put(pr1, "subject", "reference", to="https://exchange.example/api/fhir/Patient/p#1")),
    ("order.readable", put(s1, "subject", "reference", to="patient/p/1")),
    ("order.readable", put(answers, "source", "reference", to="patient/" + "1" * 501)),
    ("order.readable", put(pr1, "supportingInfo", to=[{"reference": "contract/a/b"}])),
]


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


GOOD: dict[str, Change] = {
    "contract by reference": both(
        contracts({"reference": "contract/c1"}), put(pr2, "supportingInfo", 0, "reference", to="Contract/c1")
    ),
    "an empty name": put(patient, "name", to=None),
    "an anonymous patient": put(patient, "name", to=[{"family": "0123456789", "given": ["-", "-"]}]),
    "no questionnaire where nothing is required": both(
        put(pr2, "code", "coding", 0, "code", to="004.002"), put(answers, "item", to=[])
    ),
    "numbers for codes": put(s1, "type", "coding", 0, "code", to=11),
    "another system's code before ours": lambda wire: pr1(wire)["code"]["coding"].insert(
        0, {"system": "http://loinc.org", "code": "58410-2"}
    ),
    "an address elsewhere beside the contract": lambda wire: pr1(wire)["supportingInfo"].append(
        {"reference": "http://localhost/observation/o1"}
    ),
    "fields that we do not know": put(s1, "receivedTime", to="whenever"),
    "a tolerance test": tolerance("08:00:00", "09:05:00", "09:58:00"),
    "a tolerance test whose points are not told": tolerance("08:00:00", "09:05:00", "09:58:00", points=None),
    "a tolerance test at the edge of its tolerance": tolerance("08:00:00", "09:15:00", "10:15:00"),
    "two barcodes": second_label("042.075", "1234-5678"),
    "two barcodes and a number of the clinic's": both(second_label("042.075", "1234-5678"), clinic_number("8765-4321")),
    "a number of the clinic's in the form of a second barcode": clinic_number("1234-5678"),
    "two barcodes of histology": second_label("042.076", "123-456-789"),
    "a follow-up study": both(alone, follow_up("12345-AB1CD-12345678")),
    "a follow-up study beside another test": follow_up(None),
    "a follow-up study beside another test, with the number": follow_up("12345-AB1CD-12345678"),
    "a tolerance test with one sample taken twice": tolerance("08:00:00", "09:05:00", "10:00:00", "10:02:00", points=None),
    "a string for a choice": put(answers, "item", 0, "item", 0, "item", 0, "answer", to=[{"valueString": "none"}]),
    "a tube in its cool bag": lambda wire: s1(wire)["container"].append(
        {"type": coded("specimen_type", "TR-COOL"), "specimenQuantity": {"value": 1}}
    ),
    "both required types": both(item("002.015"), specimen("10", "SST5"), body_answers, urine),
    "rights that are not shown": put(pr1, "meta", to=None),
    "a reference without the path of the service": put(s1, "subject", "reference", to="https://exchange.example/fhir/Patient/p1"),
    "a collection period": put(s1, "collection", to=PERIOD),
    "a collection time is not always needed": put(s1, "collection", "collectedDateTime", to=None),
}


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

"""Orders with one thing wrong, each with the rule that names it, and others that are unusual and right."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from tests.unit.fhir.sample import Change, Wire, answers, patient, pr1, pr2, put, s1, s2
from tests.unit.rules.sample import (
    LAB,
    OLD_ORDER,
    SERVICE,
    alone,
    answer,
    body_answers,
    both,
    clinic_number,
    coded,
    collected,
    container,
    contract,
    contracts,
    elsewhere,
    follow_up,
    item,
    order_task,
    rights,
    same_tube,
    second_label,
    second_subject,
    specimen,
    tolerance,
    tube,
    tube_twice,
    whole,
)


def global_subject(wire: Wire) -> None:
    subject = {"identifier": {"system": "urn:global", "value": "G1"}}
    for where in (pr1, pr2, s1, s2):
        where(wire)["subject"] = subject
    answers(wire)["source"] = subject
    del wire["resources"]["Patient/p1"]


def container_before(code: str) -> Change:
    """Another container stands before the tube."""
    other = {"type": coded("specimen_type", code), "specimenQuantity": {"value": 1}}
    return lambda wire: s1(wire)["container"].insert(0, other)


def both_in_label_system(wire: Wire) -> None:
    """The second barcode is in the system of the first one, and stands before it."""
    second_label("042.075", "1234-5678")(wire)
    tube(wire)["identifier"].reverse()
    tube(wire)["identifier"][0]["system"] = LAB + "/labels"


def second_label_in(system: str | None) -> Change:
    return both(second_label("042.075", "1234-5678"), put(tube, "identifier", 1, to={"system": system, "value": "1234-5678"}))


def foreign_extension(wire: Wire) -> None:
    s1(wire)["extension"].insert(0, {"url": "https://clinic.example/rack", "valueString": "specimen=11,site=THR"})


def two_types(wire: Wire) -> None:
    """Glucose from serum and from fluoride plasma in one line."""
    specimen("13", "FLU2")(wire)
    other = wire["resources"]["Specimen/s3"] = {**s2(wire), "type": coded("specimen-type", "10")}
    other["container"] = [{**s2(wire)["container"][0], "identifier": [{"system": LAB + "/labels", "value": "10000003"}]}]
    other["container"][0]["type"] = coded("specimen_type", "SST5")
    pr1(wire)["specimen"].append({"reference": "specimen/s3"})


def urine(wire: Wire) -> None:
    other = wire["resources"]["Specimen/s3"] = {**s2(wire), "type": coded("specimen-type", "21")}
    method = coded("treatment_protocol", "Urine of 24 hours, mixed, one portion")
    other["collection"] = {**other["collection"], "method": method}
    other["container"] = [container("10000003", "UR10", 5)]
    pr1(wire)["specimen"].append({"reference": "specimen/s3"})


def collected_apart(**apart: int) -> Change:
    def change(wire: Wire) -> None:
        at = dt.datetime.fromisoformat(s1(wire)["collection"]["collectedDateTime"])
        s2(wire)["collection"]["collectedDateTime"] = (at - dt.timedelta(**apart)).isoformat()

    return change


def line_task(wire: Wire) -> Any:
    return wire["line_tasks"][0]


def system_of_code(system: str) -> Change:
    return put(pr1, "code", "coding", 0, "system", to=system)


PERIOD: dict[str, Any] = {
    "collectedPeriod": {"start": "2026-03-01T08:00:00+03:00", "end": "2026-03-02T08:00:00+03:00"},
    "method": coded("treatment_protocol", "Venepuncture"),
}


ANOTHER_OLD_ORDER = {"identifier": {"system": LAB + "/mis", "value": "54321-AB1CD-12345678"}}
SHARED_LABEL = put(s2, "container", 0, "identifier", 0, "value", to="10000001")


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
    ("order.one-task-per-request", lambda wire: wire["line_tasks"].append({**wire["line_tasks"][0], "id": "t3"})),
    ("order.line-part-of", put(line_task, "partOf", to=None)),
    ("order.line-part-of", put(line_task, "partOf", 0, "reference", to="task/other")),
    ("order.reference-form", put(pr1, "specimen", 0, "reference", to="urn:uuid:4c1c")),
    ("order.reference-form", put(pr1, "specimen", 0, "reference", to="https://exchange.example/api/Specimen?identifier=s1")),
    ("order.reference-form", put(pr1, "specimen", 0, "reference", to="patient/p1")),
    ("order.reference-form", put(pr1, "subject", "reference", to="urn:uuid:4c1c")),
    ("order.readable", lambda wire: (wire.update(unreadable=["Specimen/s1"]), wire["resources"].pop("Specimen/s1"))),
    ("order.readable", lambda wire: wire["resources"].pop("Specimen/s1")),
    ("order.readable", lambda wire: wire["resources"].pop("Patient/p1")),
    ("order.has-specimens", both(put(pr1, "specimen", to=[]), put(pr2, "specimen", to=None))),
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
    ("line.repeat", lambda wire: pr2(wire).update(code=pr1(wire)["code"], specimen=pr1(wire)["specimen"])),
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
    ("specimen.extension", put(s1, "extension", to=None)),
    ("specimen.extension", put(s1, "extension", 0, "url", to="https://exchange.example/api/extra/supportinginfo2")),
    ("specimen.extension", lambda wire: s1(wire)["extension"].append(s1(wire)["extension"][0])),
    ("specimen.extension", foreign_extension),
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
    ("tube.quantity-missing", put(tube, "specimenQuantity", to=None)),
    ("tube.quantity-enough", put(tube, "specimenQuantity", "value", to=Decimal("0.49"))),
    ("patient.gender", put(patient, "gender", to=None)),
    ("patient.gender-code", put(patient, "gender", to="f")),
    ("patient.birth-date", put(patient, "birthDate", to=None)),
    ("patient.birth-date-whole", put(patient, "birthDate", to="1990")),
    ("patient.birth-date-whole", put(patient, "birthDate", to="2026")),
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
    ("line.old-order", both(alone, follow_up(OLD_ORDER, "https://other.example/mis"))),
    ("line.old-order", both(alone, follow_up(OLD_ORDER, "https://clinic.example/orders"))),
    ("line.old-order", both(alone, follow_up(OLD_ORDER, LAB + "/labels"))),
    ("line.old-order", both(alone, follow_up(OLD_ORDER), lambda wire: pr1(wire)["basedOn"].append(ANOTHER_OLD_ORDER))),
    ("line.old-order-form", follow_up(OLD_ORDER, "https://clinic.example/orders")),
    ("line.old-order-system", both(alone, follow_up(OLD_ORDER, None))),
    ("line.old-order-system", both(alone, follow_up(OLD_ORDER, LAB + "/mis/"))),
    ("tube.second-label-system", second_label_in(None)),
    ("tube.second-label-system", second_label_in("https://clinic.example/second-labels")),
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

"""One row for each way to be wrong: the sample order is right, and each mutation is found by exactly the rule that names it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.patient_identity import PatientMatch
from lab_agent.rules.context import LabelHolder
from lab_agent.rules.engine import RULES

Wire = dict[str, Any]
SERVICE = "https://exchange.example/api/terminology/"
LAB = "https://lab.example/codes"


def pr1(wire: Wire) -> Any:
    return wire["resources"]["ProcedureRequest/pr1"]


def pr2(wire: Wire) -> Any:
    return wire["resources"]["ProcedureRequest/pr2"]


def s1(wire: Wire) -> Any:
    return wire["resources"]["Specimen/s1"]


def tube(wire: Wire) -> Any:
    return s1(wire)["container"][0]


def patient(wire: Wire) -> Any:
    return wire["resources"]["Patient/p1"]


def answers(wire: Wire) -> Any:
    return wire["questionnaire_responses"][0]


def put(where: Callable[[Wire], Any], *path: Any, to: Any) -> Callable[[Wire], None]:
    """A mutation that sets one place; `to=None` removes it."""

    def change(wire: Wire) -> None:
        owner = where(wire)
        for key in path[:-1]:
            owner = owner[key]
        if to is None:
            del owner[path[-1]]
        else:
            owner[path[-1]] = to

    return change


def both(*changes: Callable[[Wire], None]) -> Callable[[Wire], None]:
    def change(wire: Wire) -> None:
        for each in changes:
            each(wire)

    return change


def item(code: str) -> Callable[[Wire], None]:
    return put(pr1, "code", "coding", 0, "code", to=code)


def specimen(code: str, container: str, method: str = "Venepuncture", info: str | None = None) -> Callable[[Wire], None]:
    def change(wire: Wire) -> None:
        s1(wire)["type"]["coding"][0]["code"] = code
        s1(wire)["collection"]["method"]["coding"][0]["code"] = method
        s1(wire)["extension"][0]["valueString"] = info or f"specimen={code}"
        tube(wire)["type"]["coding"][0]["code"] = container
        tube(wire)["specimenQuantity"]["value"] = Decimal(20)

    return change


def answer(link_id: str, value: Any) -> Callable[[Wire], None]:
    return lambda wire: answers(wire)["item"].append({"linkId": link_id, "answer": [value]})


def alone(wire: Wire) -> None:
    """Only the first line is left."""
    del wire["line_tasks"][1], wire["resources"]["ProcedureRequest/pr2"], wire["resources"]["Specimen/s2"]


def second_subject(wire: Wire) -> None:
    pr2(wire)["subject"] = {"reference": "patient/p2"}
    wire["resources"]["Specimen/s2"]["subject"] = {"reference": "patient/p2"}
    wire["resources"]["Patient/p2"] = {"gender": "male", "birthDate": "2001-01-01"}
    answers(wire)["source"] = None


def same_test_twice(wire: Wire) -> None:
    pr2(wire)["code"] = pr1(wire)["code"]
    pr2(wire)["specimen"] = pr1(wire)["specimen"]


def elsewhere(wire: Wire) -> None:
    for task in wire["line_tasks"]:
        task["basedOn"] = [{"reference": "https://other.example/api/procedurerequest/1"}]


def third_task(wire: Wire) -> None:
    wire["line_tasks"].append({**wire["line_tasks"][0], "id": "t3"})


def global_subject(wire: Wire) -> None:
    subject = {"identifier": {"system": "urn:global", "value": "G1"}}
    for name in ("ProcedureRequest/pr1", "ProcedureRequest/pr2", "Specimen/s1", "Specimen/s2"):
        wire["resources"][name]["subject"] = subject
    answers(wire)["source"] = subject
    del wire["resources"]["Patient/p1"]


def no_specimens(wire: Wire) -> None:
    pr1(wire)["specimen"] = []
    del pr2(wire)["specimen"]


def tolerance(*times: str, points: tuple[int, ...] | None = (0, 60, 120, 180)) -> Callable[[Wire], None]:
    """The second line becomes a tolerance test with samples at these times, which tell these time points, or none."""

    def change(wire: Wire) -> None:
        template = wire["resources"].pop("Specimen/s2")
        pr2(wire)["code"]["coding"][0]["code"] = "006.001"
        pr2(wire)["specimen"] = [{"reference": f"specimen/g{n}"} for n in range(len(times))]
        methods = ("before the load", "60 minutes after the load", "120 minutes after the load")
        for n, time in enumerate(times):
            wire["resources"][f"Specimen/g{n}"] = {
                **template,
                "type": {"coding": [{"system": SERVICE + "specimen-type", "code": "13"}]},
                "collection": {
                    "method": {"coding": [{"system": SERVICE + "treatment_protocol", "code": f"Venepuncture {methods[n % 3]}"}]},
                    **({"collectedDateTime": f"2026-03-02T{time}+03:00"} if time else {}),
                },
                "container": [
                    {
                        "identifier": [{"system": LAB + "/labels", "value": f"2000000{n}"}],
                        "type": {"coding": [{"system": SERVICE + "specimen_type", "code": "FLU2"}]},
                        "specimenQuantity": {"value": Decimal("0.7")},
                    }
                ],
                "extension": [
                    {
                        "url": "https://exchange.example/api/extra/supportingInfo",
                        "valueString": f"specimen=13,time={points[n]}" if points else "specimen=13",
                    }
                ],
            }

    return change


def container_before(wire: Wire, code: str) -> None:
    """Another container stands before the tube."""
    kind = {"coding": [{"system": SERVICE + "specimen_type", "code": code}]}
    s1(wire)["container"].insert(0, {"type": kind, "specimenQuantity": {"value": 1}})


def tube_twice(wire: Wire) -> None:
    s1(wire)["container"].append({**tube(wire)})


def second_label(code: str, value: str | None) -> Callable[[Wire], None]:
    kind = (
        ("50", "FORM40", "Biopsy, into formalin at once") if code == "042.076" else ("31", "LBC20", "Brush, rinsed in the vial")
    )

    def change(wire: Wire) -> None:
        both(item(code), specimen(*kind), answer("cycle-day", {"valueInteger": 5}))(wire)
        both(answer("diagnosis", {"valueString": "x"}), answer("material", {"valueString": "x"}))(wire)
        if value:
            tube(wire)["identifier"].append({"system": "https://lab.example/second-labels", "value": value})

    answers_once = change

    def clean(wire: Wire) -> None:
        answers_once(wire)
        answers(wire)["item"][0]["item"] = answers(wire)["item"][0]["item"][:1]

    return clean


def both_in_label_system(wire: Wire) -> None:
    """The second barcode is in the system of the first one, and stands before it."""
    second_label("042.075", "1234-5678")(wire)
    tube(wire)["identifier"].reverse()
    tube(wire)["identifier"][0]["system"] = LAB + "/labels"


def second_label_in(system: str | None) -> Callable[[Wire], None]:
    return both(second_label("042.075", "1234-5678"), put(tube, "identifier", 1, to={"system": system, "value": "1234-5678"}))


def clinic_number(value: str) -> Callable[[Wire], None]:
    return lambda wire: tube(wire)["identifier"].append({"system": "https://clinic.example/racks", "value": value})


def another_old_order(wire: Wire) -> None:
    pr1(wire)["basedOn"].append({"identifier": {"system": LAB + "/mis", "value": "54321-AB1CD-12345678"}})


OLD_ORDER = "12345-AB1CD-12345678"


def follow_up(number: str | None, system: str | None = LAB + "/mis") -> Callable[[Wire], None]:
    def change(wire: Wire) -> None:
        both(item("190.1558"), specimen("51", "SLIDE", "Slides and blocks of the earlier study"))(wire)
        if number:
            pr1(wire)["basedOn"] = [{"identifier": {"system": system, "value": number}}]

    return change


def link(code: str) -> dict[str, str]:
    """A contract by its identifier."""
    return {"system": LAB + "/contract", "value": code}


def rights(*entries: tuple[str, str]) -> list[dict[str, str]]:
    return [{"system": system, "code": code} for system, code in entries]


def two_types(wire: Wire) -> None:
    """Glucose from serum and from fluoride plasma in one line."""
    specimen("13", "FLU2")(wire)
    other = wire["resources"]["Specimen/s3"] = {**wire["resources"]["Specimen/s2"]}
    other["type"] = {"coding": [{"system": SERVICE + "specimen-type", "code": "10"}]}
    other["container"] = [{**other["container"][0], "identifier": [{"system": LAB + "/labels", "value": "10000003"}]}]
    other["container"][0]["type"] = {"coding": [{"system": SERVICE + "specimen_type", "code": "SST5"}]}
    pr1(wire)["specimen"].append({"reference": "specimen/s3"})


def body_answers(wire: Wire) -> None:
    for link_id in ("height", "weight", "diuresis"):
        answer(link_id, {"valueInteger": 0})(wire)


def urine(wire: Wire) -> None:
    other = wire["resources"]["Specimen/s3"] = {**wire["resources"]["Specimen/s2"]}
    other["type"] = {"coding": [{"system": SERVICE + "specimen-type", "code": "21"}]}
    method = {"coding": [{"system": SERVICE + "treatment_protocol", "code": "Urine of 24 hours, mixed, one portion"}]}
    other["collection"] = {**other["collection"], "method": method}
    other["container"] = [
        {
            "identifier": [{"system": LAB + "/labels", "value": "10000003"}],
            "type": {"coding": [{"system": SERVICE + "specimen_type", "code": "UR10"}]},
            "specimenQuantity": {"value": 5},
        }
    ]
    pr1(wire)["specimen"].append({"reference": "specimen/s3"})


def s2(wire: Wire) -> Any:
    return wire["resources"]["Specimen/s2"]


def same_tube(wire: Wire) -> None:
    """The second Specimen is what the first one is; both tests are made from it."""
    pr2(wire)["code"]["coding"][0]["code"] = "001.010"
    s2(wire).update({name: s1(wire)[name] for name in ("type", "collection", "extension")})
    s2(wire)["collection"] = dict(s1(wire)["collection"])
    s2(wire)["container"] = [{**tube(wire)}]


def collected_apart(**apart: int) -> Callable[[Wire], None]:
    def change(wire: Wire) -> None:
        at = dt.datetime.fromisoformat(s1(wire)["collection"]["collectedDateTime"])
        s2(wire)["collection"]["collectedDateTime"] = (at - dt.timedelta(**apart)).isoformat()

    return change


PERIOD: dict[str, Any] = {
    "collectedPeriod": {"start": "2026-03-01T08:00:00+03:00", "end": "2026-03-02T08:00:00+03:00"},
    "method": {"coding": [{"system": SERVICE + "treatment_protocol", "code": "Venepuncture"}]},
}
SHARED = put(lambda wire: wire["resources"]["Specimen/s2"], "container", 0, "identifier", 0, "value", to="10000001")

BAD: list[tuple[str, Callable[[Wire], None]]] = [
    ("order.has-lines", put(lambda wire: wire, "line_tasks", to=[])),
    ("order.task-code", put(lambda wire: wire["order_task"], "code", "coding", 0, "code", to="Other")),
    ("order.task-code", put(lambda wire: wire["order_task"], "code", "coding", 0, "system", to="x")),
    ("order.task-code", put(lambda wire: wire["order_task"], "code", to=None)),
    ("order.line-based-on", put(lambda wire: wire["line_tasks"][0], "basedOn", to=None)),
    ("order.line-based-on", lambda wire: wire["line_tasks"][0]["basedOn"].append({"reference": "procedurerequest/pr2"})),
    ("order.line-based-on", lambda wire: wire["line_tasks"][0]["basedOn"].append({"reference": "patient/p1"})),
    ("order.address", put(lambda wire: wire["line_tasks"][0], "basedOn", 0, "reference", to="https://other.example/Task/1")),
    ("order.address", elsewhere),
    ("order.address", put(pr1, "specimen", 0, "reference", to="http://exchange.example/api/fhir/Specimen/s1")),
    ("order.address", put(pr1, "specimen", 0, "reference", to="https://exchange.example/other/fhir/Specimen/s1")),
    ("order.address", put(pr1, "subject", "reference", to="http://localhost:8080/fhir/Patient/p1")),
    ("order.address", put(s1, "subject", "reference", to="http://localhost:8080/fhir/Patient/p1")),
    ("order.address", put(answers, "source", "reference", to="http://localhost:8080/fhir/Patient/p1")),
    ("order.address", put(pr1, "supportingInfo", to=[{"reference": "http://localhost/contract/c1"}])),
    ("order.contract-system-known", put(pr1, "supportingInfo", 0, "identifier", "system", to="https://other.example/agreement")),
    ("order.one-task-per-request", third_task),
    ("order.line-part-of", put(lambda wire: wire["line_tasks"][0], "partOf", to=None)),
    ("order.line-part-of", put(lambda wire: wire["line_tasks"][0], "partOf", 0, "reference", to="task/other")),
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
    (
        "order.one-contract",
        both(
            *(
                put(request, "supportingInfo", 0, to={"reference": "contract/c1", "identifier": link("C-200")})
                for request in (pr1, pr2)
            )
        ),
    ),
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
    (
        "line.code-system-spelling",
        put(pr1, "code", "coding", 0, "system", to="https://exchange.example/apiterminology/nomenclature"),
    ),
    (
        "line.code-system-spelling",
        put(pr1, "code", "coding", 0, "system", to="https://exchange.example/api//terminology/nomenclature"),
    ),
    ("line.item", item("999.999")),
    ("line.item", item("01.001")),
    ("line.repeat", same_test_twice),
    ("line.time", put(pr1, "occurrenceDateTime", to="2026-03-02T09:00:00")),
    ("line.time", put(pr1, "occurrenceDateTime", to=None)),
    ("line.time-future", put(pr1, "occurrenceDateTime", to="2026-03-02T19:00:00+03:00")),
    ("line.old-order-form", follow_up("12345-ABCDE")),
    ("line.old-order", both(alone, follow_up(None))),
    ("line.old-order", both(alone, follow_up("1234-ABCDE-12345678"))),
    (
        "line.old-order-unasked",
        put(pr1, "basedOn", to=[{"identifier": {"system": LAB + "/mis", "value": "12345-AB1CD-12345678"}}]),
    ),
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
    ("specimen.collected", put(s1, "collection", "collectedDateTime", to="2026-03-02")),
    ("specimen.collected-period", put(s1, "collection", to={**PERIOD, "collectedPeriod": {"start": "2026-03-01", "end": "x"}})),
    ("specimen.collected-ahead", put(s1, "collection", "collectedDateTime", to="2026-03-02T18:00:00+03:00")),
    ("specimen.collected-ahead", put(s1, "collection", "collectedDateTime", to="2027-03-02T18:00:00+03:00")),
    ("specimen.extension", put(s1, "extension", to=None)),
    ("specimen.extension", put(s1, "extension", 0, "url", to="https://exchange.example/api/extra/supportinginfo2")),
    ("specimen.extension", lambda wire: s1(wire)["extension"].append(s1(wire)["extension"][0])),
    (
        "specimen.extension",
        lambda wire: s1(wire)["extension"].insert(
            0, {"url": "https://clinic.example/rack", "valueString": "specimen=11,site=THR"}
        ),
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
    ("tube.label", lambda wire: container_before(wire, "EDTA3")),
    ("tube.label-form", put(tube, "identifier", 0, "value", to="10 0001")),
    ("tube.label-form", put(tube, "identifier", 0, "value", to="1")),
    ("tube.label-system", put(tube, "identifier", 0, "system", to=LAB + "//labels")),
    ("tube.label-contradicts", SHARED),
    ("tube.label-contradicts", both(tube_twice, SHARED)),
    ("tube.label-shared", same_tube),
    ("tube.label-shared", both(same_tube, collected_apart(seconds=4))),
    ("tube.label-shared", both(same_tube, collected_apart(minutes=15))),
    ("tube.label-times", both(same_tube, collected_apart(minutes=16))),
    ("tube.label-shared", tube_twice),
    ("tube.label-shared", both(same_tube, put(s2, "collection", "collectedDateTime", to=None))),
    ("tube.second-label", second_label("042.036", None)),
    ("tube.second-label", second_label("042.075", "123-4567")),
    ("tube.second-label", second_label("042.076", "1234-5678")),
    (
        "tube.second-label-system",
        both(second_label("042.075", "1234-5678"), put(tube, "identifier", 1, "system", to="urn:second")),
    ),
    ("tube.second-label-system", both_in_label_system),
    ("tube.second-label", both(second_label("042.075", "1234-567"), put(tube, "identifier", 1, "system", to="urn:second"))),
    ("tube.type", put(tube, "type", "coding", 0, "code", to="NOSUCH")),
    ("tube.type-missing", put(tube, "type", to=None)),
    ("tube.type", put(tube, "type", "coding", 0, "system", to="http://snomed.info/sct")),
    ("tube.type-system", put(tube, "type", "coding", 0, "system", to=SERVICE + "specimen-type")),
    ("tube.type-fits", put(tube, "type", "coding", 0, "code", to="SST5")),
    ("tube.type-fits", both(put(tube, "type", "coding", 0, "code", to="SST5"), lambda wire: container_before(wire, "TR-COOL"))),
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
    ("questionnaire.unknown", put(lambda wire: wire, "questionnaire_responses", to=0)),
    ("questionnaire.completed", put(answers, "status", to="in-progress")),
    ("questionnaire.source", put(answers, "source", "reference", to="patient/p9")),
    ("questionnaire.subject", put(answers, "subject", "reference", to="procedurerequest/pr9")),
    ("questionnaire.visible", put(lambda wire: wire, "questionnaire_responses", to=[])),
    ("questionnaire.required", put(answers, "item", 0, "item", 0, to={"linkId": "drugs"})),
    ("questionnaire.choice", put(answers, "item", 0, "item", 0, "item", 0, "answer", 0, "valueCoding", "code", to="aspirin")),
    ("questionnaire.once", answer("anticoagulant", {"valueString": "warfarin"})),
    ("questionnaire.once", both(*(answer("anticoagulant", {"valueString": each}) for each in ("warfarin", "heparin")))),
    ("rights.update", put(lambda wire: wire["line_tasks"][0], "meta", "security", to=rights(("read", "lab-guid")))),
    ("rights.update", put(lambda wire: wire["order_task"], "meta", "security", to=rights(("updatebody", "other")))),
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
    ("order.readable", put(lambda wire: wire["line_tasks"][0], "basedOn", 0, "reference", to="procedurerequest/a/b")),
    ("order.readable", put(pr1, "specimen", 0, "reference", to="specimen/s?1")),
    ("order.readable", put(pr1, "subject", "reference", to="https://exchange.example/api/fhir/Patient/p#1")),
    ("order.readable", put(s1, "subject", "reference", to="patient/p/1")),
    ("order.readable", put(answers, "source", "reference", to="patient/" + "1" * 501)),
    ("order.readable", put(pr1, "supportingInfo", to=[{"reference": "contract/a/b"}])),
]


@pytest.mark.parametrize(("rule", "change"), BAD, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(BAD)])
def test_mutation_violates_exactly_its_rule(
    rule: str, change: Callable[[Wire], None], wire: Wire, assess_wire: Any, rule_outcomes: Any
) -> None:
    change(wire)
    if wire["questionnaire_responses"] == 0:
        wire["questionnaire_responses"] = None
    found = rule_outcomes(assess_wire(wire))
    severity = next(each.severity for each in RULES if each.id == rule)
    assert found == {rule: severity.value}


GOOD: dict[str, Callable[[Wire], None]] = {
    "contract by reference": both(
        put(pr1, "supportingInfo", to=[{"reference": "contract/c1"}]),
        put(pr2, "supportingInfo", to=[{"reference": "Contract/c1"}]),
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
        {"type": {"coding": [{"system": SERVICE + "specimen_type", "code": "TR-COOL"}]}, "specimenQuantity": {"value": 1}}
    ),
    "both required types": both(item("002.015"), specimen("10", "SST5"), body_answers, urine),
    "rights that are not shown": put(pr1, "meta", to=None),
    "a reference without the path of the service": put(s1, "subject", "reference", to="https://exchange.example/fhir/Patient/p1"),
    "a collection period": put(s1, "collection", to=PERIOD),
    "a collection time is not always needed": put(s1, "collection", "collectedDateTime", to=None),
}


@pytest.mark.parametrize("name", GOOD)
def test_valid_variant_is_accepted_without_findings(name: str, wire: Wire, assess_wire: Any) -> None:
    GOOD[name](wire)
    assert assess_wire(wire).findings() == ()


def holders(match: PatientMatch) -> frozenset[LabelHolder]:
    return frozenset({LabelHolder(match, OrderKey("R-other"))})


@pytest.mark.parametrize(
    ("match", "outcome"),
    [
        (PatientMatch.SAME, {"tube.label-reused": "warn"}),
        (PatientMatch.DIFFERENT, {"tube.label-in-use": "hold"}),
        (PatientMatch.UNKNOWN, {"tube.label-in-use": "hold"}),
    ],
)
def test_label_in_use_warns_or_holds_by_patient(
    wire: Wire, assess_wire: Any, rule_outcomes: Any, facts: Any, match: PatientMatch, outcome: dict[str, str]
) -> None:
    assert rule_outcomes(assess_wire(wire, facts=replace(facts, labels_in_use={"10000001": holders(match)}))) == outcome
    assert assess_wire(wire, facts=replace(facts, labels_in_use={"99999999": holders(match)})).findings() == ()


def test_second_label_in_use_holds(wire: Wire, assess_wire: Any, rule_outcomes: Any, facts: Any) -> None:
    second_label("042.075", "1234-5678")(wire)
    used = replace(facts, labels_in_use={"1234-5678": holders(PatientMatch.DIFFERENT)})
    assert rule_outcomes(assess_wire(wire, facts=used)) == {"tube.label-in-use": "hold"}


def test_partners_own_number_is_no_label_in_use(wire: Wire, assess_wire: Any, facts: Any) -> None:
    tube(wire)["identifier"].append({"system": "https://clinic.example/racks", "value": "777"})
    used = replace(facts, labels_in_use={"777": holders(PatientMatch.DIFFERENT)})
    assert assess_wire(wire, facts=used).findings() == ()


@pytest.mark.parametrize(
    ("number", "outcome"),
    [(None, {"tube.second-label": "refuse"}), ("1234-5678", {"tube.second-label-unset": "hold"})],
)
def test_second_label_is_asked_for_without_its_system(
    wire: Wire, assess_wire: Any, rule_outcomes: Any, facts: Any, number: str | None, outcome: dict[str, str]
) -> None:
    second_label("042.036", number)(wire)
    unset = replace(facts, systems=replace(facts.systems, second_labels_system=None))
    assert rule_outcomes(assess_wire(wire, facts=unset)) == outcome


@pytest.mark.parametrize(
    ("beside", "outcome"),
    [
        ({"value": "our-7"}, {"order.contract-system": "warn"}),
        ({"system": "http://clinic.example/contract", "value": "our-7"}, {"order.contract-system": "warn"}),
        ({"system": "urn:clinic", "value": "our-7"}, {}),
        ({"system": "urn:clinic", "value": "C-200"}, {}),
        (link("our-7"), {"order.contract-known": "hold"}),
        ({"value": "C-200"}, {"order.contract-system": "warn", "order.one-contract": "refuse"}),
    ],
)
@pytest.mark.parametrize("in_one_link", [True, False])
def test_number_beside_a_known_contract(
    wire: Wire, assess_wire: Any, rule_outcomes: Any, beside: dict[str, str], outcome: dict[str, str], in_one_link: bool
) -> None:
    for request in (pr1(wire), pr2(wire)):
        address = {"reference": "contract/c1"}
        request["supportingInfo"] = [{**address, "identifier": beside}] if in_one_link else [address, {"identifier": beside}]
    found = rule_outcomes(assess_wire(wire))
    if in_one_link or "system" not in beside or beside["system"] != LAB + "/contract":
        assert found == {rule: does for rule, does in outcome.items() if in_one_link or rule != "order.contract-system"}
    else:  # named in two ways: the catalogue cannot be asked either
        assert "order.contract-known" in found
        assert "order.one-contract" not in found


def test_barcode_on_a_second_container_without_type_warns(wire: Wire, assess_wire: Any, rule_outcomes: Any) -> None:
    s1(wire)["container"].append({**tube(wire), "type": {"text": "tube"}})
    assert rule_outcomes(assess_wire(wire)) == {"tube.type-missing": "warn", "tube.label-shared": "warn"}


def test_old_order_number_in_the_system_counts_before_any_other(wire: Wire, assess_wire: Any, rule_outcomes: Any) -> None:
    both(alone, follow_up("12345-ABCDE-12345678"))(wire)
    pr1(wire)["basedOn"].insert(0, {"identifier": {"value": "77"}})
    assert "line.old-order" not in rule_outcomes(assess_wire(wire))


@pytest.mark.parametrize("known", [frozenset({"C-200"}), frozenset()])
def test_unknown_contract_holds(wire: Wire, assess_wire: Any, rule_outcomes: Any, facts: Any, known: frozenset[str]) -> None:
    assert rule_outcomes(assess_wire(wire, facts=replace(facts, known_contracts=known))) == {"order.contract-known": "hold"}


def test_unknown_contract_says_nothing_of_its_tests(wire: Wire, assess_wire: Any, rule_outcomes: Any, facts: Any) -> None:
    item("999.999")(wire)
    unknown = replace(facts, known_contracts=frozenset({"C-200"}))
    assert rule_outcomes(assess_wire(wire, facts=unknown)) == {"order.contract-known": "hold"}


def test_unknown_contract_reference_holds(wire: Wire, assess_wire: Any, rule_outcomes: Any) -> None:
    for request in (pr1(wire), pr2(wire)):
        request["supportingInfo"] = [{"reference": "contract/unknown"}]
    assert rule_outcomes(assess_wire(wire)) == {"order.contract-known": "hold"}


def test_code_systems_match_with_or_without_trailing_slash(wire: Wire, assess_wire: Any, facts: Any) -> None:
    for base, codes in (("https://exchange.example/api/", LAB), ("https://exchange.example/api", LAB + "/")):
        systems = replace(facts.systems, base_url=base, lab_codes_url=codes)
        assert assess_wire(wire, facts=replace(facts, systems=systems)).findings() == ()


def test_every_rule_has_a_table_row() -> None:
    elsewhere = {"order.contract-known", "order.catalogue", "order.shape"}
    elsewhere |= {
        "tube.label-in-use",
        "tube.label-reused",
        "tube.second-label-unset",
        "specimen.collected-future",
        "order.clocks-differ",
    }
    turnaround = {"line.item-withdrawn", "line.stopped", "line.stopped-since", "line.delayed"}
    assert {rule for rule, _ in BAD} | elsewhere | turnaround == {rule.id for rule in RULES}


def test_malformed_field_warns(wire: Wire, assess_wire: Any, rule_outcomes: Any) -> None:
    pr1(wire)["note"] = "text"
    assert rule_outcomes(assess_wire(wire)) == {"order.shape": "warn"}


def test_timestamps_are_compared_with_their_offset(wire: Wire, assess_wire: Any, rule_outcomes: Any, facts: Any) -> None:
    late = replace(facts, now=facts.now - dt.timedelta(hours=9))
    assert rule_outcomes(assess_wire(wire, facts=late))["specimen.collected-ahead"] == "hold"


@pytest.mark.parametrize(
    ("days", "offset", "rule"),
    [
        (2, 0, "specimen.collected-future"),
        (2, None, "specimen.collected-ahead"),
        (2, 3600, "order.clocks-differ"),
        (2, -3600, "order.clocks-differ"),
        (0.1, 86400, "order.clocks-differ"),
        (0.1, 0, "specimen.collected-ahead"),
    ],
)
def test_time_ahead_rejects_only_where_the_service_confirms_our_clock(
    wire: Wire, assess_wire: Any, rule_outcomes: Any, facts: Any, days: float, offset: int | None, rule: str
) -> None:
    at = facts.now + dt.timedelta(days=days)
    s1(wire)["collection"]["collectedDateTime"] = at.isoformat()
    known = replace(facts, service_clock_offset=None if offset is None else dt.timedelta(seconds=offset))
    assert list(rule_outcomes(assess_wire(wire, facts=known))) == [rule]


def test_birth_after_our_clock_is_possible_before_the_order(wire: Wire, assess_wire: Any, facts: Any) -> None:
    """A newborn's order, and our clock a year behind."""
    patient(wire)["birthDate"] = "2026-03-02"
    behind = replace(facts, now=facts.now - dt.timedelta(days=365))
    assert "patient.birth-possible" not in assess_wire(wire, facts=behind).rejecting_rules()


def test_no_rule_that_reads_the_clock_rejects_while_clocks_differ(wire: Wire, assess_wire: Any, facts: Any) -> None:
    patient(wire)["birthDate"] = "1850-01-01"
    s1(wire)["collection"]["collectedDateTime"] = (facts.now + dt.timedelta(days=3)).isoformat()
    pr1(wire)["occurrenceDateTime"] = (facts.now + dt.timedelta(days=1)).isoformat()
    differ = replace(facts, service_clock_offset=dt.timedelta(days=1))
    found = assess_wire(wire, facts=differ, severities={"line.time-future": "refuse"})
    assert found.rejecting_rules() == frozenset()
    assert {each.rule for each in found.holds} == {"order.clocks-differ"}
    agree = replace(facts, service_clock_offset=dt.timedelta(seconds=100))
    found = assess_wire(wire, facts=agree, severities={"line.time-future": "refuse"})
    assert found.rejecting_rules() == {"patient.birth-possible", "line.time-future", "specimen.collected-future"}


def test_hold_of_differing_clocks_reads_the_same_a_second_later(wire: Wire, assess_wire: Any, facts: Any) -> None:
    patient(wire)["birthDate"] = "1850-01-01"
    offsets = [dt.timedelta(days=1, seconds=each) for each in (0, 1)]
    texts = {assess_wire(wire, facts=replace(facts, service_clock_offset=each)).holds[0].message for each in offsets}
    assert len(texts) == 1


@pytest.mark.parametrize("mutate", [pytest.param(each[1], id=each[0]) for each in BAD if each[0] != "questionnaire.unknown"])
def test_what_depends_on_the_time_is_declared(wire: Wire, assess_wire: Any, facts: Any, mutate: Callable[[Wire], None]) -> None:
    """A rule that finds something else by a clock years ahead or behind, reads the clock."""
    mutate(wire)
    declared = {each.id for each in RULES if each.reads_clock}
    found = [
        {(each.rule, each.where) for each in assess_wire(wire, facts=replace(facts, now=facts.now + shift)).findings()}
        for shift in (dt.timedelta(days=-9000), dt.timedelta(), dt.timedelta(days=9000))
    ]
    assert {rule for other in found for rule, _ in other ^ found[1]} <= declared

"""Golden files, written by hand from the document's tables, against what the service accepts, stores and returns."""

import json
import re
from pathlib import Path

GOLDEN = Path(__file__).with_name("golden")

DATE_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"

TABLES = {
    "Patient": {
        "name[].family": ".+",
        "name[].given[]": ".+",
        "telecom[].system": "phone|email",
        "telecom[].value": ".+",
        "gender": ".+",
        "birthDate": r"\d{4}-\d\d-\d\d",
        "meta.security[].system": "http://exchange.test/security/(owner|read|readhistory)",
    },
    "ProcedureRequest": {
        "meta.security[].code": "guid-.*",
        "identifier[].system": ".+",
        "identifier[].value": ".+",
        "requisition.system": ".+",
        "requisition.value": ".+",
        "supportingInfo[].identifier.system": "http://codes.lab.example/contract",
        "supportingInfo[].identifier.value": "C-100",
        "status": "active",
        "code.coding[].system": "http://exchange.test/terminology/nomenclature",
        "code.coding[].code": ".+",
        "code.text": ".+",
        "subject.reference": "patient/.+",
        "occurrenceDateTime": DATE_TIME,
        "specimen[].reference": "specimen/.+",
        "note[].text": ".+",
    },
    "Specimen": {
        "type.coding[].system": "http://exchange.test/terminology/specimen-type",
        "type.coding[].code": ".+",
        "subject.reference": "patient/.+",
        "collection.collectedDateTime": DATE_TIME,
        "collection.method.coding[].system": "http://exchange.test/terminology/treatment_protocol",
        "container[].identifier[].system": "http://codes.lab.example/labels",
        "container[].identifier[].value": ".+",
        "container[].type.coding[].system": "http://exchange.test/terminology/specimen_type",
        "container[].specimenQuantity.value": r"[\d.]+",
        "extension[].url": "http://exchange.test/extra/supportingInfo",
        "extension[].valueString": ".+",
    },
    "QuestionnaireResponse": {
        "source.reference": "patient/.+",
        "status": "completed",
        "subject.reference": "procedurerequest/.+",
        "item[].linkId": ".+",
    },
    "Task": {
        "status": "requested",
        "meta.security[].system": "http://exchange.test/security/(owner|read|readhistory|updatebody)",
    },
}


def load(name, **replacements):
    text = (GOLDEN / name).read_text()
    for placeholder, value in replacements.items():
        text = text.replace(placeholder, value)
    return text


def exact(text):
    """Parses JSON with the digits of numbers: 2.50 is not 2.5."""
    return json.loads(text, parse_float=lambda digits: ("number", digits))


def with_numbered_ids(text, patient):
    """The response with the server's ids replaced by ID-1, ID-2, … in the order of the entries."""
    text = text.replace(patient, "PATIENT")
    for number, entry in enumerate(json.loads(text)["entry"], 1):
        text = text.replace(entry["resource"]["id"], f"ID-{number}")
    return text


def values(node, path):
    """All values at `a[].b.c`."""
    name, _, rest = path.partition(".")
    found = node.get(name.removesuffix("[]")) if isinstance(node, dict) else None
    children = found if name.endswith("[]") else [found]
    for child in children or []:
        yield from values(child, rest) if rest else [child]


def check_table(resource):
    """Every field of the document's table for this type is present and well-formed."""
    for path, pattern in TABLES[resource["resourceType"]].items():
        found = list(values(resource, path))
        assert found, f"{resource['resourceType']}.{path} is missing"
        for value in found:
            assert re.fullmatch(pattern, str(value)), f"{resource['resourceType']}.{path}: {value}"


async def created(world):
    patient = await world.patient()
    body = load("order_request.json", PATIENT=patient)
    answer = await world.client.post(
        "/fhir/$CreateDiagnosticRequest", content=body, headers=world.clinic | {"Content-Type": "application/json"}
    )
    assert answer.status_code == 200, answer.text
    return patient, answer


async def test_order_response_matches_golden_file(world):
    patient, answer = await created(world)
    assert exact(with_numbered_ids(answer.text, patient)) == exact(load("order_answer.json"))


async def test_read_returns_resource_as_created(world):
    _, answer = await created(world)
    for entry in exact(answer.text)["entry"]:
        resource = entry["resource"]
        read = await world.client.get(f"/fhir/{resource['resourceType'].lower()}/{resource['id']}", headers=world.laboratory)
        assert exact(read.text) == resource
        assert read.headers["etag"] == 'W/"1"'


async def test_stored_order_matches_documented_fields(world):
    patient, answer = await created(world)
    for entry in answer.json()["entry"]:
        check_table(entry["resource"])
    check_table((await world.client.get(f"/fhir/patient/{patient}", headers=world.laboratory)).json())
    tasks = [entry["resource"] for entry in answer.json()["entry"] if entry["resource"]["resourceType"] == "Task"]
    order, line = tasks
    assert order["code"]["coding"] == [{"system": "http://exchange.test/terminology/task_type", "code": "OrderProcessingTask"}]
    assert line["partOf"] == [{"reference": f"task/{order['id']}"}]
    assert "urn:uuid" not in answer.text


async def test_results_stored_as_uploaded(world):
    patient, answer = await created(world)
    entries = [entry["resource"]["id"] for entry in answer.json()["entry"]]
    ids = {"PATIENT": patient, "ID-1": entries[0], "ID-4": entries[3]}
    uploaded = {"OBSERVATION": "?"}
    for number in range(2):
        resource = exact(load("results.json", **ids, **uploaded))[number]
        body = json.dumps(json.loads(load("results.json", **ids, **uploaded))[number])
        made = await world.client.post(
            f"/fhir/{resource['resourceType']}", content=body, headers=world.laboratory | {"Content-Type": "application/json"}
        )
        assert made.status_code == 201, made.text
        uploaded = {"OBSERVATION": made.json()["id"]}
        read = exact((await world.client.get(f"/fhir/{resource['resourceType']}/{made.json()['id']}", headers=world.clinic)).text)
        assert {key: value for key, value in read.items() if key not in {"id", "meta"}} == {
            key: value for key, value in resource.items() if key != "meta"
        }


async def test_order_level_report_references_all_lines(world, helpers):
    """A report for the whole order references all its lines, and has only a link to a document."""
    order = await world.created_order(3)
    lines = [{"reference": f"procedurerequest/{one['id']}"} for one in order["ProcedureRequest"]]
    patient = order["ProcedureRequest"][0]["subject"]["reference"].partition("/")[2]
    report = helpers.report(patient, "", basedOn=lines, presentedForm=[{"url": "fhir/Binary/1"}])
    made = (await world.upload(report)).json()
    for line in lines:
        found = await world.client.get(f"/fhir/diagnosticreport?based-on={line['reference']}", headers=world.clinic)
        assert [one["resource"]["id"] for one in found.json()["entry"]] == [made["id"]]

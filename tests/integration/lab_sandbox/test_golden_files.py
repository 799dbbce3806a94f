"""Golden files, written by hand from the document's tables, against what the service accepts, stores and returns."""

import json
from pathlib import Path

from tests.integration.lab_sandbox.world import JSON_TYPE

GOLDEN = Path(__file__).with_name("golden")


def load(name, **replacements):
    text = (GOLDEN / name).read_text()
    for placeholder, value in replacements.items():
        text = text.replace(placeholder, value)
    return text


def exact(text):
    """Parses JSON with the digits of numbers: 2.50 is not 2.5."""
    return json.loads(text, parse_float=lambda digits: ("number", digits))


async def created(world):
    patient = await world.patient()
    body = load("order_request.json", PATIENT=patient)
    answer = await world.client.post("/fhir/$CreateDiagnosticRequest", content=body, headers=world.clinic | JSON_TYPE)
    assert answer.status_code == 200, answer.text
    return patient, answer


async def test_order_response_matches_golden_file(world):
    """With the server's ids replaced by ID-1, ID-2, … in the order of the entries."""
    patient, answer = await created(world)
    text = answer.text.replace(patient, "PATIENT")
    for number, entry in enumerate(answer.json()["entry"], 1):
        text = text.replace(entry["resource"]["id"], f"ID-{number}")
    assert exact(text) == exact(load("order_answer.json"))


async def test_read_returns_resource_as_created(world):
    _, answer = await created(world)
    for entry in exact(answer.text)["entry"]:
        resource = entry["resource"]
        read = await world.get(f"/fhir/{resource['resourceType'].lower()}/{resource['id']}")
        assert exact(read.text) == resource
        assert read.headers["etag"] == 'W/"1"'

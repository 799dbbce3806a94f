"""Result documents: Accept selects the format; uploads as they are or in base64."""

import base64

import pytest

PDF = b"%PDF-1.4\x00\xff sample"


@pytest.fixture
async def document(world, helpers):
    binary = {
        "resourceType": "Binary",
        "meta": helpers.grant("read", guid=helpers.CLINIC),
        "contentType": "application/pdf",
        "content": base64.b64encode(PDF).decode(),
    }
    return (await world.upload(binary)).json()["id"]


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "*/*",
        "application/pdf",
        "text/html;q=0.5, application/*",
        "text/html, application/pdf;q=0.1",
        "text/html;q=²,*/*",
        "application/json, application/pdf;q=0.5",
    ],
)
async def test_document_default_format_is_its_own(world, document, accept):
    headers = dict(world.clinic) | {"Accept": (accept or "").encode("latin-1")}
    answer = await world.client.get(f"/Binary/{document}", headers=headers)
    assert answer.status_code == 200
    assert answer.content == PDF
    assert answer.headers["content-type"] == "application/pdf"
    assert answer.headers["content-length"] == str(len(PDF))


@pytest.mark.parametrize("accept", ["application/fhir+json", "application/json+fhir, application/pdf;q=0.5"])
async def test_document_resource_returned_as_fhir(world, document, accept):
    answer = await world.client.get(f"/fhir/binary/{document}", headers=world.clinic | {"Accept": accept})
    assert base64.b64decode(answer.json()["content"]) == PDF
    assert answer.headers["content-type"] == "application/fhir+json;charset=utf-8"


@pytest.mark.parametrize("accept", ["text/html", "image/png;q=1, application/pdf;q=0", "application/json"])
async def test_document_unavailable_format_rejected(world, helpers, document, accept):
    answer = await world.client.get(f"/fhir/Binary/{document}", headers=world.clinic | {"Accept": accept})
    assert answer.status_code == 406
    assert "Accept" in helpers.diagnostics(answer)


async def test_document_raw_upload_accepted(world):
    made = await world.client.post("/fhir/Binary", content=PDF, headers=world.laboratory | {"Content-Type": "application/pdf"})
    assert made.status_code == 201
    answer = await world.client.get(f"/fhir/Binary/{made.json()['id']}", headers=world.laboratory)
    assert answer.content == PDF
    assert answer.headers["content-type"] == "application/pdf"


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"contentType": ""}, "Binary.contentType"),
        ({"content": "%%"}, "Binary.content"),
        ({"content": "é"}, "Binary.content"),
        ({"content": None}, "Binary.content"),
    ],
)
async def test_document_required_fields_checked(world, helpers, changes, name):
    binary = {"resourceType": "Binary", "contentType": "application/pdf", "content": "AAAA"} | changes
    answer = await world.upload(binary)
    assert answer.status_code == 422
    assert name in helpers.diagnostics(answer)

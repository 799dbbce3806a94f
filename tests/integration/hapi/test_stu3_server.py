"""The real agent before a FHIR server that nobody here wrote: strict parser, instance validator, its own pages and spelling."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any

import pytest

from lab_sandbox.demo.lis.transport_files import write_atomically
from lab_sandbox.demo.workspace import Workspace
from tests.harness.clock import wait_until
from tests.harness.documents import make_pdf
from tests.harness.orders import UNKNOWN_ITEM
from tests.harness.stu3_schema import DEVIATIONS
from tests.integration.hapi.stu3_server import FHIR_JSON, Json, PlacedOrder, Stu3Server
from tests.integration.results.test_stu3_deviations import OBSERVATION

pytestmark = [pytest.mark.proof, pytest.mark.timeout(400)]

STEP_SECONDS = 120.0
"""How long the agent may take, on a machine that is busy."""
PDF = make_pdf("è", newline=b"\n" + bytes(range(256)))
DEVIATING: dict[str, Json] = {
    "Observation.referenceRange.meaning": {**OBSERVATION, "referenceRange": [{"meaning": {"text": "normal"}, "text": "1"}]},
    "Observation.referenceRange": {**OBSERVATION, "referenceRange": [{"age": {"low": {"value": 18}}}]},
    "Resource.meta.security.system": {**OBSERVATION, "meta": {"security": [{"system": "read", "code": "guid"}]}},
    "Reference.reference": {**OBSERVATION, "subject": {"reference": "patient/8"}},
    "Task.intent": {"resourceType": "Task", "status": "cancelled"},
}
"""Of each named deviation, a resource that has it."""


class LaboratorySystem:
    """The laboratory system at the other side of the folder adapter."""

    def __init__(self, workspace: Workspace) -> None:
        self._orders, self._results = workspace.orders, workspace.results

    async def take_order(self, items: set[str]) -> Json:
        """The order of these items, when its file is there."""
        found: list[Json] = []

        def has_come() -> bool:
            orders = (json.loads(file.read_bytes()) for file in sorted(self._orders.glob("*.json")))
            found[:] = [each for each in orders if {line["item"] for line in each["lines"]} == items]
            return bool(found)

        await wait_until(has_come, f"the file of the order {sorted(items)}")
        return found[0]

    def report(self, order: Json, *values: str, version: int = 1) -> None:
        """A final report about all lines, with one observation for each value and one document."""
        now = datetime.now().astimezone().isoformat()
        body = {
            "report_id": f"rep-{order['key']}", "version": version, "status": "final", "order": order["key"],
            "lines": [line["key"] for line in order["lines"]], "effective": now, "issued": now,
            "observations": [
                {"id": f"o{number}", "code": {"system": "http://loinc.org", "code": "718-7"},
                 "value_quantity": {"value": value, "unit": "g/L"},
                 "reference_ranges": [{"low": {"value": "11.50", "unit": "g/L"}}]}
                for number, value in enumerate(values)
            ],
            "documents": [{"content": base64.b64encode(PDF).decode(), "content_type": "application/pdf"}],
        }  # fmt: skip
        write_atomically(self._results, f"{order['key']}-{version}.json", json.dumps(body).encode())


@pytest.fixture
def lis(installation: Workspace, agent_log: None) -> LaboratorySystem:
    return LaboratorySystem(installation)


async def wait_for_status(server: Stu3Server, task: str, status: str) -> Json:
    found: Json = {}

    async def has_it() -> bool:
        found.update(await server.read(f"Task/{task}"))
        return bool(found["status"] == status)

    await wait_until(has_it, f"Task {task} {status}", STEP_SECONDS)
    return found


async def deliver_report(server: Stu3Server, lis: LaboratorySystem, placed: PlacedOrder, *values: str) -> tuple[Json, Json]:
    """The order as the laboratory system got it, and its report as the server keeps it."""
    order = await lis.take_order(set(placed.line_tasks))
    lis.report(order, *values)
    await wait_for_status(server, placed.order_task, "completed")
    (report,) = await server.search("DiagnosticReport", subject=f"Patient/{placed.patient}")
    return order, report


async def test_server_is_strict_as_stu3_is(server: Stu3Server) -> None:
    """What the other tests rest on: this server refuses and does what STU3 says."""
    patient = await server.create({"resourceType": "Patient", "gender": "female"})
    task: Json = {"resourceType": "Task", "status": "requested", "intent": "order", "code": {"text": "x"}}
    kept = await server.create({**task, "for": {"reference": f"Patient/{patient['id']}"}})
    await server.create({**task, "for": {"reference": f"patient/{patient['id']}"}}, status=422)
    await server.create({**task, "output": [{"valueString": "no type"}]}, status=422)
    await server.create({**task, "unknown": 1}, status=422)
    stale = await server.http.put(f"Task/{kept['id']}", json=kept, headers={**FHIR_JSON, "If-Match": 'W/"7"'})
    assert stale.status_code == 409
    binary = {"resourceType": "Binary", "contentType": "text/plain", "content": base64.b64encode(b"hello").decode()}
    as_fhir = await server.http.post("Binary", json=binary, headers=FHIR_JSON)
    as_json = await server.http.post("Binary", json=binary)
    assert (await server.http.get(as_fhir.headers["Location"])).content == b"hello"
    assert (await server.http.get(as_json.headers["Location"])).content == as_json.request.content


async def test_named_deviations_are_those_that_it_refuses(server: Stu3Server) -> None:
    """All of them but the short names of rights, which this server lets pass, since nothing could be sent to it otherwise."""
    assert set(DEVIATING) == set(DEVIATIONS)
    for name, body in DEVIATING.items():
        await server.create(body, status=201 if name == "Resource.meta.security.system" else 422)


async def test_order_over_several_pages_is_handed_over(server: Stu3Server, lis: LaboratorySystem) -> None:
    """The server's pages have three entries and `next` links of its own form: an order of four lines comes whole."""
    placed = await server.place_order(lines=4, number=0)
    order = await lis.take_order(set(placed.line_tasks))
    assert len(order["lines"]) == 4


async def test_rejected_line_ends_as_valid_task(server: Stu3Server, lis: LaboratorySystem) -> None:
    placed = await server.place_order(lines=2, number=0, unknown_item=UNKNOWN_ITEM)
    task = await wait_for_status(server, placed.line_tasks[UNKNOWN_ITEM], "cancelled")
    assert UNKNOWN_ITEM in task["output"][0]["valueString"]
    assert task["output"][0]["type"]  # required by STU3: the server would have refused it
    assert len((await lis.take_order(set(placed.line_tasks) - {UNKNOWN_ITEM}))["lines"]) == 1


async def test_report_arrives_digit_for_digit(server: Stu3Server, lis: LaboratorySystem) -> None:
    placed = await server.place_order(lines=3, number=0)
    _, report = await deliver_report(server, lis, placed, "13.20", "0.10")
    assert report["subject"]["reference"] == f"Patient/{placed.patient}"
    observations = [await server.read(each["reference"]) for each in report["result"]]
    assert [str(each["valueQuantity"]["value"]) for each in observations] == ["13.20", "0.10"]
    assert {(await server.read(f"Task/{task}"))["status"] for task in placed.line_tasks.values()} == {"completed"}


async def test_document_is_read_back_byte_for_byte(server: Stu3Server, lis: LaboratorySystem) -> None:
    placed = await server.place_order(lines=2, number=1)
    _, report = await deliver_report(server, lis, placed, "13.20")
    answer = await server.http.get(f"{server.base_url}{report['presentedForm'][0]['url']}", headers={"Accept": "application/pdf"})
    assert answer.content == PDF
    assert answer.headers["Content-Type"].startswith("application/pdf")


async def test_correction_amends_only_what_changed(server: Stu3Server, lis: LaboratorySystem) -> None:
    placed = await server.place_order(lines=2, number=2)
    order, report = await deliver_report(server, lis, placed, "13.20", "0.10")
    lis.report(order, "13.20", "0.30", version=2)

    async def corrected() -> bool:
        return bool((await server.read(f"DiagnosticReport/{report['id']}"))["meta"]["versionId"] == "2")

    await wait_until(corrected, "the corrected report", STEP_SECONDS)
    now: Any = await server.read(f"DiagnosticReport/{report['id']}")
    assert now["status"] == "final"
    observations = [await server.read(each["reference"]) for each in now["result"]]
    assert [(each["meta"]["versionId"], each["status"]) for each in observations] == [("1", "final"), ("2", "amended")]

"""The STU3 server as a clinic uses it: orders in FHIR's own spelling, placed resource by resource, and whatever it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

from lab_agent.shared import exact_json
from tests.harness.orders import BASE, OrderTemplate, templates

Json = dict[str, Any]
FHIR_JSON = {"Content-Type": "application/fhir+json"}
_ORDERED_AT = datetime.now().astimezone().replace(microsecond=0)
"""One time for all orders of a run: each has barcodes of its own."""
_IN_ORDER = ("Specimen", "ProcedureRequest", "QuestionnaireResponse", "Task")


@dataclass(frozen=True)
class PlacedOrder:
    """What the server calls the resources of an order: ids of the order-level Task and, by item, of the line Tasks."""

    order_task: str
    line_tasks: dict[str, str]
    patient: str


@dataclass
class Stu3Server:
    base_url: str
    http: httpx.AsyncClient

    async def create(self, resource: Json, status: int = 201) -> Json:
        """POST a resource; its body as kept, or the OperationOutcome of another status."""
        answer = await self.http.post(resource["resourceType"], content=exact_json.dumps(resource), headers=FHIR_JSON)
        assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
        return dict(exact_json.loads(answer.content))

    async def read(self, reference: str) -> Json:
        """A resource; its numbers keep their digits."""
        answer = await self.http.get(reference)
        assert answer.status_code == 200, f"{answer.status_code}: {answer.text}"
        return dict(exact_json.loads(answer.content))

    async def search(self, kind: str, **criteria: str) -> list[Json]:
        """Everything that matches; the pages are large enough for that."""
        answer = await self.http.get(kind, params={**criteria, "_count": "100"})
        assert answer.status_code == 200, answer.text
        return [entry["resource"] for entry in exact_json.loads(answer.content).get("entry", ())]

    async def place_order(self, *, lines: int, number: int, unknown_item: str | None = None) -> PlacedOrder:
        """Place an order with so many lines; `number` chooses among those; the last line may be for an unknown item."""
        fitting = [each for each in templates(_ORDERED_AT) if _count_lines(each) == lines]
        patient = await self.create(fitting[number].patient)
        resources = await self._respelled(fitting[number], patient["id"])
        if unknown_item:
            requests = [each for each in resources.values() if each["resourceType"] == "ProcedureRequest"]
            requests[-1]["code"]["coding"][0]["code"] = unknown_item
        made = await self._create_in_order(resources)
        tasks = {url: each for url, each in made.items() if each["resourceType"] == "Task"}
        (order,) = (each["id"] for each in tasks.values() if "partOf" not in each)
        items = {f"ProcedureRequest/{each['id']}": each["code"]["coding"][0]["code"] for each in made.values() if "code" in each}
        line_tasks = {items[each["basedOn"][0]["reference"]]: each["id"] for each in tasks.values() if "partOf" in each}
        return PlacedOrder(order, line_tasks, patient["id"])

    async def _respelled(self, template: OrderTemplate, patient: str) -> dict[str, Json]:
        """The resources of an order by their local address, with FHIR's spelling of references and what STU3 requires."""
        contract = await self._contract_id()
        text = (
            exact_json.dumps(template.bundle)
            .decode()
            .replace(BASE, self.base_url)
            .replace("patient/PATIENT", f"Patient/{patient}")
        )
        resources = {entry["fullUrl"]: entry["resource"] for entry in exact_json.loads(text.encode())["entry"]}
        for each in resources.values():
            if each["resourceType"] in {"Task", "ProcedureRequest"}:
                each["intent"] = "order"
            for link in each.get("supportingInfo", ()):
                if "reference" in link:
                    link["reference"] = f"Contract/{contract}"
        return resources

    async def _create_in_order(self, resources: dict[str, Json]) -> dict[str, Json]:
        made: dict[str, Json] = {}
        ordered = sorted(resources.items(), key=lambda one: (_IN_ORDER.index(one[1]["resourceType"]), "partOf" in one[1]))
        for url, resource in ordered:
            text = exact_json.dumps(resource).decode()
            for known, kept in made.items():
                text = text.replace(known, f"{kept['resourceType']}/{kept['id']}")
            made[url] = await self.create(exact_json.loads(text.encode()))
        return made

    async def _contract_id(self) -> str:
        contract = {"resourceType": "Contract", "identifier": {"system": "http://codes.lab.example/contract", "value": "C-100"}}
        condition = "identifier=http%3A%2F%2Fcodes.lab.example%2Fcontract%7CC-100"
        answer = await self.http.post("Contract", json=contract, headers={**FHIR_JSON, "If-None-Exist": condition})
        assert answer.status_code in {200, 201}, answer.text
        return str(answer.json()["id"])


def _count_lines(template: OrderTemplate) -> int:
    return sum(entry["resource"]["resourceType"] == "ProcedureRequest" for entry in template.bundle["entry"])

"""The sandbox with a clinic, a laboratory and a second clinic, in-process, and what they send."""

import copy
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx

from lab_sandbox.app import create_app
from lab_sandbox.config import Contract, Counterparty, RuleSettings, SandboxConfig, TokenSettings
from lab_sandbox.faults.plan import parse_plan
from tests.harness.clock import VirtualClock

CLINIC, LABORATORY, STRANGER = "guid-clinic", "guid-laboratory", "guid-stranger"
BASE = "http://exchange.test/"
LAB = "http://codes.lab.example"
JSON_TYPE = {"Content-Type": "application/json"}
DROP = object()
"""As a value of a change: the element is taken out."""
Json = dict[str, Any]
Change = Json | Callable[[Json], object] | None
"""What is changed of an order: values by their place, or work on the bundle."""


def counterparties() -> tuple[Counterparty, ...]:
    def party(name: str, kind: str, guid: str, password: str, client: str, **more: Any) -> Counterparty:
        secret = {"client_id": client, "client_secret": f"secret-{password}"} if client else {}
        return Counterparty(guid=guid, name=name, kind=kind, login=name, password=f"pw-{password}", **secret, **more)

    callbacks = [(f"http://127.0.0.1:9/{name}",) for name in ("callback", "lab-callback")]
    card = {"address": "http://lab.test/api", "authorization": "Bearer for-the-lab"}
    return (
        party("clinic", "partner", CLINIC, "clinic", "clinic-app", redirect_uris=callbacks[0]),
        party("laboratory", "laboratory", LABORATORY, "lab", "lab-agent", redirect_uris=callbacks[1], **card),
        party("stranger", "partner", STRANGER, "stranger", ""),
    )


def make_config(**changes: Any) -> SandboxConfig:
    rules, tokens = changes.pop("rules", {}), changes.pop("tokens", {})
    partners = {"C-100": CLINIC, "C-200": CLINIC, "C-900": STRANGER}
    contracts = (
        Contract(code=code, partner=partner, laboratory=LABORATORY, id=code.replace("C-", "contract-"))
        for code, partner in partners.items()
    )
    given = {"base_url": BASE, "counterparties": counterparties(), "contracts": tuple(contracts)} | changes
    return SandboxConfig(rules=RuleSettings(**rules), tokens=TokenSettings(**tokens), **given)


@dataclass
class FakeLaboratoryApi:
    """A laboratory's web API: the requests that it got, and the responses that it gives. Other hosts are `handle_others`."""

    requests: list[httpx.Request] = field(default_factory=list)
    responses: dict[str, httpx.Response | Exception] = field(default_factory=dict)
    handle_others: Any = None

    def handle(self, request: httpx.Request) -> httpx.Response:
        if request.url.host != "lab.test":
            answer: httpx.Response = self.handle_others(request)
            return answer
        self.requests.append(request)
        found = self.responses.get(request.url.path) or httpx.Response(200, json=[])
        if isinstance(found, Exception):
            raise found
        return found


@dataclass
class SandboxWorld:
    app: Any
    client: httpx.AsyncClient
    lab: FakeLaboratoryApi
    clock: VirtualClock
    _patient: str = ""

    def bearer(self, guid: str) -> dict[str, str]:
        tokens = self.app.state.service.tokens.issue_tokens(guid, "", "", refresh=False)
        return {"Authorization": f"Bearer {tokens['access_token']}"}

    clinic = property(lambda self: self.bearer(CLINIC))
    laboratory = property(lambda self: self.bearer(LABORATORY))
    stranger = property(lambda self: self.bearer(STRANGER))

    def counts(self) -> dict[str, int]:
        """Resources in the store, by type."""
        counted: dict[str, int] = self.app.state.service.store.counts()
        return counted

    def activate(self, *faults: Json, seed: int = 0) -> None:
        """Let the service fail so from now on."""
        self.app.state.service.faults.activate(parse_plan({"seed": seed, "faults": list(faults)}, "test"))

    def spelled(self, node: Any) -> Any:
        """References as the service writes them: STU3's type names in the strict one."""
        text = json.dumps(node)
        if self.app.state.service.config.strict:
            for name in ("Patient", "Specimen", "ProcedureRequest", "Task", "Contract", "Observation"):
                text = text.replace(f'"{name.lower()}/', f'"{name}/')
        return json.loads(text)

    async def get(self, path: str, headers: dict[str, str] | None = None, **params: str) -> httpx.Response:
        """By the laboratory, if nobody is named."""
        return await self.client.get(path, headers=headers or self.laboratory, params=params or None)

    async def status(self, path: str, headers: dict[str, str], method: str = "GET", **more: Any) -> int:
        return (await self.client.request(method, path, headers=headers, **more)).status_code

    async def found(self, path: str, headers: dict[str, str] | None = None, **params: str) -> list[Json]:
        """The resources on the first page of a search."""
        answer = await self.get(path, headers, **params)
        assert answer.status_code == 200, answer.text
        return [entry["resource"] for entry in answer.json()["entry"]]

    async def patient(self, **changes: Any) -> str:
        answer = await self.client.post("/fhir/Patient", json=patient(**changes), headers=self.clinic)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    async def order(self, lines: int = 2, change: Change = None, headers: dict[str, str] | None = None) -> httpx.Response:
        """All orders are of one patient."""
        self._patient = self._patient or await self.patient()
        bundle = self.spelled(changed(order_bundle(self._patient, lines), change))
        return await self.client.post("/fhir/$CreateDiagnosticRequest", json=bundle, headers=self.clinic | (headers or {}))

    async def created_order(self, lines: int = 2, change: Change = None) -> dict[str, list[Json]]:
        """Its resources by type: the first Task is that of the order."""
        answer = await self.order(lines, change)
        assert answer.status_code == 200, answer.text
        created: dict[str, list[Json]] = {}
        for entry in answer.json()["entry"]:
            created.setdefault(entry["resource"]["resourceType"], []).append(entry["resource"])
        return created

    async def upload(self, resource: Json, **headers: str) -> httpx.Response:
        given = self.laboratory | {"Content-Type": "application/fhir+json"} | headers
        return await self.client.post(f"/fhir/{resource['resourceType']}", content=json.dumps(resource), headers=given)

    async def put(
        self, resource: Json, headers: dict[str, str] | None = None, version: int | str = 1, **changes: Any
    ) -> httpx.Response:
        """An update by the laboratory, if nobody is named."""
        given = (headers or self.laboratory) | {"If-Match": version if isinstance(version, str) else f'W/"{version}"'}
        path = f"/fhir/{resource['resourceType']}/{resource['id']}"
        return await self.client.put(path, json=resource | changes, headers=given)


def grant(*rights: str, guid: str = LABORATORY) -> Json:
    return {"security": [{"system": right, "code": guid} for right in rights]}


def shared(*rights: str) -> Json:
    """`meta` with these rights of the laboratory, and with the clinic's own to read, which it has only if granted."""
    return {"security": grant(*rights)["security"] + grant("read", "readhistory", guid=CLINIC)["security"]}


def meta_add(**meta: Any) -> Json:
    return {"resourceType": "Parameters", "parameter": [{"name": "meta", "valueMeta": meta}]}


def patient(**changes: Any) -> Json:
    return {
        "resourceType": "Patient",
        "meta": shared("read"),
        "name": [{"family": "Sample", "given": ["Anna", "Maria"]}],
        "telecom": [{"system": "phone", "value": "+10000000", "use": "mobile"}],
        "gender": "female",
        "birthDate": "1980-02-29",
    } | changes


def concept(system: str, code: str) -> Json:
    return {"coding": [{"system": system, "code": code}]}


def local_urn() -> str:
    return f"urn:uuid:{uuid4()}"


def order_bundle(patient_id: str, lines: int = 2, study: str = "001.00{}") -> Json:
    """A valid order: its Task, the tube that its lines share, lines with their Tasks in turn, and answers to questions."""
    subject = {"reference": f"patient/{patient_id}"}
    order_task, specimen, requests = local_urn(), local_urn(), [local_urn() for _ in range(lines)]
    requisition = {"system": "urn:clinic:orders", "value": str(uuid4())}
    task = {"resourceType": "Task", "meta": shared("read", "updatebody"), "status": "requested"}
    option = {"type": concept(f"{LAB}/notification", "sms"), "valueBoolean": True}
    order_code = concept(f"{BASE}terminology/task_type", "OrderProcessingTask")
    box = {
        "identifier": [{"system": f"{LAB}/labels", "value": "1000000017"}],
        "type": concept(f"{BASE}terminology/specimen_type", "EDTA"),
        "specimenQuantity": {"value": 3},
    }
    method = concept(f"{BASE}terminology/treatment_protocol", "fasting")
    tube = {
        "resourceType": "Specimen",
        "meta": shared("read"),
        "type": concept(f"{BASE}terminology/specimen-type", "108"),
        "subject": subject,
        "collection": {"collectedDateTime": "2026-01-05T07:30:00+00:00", "method": method},
        "container": [box],
        "extension": [{"url": f"{BASE}extra/supportingInfo", "valueString": "a,b"}],
    }
    entries = [(order_task, task | {"code": order_code, "input": [option]}), (specimen, tube)]
    for number, request in enumerate(requests):
        line = {
            "resourceType": "ProcedureRequest",
            "meta": shared("read"),
            "identifier": [{"system": "urn:clinic:lines", "value": str(uuid4())}],
            "requisition": requisition,
            "supportingInfo": [{"identifier": {"system": f"{LAB}/contract", "value": "C-100"}}],
            "status": "active",
            "code": concept(f"{BASE}terminology/nomenclature", study.format(number)) | {"text": "a test"},
            "subject": subject,
            "occurrenceDateTime": "2026-01-05T08:00:00+00:00",
            "specimen": [{"reference": specimen}],
            "note": [{"text": "please"}],
        }
        parts = {"basedOn": [{"reference": request}], "partOf": [{"reference": order_task}]}
        entries += [(request, line), (local_urn(), task | parts)]
    answers = {
        "resourceType": "QuestionnaireResponse",
        "meta": shared("read"),
        "source": subject,
        "status": "completed",
        "subject": {"reference": requests[0]},
        "item": [{"linkId": "1", "text": "Week", "answer": [{"valueInteger": 12}]}],
    }
    entries.append((local_urn(), answers))
    entry = [{"fullUrl": url, "resource": copy.deepcopy(one)} for url, one in entries]
    return {"resourceType": "Bundle", "type": "collection", "entry": entry}


def changed(bundle: Json, change: Change) -> Json:
    """The bundle with changes: a place is `1.container.0.type`, or `2,4.status` in several resources; 0 is the order's Task.

    A function as a value makes the new one of the old one.
    """
    if callable(change):
        change(bundle)
        return bundle
    for place, value in (change or {}).items():
        numbers, *path = place.split(".")
        for number in numbers.split(","):
            *way, last = [int(step) if step.isdigit() else step for step in path]
            node: Any = bundle["entry"][int(number)]["resource"]
            for step in way:
                node = node[step]
            if value is DROP:
                del node[last]
            else:
                node[last] = value(node[last]) if callable(value) else copy.deepcopy(value)
    return bundle


def observation(**changes: Any) -> Json:
    return {
        "resourceType": "Observation",
        "meta": grant("read", guid=CLINIC),
        "status": "final",
        "identifier": [{"system": "urn:lab:observations", "value": str(uuid4())}],
        "code": concept("http://loinc.org", "718-7"),
        "issued": "2026-01-05T12:00:00+00:00",
        "valueQuantity": {"value": 134, "unit": "g/L"},
        "referenceRange": [{"low": {"value": 120}, "high": {"value": 160}, "text": "120-160"}],
    } | changes


def report(line: Json, **changes: Any) -> Json:
    return {
        "resourceType": "DiagnosticReport",
        "meta": grant("read", guid=CLINIC),
        "status": "final",
        "identifier": [{"system": "urn:lab:reports", "value": str(uuid4())}],
        "code": concept(f"{BASE}terminology/nomenclature", "001.000"),
        "subject": line["subject"],
        "effectiveDateTime": "2026-01-05T07:30:00+00:00",
        "issued": "2026-01-05T12:00:00+00:00",
        "basedOn": [{"reference": f"procedurerequest/{line['id']}"}],
    } | changes


def diagnostics(answer: httpx.Response) -> str:
    """The diagnostics of an OperationOutcome, after a check of its form ("Errors")."""
    body = json.loads(answer.content)
    assert body["resourceType"] == "OperationOutcome"
    for issue in body["issue"]:
        assert issue["severity"] in {"fatal", "error", "warning", "information"}
        assert isinstance(issue["code"], str)
        assert isinstance(issue["diagnostics"], str)
    return "\n".join(issue["diagnostics"] for issue in body["issue"])


def problems(answer: httpx.Response) -> set[tuple[str, str]]:
    """Pairs of element and rule of what is refused; `2.status` is the status of that entry of a bundle."""
    assert answer.status_code == 422, answer.text
    lines = [one.rpartition(" (rule ") for one in diagnostics(answer).splitlines()]
    return {(_short(start.partition(": ")[0]), rule.rstrip(")")) for start, _, rule in lines}


def _short(element: str) -> str:
    return re.sub(r"^Bundle\.(entry\[(\d+)\]\.resource\.)?", lambda found: f"{found[2]}." if found[2] else "", element)


async def find_accepted(world: SandboxWorld, rows: Iterable[tuple[str, str, Change]], lines: int = 2) -> list[Any]:
    """The rows of element, rule and change whose order is not refused for that, or leaves something behind."""
    missed: list[Any] = []
    await world.order()
    for element, rule, change in rows:
        before, answer = world.counts(), await world.order(lines, change)
        found = problems(answer) if answer.status_code == 422 else {("", answer.text)}
        if (element, rule) not in found or world.counts() != before:
            missed.append((element, rule, sorted(found)))
    return missed


def make_world(**changes: Any) -> SandboxWorld:
    clock, lab = VirtualClock(datetime(2026, 1, 5, 8, 0, tzinfo=UTC)), FakeLaboratoryApi()
    app = create_app(make_config(**changes), clock=clock.now, transport=httpx.MockTransport(lab.handle))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return SandboxWorld(app, httpx.AsyncClient(transport=transport, base_url=BASE), lab, clock)


async def close(world: SandboxWorld) -> None:
    await world.client.aclose()
    await world.app.state.service.notifications.close()
    await world.app.state.service.basket_proxy.close()
    world.app.state.service.store.close()

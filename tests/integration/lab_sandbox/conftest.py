"""The sandbox with a clinic, a laboratory and a second clinic, in-process."""

import copy
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest

from lab_sandbox.app import create_app
from lab_sandbox.config import Contract, Counterparty, RuleSettings, SandboxConfig, TokenSettings

CLINIC, LABORATORY, STRANGER = "guid-clinic", "guid-laboratory", "guid-stranger"
BASE = "http://exchange.test/"
LAB_CODES_URL = "http://codes.lab.example"


def counterparties() -> tuple[Counterparty, ...]:
    return (
        Counterparty(
            guid=CLINIC,
            name="clinic",
            kind="partner",
            login="clinic",
            password="pw-clinic",
            client_id="clinic-app",
            client_secret="secret-clinic",
            redirect_uris=("http://127.0.0.1:9/callback",),
        ),
        Counterparty(
            guid=LABORATORY,
            name="laboratory",
            kind="laboratory",
            login="laboratory",
            password="pw-lab",
            client_id="lab-agent",
            client_secret="secret-lab",
            redirect_uris=("http://127.0.0.1:9/lab-callback",),
            address="http://lab.test/api",
            authorization="Bearer for-the-lab",
        ),
        Counterparty(guid=STRANGER, name="stranger", kind="partner", login="stranger", password="pw-stranger"),
    )


def make_config(**changes: Any) -> SandboxConfig:
    rules, tokens = changes.pop("rules", {}), changes.pop("tokens", {})
    return SandboxConfig(
        base_url=BASE,
        counterparties=changes.pop("counterparties", counterparties()),
        rules=RuleSettings(**rules),
        tokens=TokenSettings(**tokens),
        contracts=(
            Contract(code="C-100", partner=CLINIC, laboratory=LABORATORY, id="contract-100"),
            Contract(code="C-200", partner=CLINIC, laboratory=LABORATORY, id="contract-200"),
            Contract(code="C-900", partner=STRANGER, laboratory=LABORATORY, id="contract-900"),
        ),
        **changes,
    )


@dataclass
class SandboxClock:
    now: datetime = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class FakeLaboratoryApi:
    """A laboratory's web API: the requests that it got, and the responses that it gives. Other hosts are `handle_others`."""

    requests: list[httpx.Request] = field(default_factory=list)
    responses: dict[str, httpx.Response] = field(default_factory=dict)
    handle_others: Any = None

    def handle(self, request: httpx.Request) -> httpx.Response:
        if request.url.host != "lab.test":
            answer: httpx.Response = self.handle_others(request)
            return answer
        self.requests.append(request)
        return self.responses.get(request.url.path) or httpx.Response(200, json=[])


@dataclass
class SandboxWorld:
    app: Any
    client: httpx.AsyncClient
    lab: FakeLaboratoryApi
    clock: SandboxClock

    def bearer(self, guid: str) -> dict[str, str]:
        tokens = self.app.state.service.tokens.issue_tokens(guid, "", "", refresh=False)
        return {"Authorization": f"Bearer {tokens['access_token']}"}

    @property
    def clinic(self) -> dict[str, str]:
        return self.bearer(CLINIC)

    @property
    def laboratory(self) -> dict[str, str]:
        return self.bearer(LABORATORY)

    @property
    def stranger(self) -> dict[str, str]:
        return self.bearer(STRANGER)

    async def patient(self, **changes: Any) -> str:
        answer = await self.client.post("/fhir/Patient", json=patient(**changes), headers=self.clinic)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    async def order(self, lines: int = 2, change: Any = None, headers: dict[str, str] | None = None) -> httpx.Response:
        bundle = order_bundle(await self.patient(), lines)
        if change:
            change(bundle)
        return await self.client.post("/fhir/$CreateDiagnosticRequest", json=bundle, headers=self.clinic | (headers or {}))

    async def created_order(self, lines: int = 2) -> dict[str, list[dict[str, Any]]]:
        answer = await self.order(lines)
        assert answer.status_code == 200, answer.text
        created: dict[str, list[dict[str, Any]]] = {}
        for entry in answer.json()["entry"]:
            created.setdefault(entry["resource"]["resourceType"], []).append(entry["resource"])
        return created

    async def upload(self, resource: dict[str, Any], **headers: str) -> httpx.Response:
        given = self.laboratory | {"Content-Type": "application/fhir+json"} | headers
        return await self.client.post(f"/fhir/{resource['resourceType']}", content=json.dumps(resource), headers=given)


def grant(*rights: str, guid: str = LABORATORY) -> dict[str, Any]:
    return {"security": [{"system": right, "code": guid} for right in rights]}


def shared(*rights: str) -> dict[str, Any]:
    """`meta` with these rights of the laboratory, and with the clinic's own to read, which it has only if granted."""
    return {"security": grant(*rights)["security"] + grant("read", "readhistory", guid=CLINIC)["security"]}


def patient(**changes: Any) -> dict[str, Any]:
    return {
        "resourceType": "Patient",
        "meta": shared("read"),
        "name": [{"family": "Sample", "given": ["Anna", "Maria"]}],
        "telecom": [{"system": "phone", "value": "+10000000", "use": "mobile"}],
        "gender": "female",
        "birthDate": "1980-02-29",
    } | changes


def concept(system: str, code: str) -> dict[str, Any]:
    return {"coding": [{"system": system, "code": code}]}


def local_urn() -> str:
    return f"urn:uuid:{uuid4()}"


def order_bundle(patient_id: str, lines: int = 2, study: str = "001.00{}") -> dict[str, Any]:
    """A valid order: lines that share one tube, their Tasks, the order-level Task, and answers to the questionnaire."""
    subject = {"reference": f"patient/{patient_id}"}
    order_task, specimen, requests = local_urn(), local_urn(), [local_urn() for _ in range(lines)]
    requisition = {"system": "urn:clinic:orders", "value": str(uuid4())}
    entries = [
        (
            order_task,
            {
                "resourceType": "Task",
                "meta": shared("read", "updatebody"),
                "status": "requested",
                "code": concept(f"{BASE}terminology/task_type", "OrderProcessingTask"),
                "input": [{"type": concept(f"{LAB_CODES_URL}/notification", "sms"), "valueBoolean": True}],
            },
        ),
        (
            specimen,
            {
                "resourceType": "Specimen",
                "meta": shared("read"),
                "type": concept(f"{BASE}terminology/specimen-type", "108"),
                "subject": subject,
                "collection": {
                    "collectedDateTime": "2026-01-05T07:30:00+00:00",
                    "method": concept(f"{BASE}terminology/treatment_protocol", "fasting"),
                },
                "container": [
                    {
                        "identifier": [{"system": f"{LAB_CODES_URL}/labels", "value": "1000000017"}],
                        "type": concept(f"{BASE}terminology/specimen_type", "EDTA"),
                        "specimenQuantity": {"value": 3},
                    }
                ],
                "extension": [{"url": f"{BASE}extra/supportingInfo", "valueString": "a,b"}],
            },
        ),
    ]
    for number, request in enumerate(requests):
        entries.append(
            (
                request,
                {
                    "resourceType": "ProcedureRequest",
                    "meta": shared("read"),
                    "identifier": [{"system": "urn:clinic:lines", "value": str(uuid4())}],
                    "requisition": requisition,
                    "supportingInfo": [{"identifier": {"system": f"{LAB_CODES_URL}/contract", "value": "C-100"}}],
                    "status": "active",
                    "code": concept(f"{BASE}terminology/nomenclature", study.format(number)) | {"text": "a test"},
                    "subject": subject,
                    "occurrenceDateTime": "2026-01-05T08:00:00+00:00",
                    "specimen": [{"reference": specimen}],
                    "note": [{"text": "please"}],
                },
            )
        )
        entries.append(
            (
                local_urn(),
                {
                    "resourceType": "Task",
                    "meta": shared("read", "updatebody"),
                    "status": "requested",
                    "basedOn": [{"reference": request}],
                    "partOf": [{"reference": order_task}],
                },
            )
        )
    entries.append(
        (
            local_urn(),
            {
                "resourceType": "QuestionnaireResponse",
                "meta": shared("read"),
                "source": subject,
                "status": "completed",
                "subject": {"reference": requests[0]},
                "item": [{"linkId": "1", "text": "Week", "answer": [{"valueInteger": 12}]}],
            },
        )
    )
    return {
        "resourceType": "Bundle",
        "type": "collection",
        "entry": [{"fullUrl": url, "resource": copy.deepcopy(one)} for url, one in entries],
    }


def observation(**changes: Any) -> dict[str, Any]:
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


def report(patient_id: str, line_id: str, **changes: Any) -> dict[str, Any]:
    return {
        "resourceType": "DiagnosticReport",
        "meta": grant("read", guid=CLINIC),
        "status": "final",
        "identifier": [{"system": "urn:lab:reports", "value": str(uuid4())}],
        "code": concept(f"{BASE}terminology/nomenclature", "001.000"),
        "subject": {"reference": f"patient/{patient_id}"},
        "effectiveDateTime": "2026-01-05T07:30:00+00:00",
        "issued": "2026-01-05T12:00:00+00:00",
        "basedOn": [{"reference": f"procedurerequest/{line_id}"}],
    } | changes


def resources_of_type(bundle: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == kind]


def diagnostics(answer: httpx.Response) -> str:
    """The diagnostics of an OperationOutcome, after a check of its form ("Errors")."""
    body = json.loads(answer.content)
    assert body["resourceType"] == "OperationOutcome"
    for issue in body["issue"]:
        assert issue["severity"] in {"fatal", "error", "warning", "information"}
        assert isinstance(issue["code"], str)
        assert isinstance(issue["diagnostics"], str)
    return "\n".join(issue["diagnostics"] for issue in body["issue"])


def make_world(**changes: Any) -> SandboxWorld:
    clock, lab = SandboxClock(), FakeLaboratoryApi()
    app = create_app(make_config(**changes), clock=clock, transport=httpx.MockTransport(lab.handle))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return SandboxWorld(app, httpx.AsyncClient(transport=transport, base_url=BASE), lab, clock)


@pytest.fixture
def helpers() -> SimpleNamespace:
    """The helpers of this file, for tests that cannot import it."""
    return SimpleNamespace(
        order_bundle=order_bundle,
        of_type=resources_of_type,
        diagnostics=diagnostics,
        patient=patient,
        grant=grant,
        shared=shared,
        concept=concept,
        local=local_urn,
        report=report,
        observation=observation,
        make_config=make_config,
        BASE=BASE,
        LAB=LAB_CODES_URL,
        CLINIC=CLINIC,
        LABORATORY=LABORATORY,
        STRANGER=STRANGER,
    )


@pytest.fixture
async def world() -> AsyncIterator[SandboxWorld]:
    sandbox = make_world()
    yield sandbox
    await close(sandbox)


@pytest.fixture
async def world_factory() -> AsyncIterator[Any]:
    """Builds sandboxes with other settings."""
    sandboxes: list[SandboxWorld] = []

    def make(**changes: Any) -> SandboxWorld:
        sandboxes.append(make_world(**changes))
        return sandboxes[-1]

    yield make
    for one in sandboxes:
        await close(one)


async def close(world: SandboxWorld) -> None:
    await world.client.aclose()
    await world.app.state.service.notifications.close()
    await world.app.state.service.basket_proxy.close()
    world.app.state.service.store.close()

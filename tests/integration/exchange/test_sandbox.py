"""The client against the exchange service in a box, over real sockets: an independent reading of the interface."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
import uvicorn

from lab_agent import errors
from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.ids import ResourceId
from lab_agent.domain.values import Identifier
from lab_agent.exchange import browser_login
from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient, http_options
from lab_agent.http_client import HttpClient
from lab_agent.settings.exchange import ExchangeSettings
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import SqlStore
from lab_sandbox.app import create_app
from lab_sandbox.config import CLINIC_GUID, LABORATORY_GUID, RuleSettings, SandboxConfig, TokenSettings
from lab_sandbox.faults.plan import FaultPlan, FaultRule
from tests.fakes.memory_store import MemoryStore
from tests.harness.clock import DEADLINE

CODES = "http://codes.lab.example"
CALLBACK = "http://127.0.0.1:8485/callback"
LAB = {"client_id": "lab-agent", "client_secret": "demo-laboratory-secret"}
PASSWORD = {"grant": "password", "username": "laboratory", "password": "demo-laboratory-password", **LAB}
CODE = {"grant": "authorization_code", "redirect_uri": CALLBACK, **LAB}


@dataclass
class Service:
    """A running sandbox, and what a clinic does there."""

    app: Any
    config: SandboxConfig

    @property
    def base(self) -> str:
        return self.config.base_url

    def faults(self, *rules: FaultRule) -> None:
        self.app.state.service.faults.activate(FaultPlan(faults=rules))

    async def order(self, lines: int = 2) -> dict[str, list[dict[str, Any]]]:
        token = self.app.state.service.tokens.issue_tokens(CLINIC_GUID, "clinic-app", "", refresh=False)["access_token"]
        bearer = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=self.base, headers=bearer, trust_env=False, timeout=DEADLINE) as clinic:
            patient = (await clinic.post("fhir/Patient", json=self._patient())).raise_for_status().json()
            made = (
                await clinic.post("fhir/$CreateDiagnosticRequest", json=self._bundle(patient["id"], lines))
            ).raise_for_status()
        kept: dict[str, list[dict[str, Any]]] = {}
        for entry in made.json()["entry"]:
            kept.setdefault(entry["resource"]["resourceType"], []).append(entry["resource"])
        return kept

    def _patient(self) -> dict[str, Any]:
        name = [{"family": "Sample", "given": ["Anna", "Maria"]}]
        return {"resourceType": "Patient", "meta": rights("read"), "name": name, "gender": "female", "birthDate": "1980-02-29"}

    def _bundle(self, patient: str, lines: int) -> dict[str, Any]:
        subject, system = {"reference": f"patient/{patient}"}, f"{self.base}terminology/"
        entries: list[dict[str, Any]] = [
            {
                "resourceType": "Task",
                "meta": rights("read", "updatebody"),
                "status": "requested",
                "code": concept(f"{system}task_type", "OrderProcessingTask"),
            },
            {
                "resourceType": "Specimen",
                "meta": rights("read"),
                "type": concept(f"{system}specimen-type", "108"),
                "subject": subject,
                "collection": {
                    "collectedDateTime": "2026-01-05T07:30:00+00:00",
                    "method": concept(f"{system}treatment_protocol", "fasting"),
                },
                "container": [
                    {
                        "identifier": [{"system": f"{CODES}/labels", "value": "1000000017"}],
                        "type": concept(f"{system}specimen_type", "EDTA"),
                        "specimenQuantity": {"value": 3},
                    }
                ],
                "extension": [{"url": f"{self.base}extra/supportingInfo", "valueString": "a,b"}],
            },
        ]
        for number in range(lines):
            request = {
                "resourceType": "ProcedureRequest",
                "meta": rights("read"),
                "requisition": {"system": "urn:clinic:orders", "value": patient},
                "supportingInfo": [{"identifier": {"system": f"{CODES}/contract", "value": "C-100"}}],
                "status": "active",
                "code": concept(f"{system}nomenclature", f"001.00{number}"),
                "subject": subject,
                "occurrenceDateTime": "2026-01-05T08:00:00+00:00",
                "specimen": [{"reference": "urn:uuid:00000000-0000-4000-8000-000000000001"}],
            }
            task = {
                "resourceType": "Task",
                "meta": rights("read", "updatebody"),
                "status": "requested",
                "basedOn": [{"reference": f"urn:uuid:00000000-0000-4000-8000-{len(entries):012}"}],
                "partOf": [{"reference": "urn:uuid:00000000-0000-4000-8000-000000000000"}],
            }
            entries += [request, task]
        answers = {
            "resourceType": "QuestionnaireResponse",
            "meta": rights("read"),
            "source": subject,
            "status": "completed",
            "subject": {"reference": "urn:uuid:00000000-0000-4000-8000-000000000002"},
            "item": [{"linkId": "1", "text": "Week", "answer": [{"valueInteger": 12}]}],
        }
        listed = [
            {"fullUrl": f"urn:uuid:00000000-0000-4000-8000-{number:012}", "resource": resource}
            for number, resource in enumerate([*entries, answers])
        ]
        return {"resourceType": "Bundle", "type": "collection", "entry": listed}


def rights(*names: str, guid: str = LABORATORY_GUID) -> dict[str, Any]:
    return {"security": [{"system": name, "code": guid} for name in names]}


def concept(system: str, code: str) -> dict[str, Any]:
    return {"coding": [{"system": system, "code": code}]}


def observation(value: str) -> tuple[dict[str, Any], Identifier]:
    identifier = Identifier(system="urn:lab:observations", value=value)
    body = {
        "resourceType": "Observation",
        "meta": rights("read", guid=CLINIC_GUID),
        "status": "final",
        "identifier": [{"system": identifier.system, "value": identifier.value}],
        "code": concept("http://loinc.org", "718-7"),
        "valueQuantity": {"value": 134, "unit": "g/L"},
    }
    return body, identifier


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Any]]:
    running: list[tuple[uvicorn.Server, asyncio.Task[None]]] = []

    async def serve(**changes: Any) -> Service:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        config = SandboxConfig(**changes).resolve_addresses_for("127.0.0.1", listener.getsockname()[1])
        app = create_app(config)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, http="h11"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        running.append((server, task))
        async with asyncio.timeout(DEADLINE):
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
        return Service(app, config)

    yield serve
    for server, task in running:
        server.should_exit = True
        await task


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., ExchangeClient]]:
    opened: list[HttpClient] = []

    def make(service: Service, store: Any = None, oauth: dict[str, Any] = PASSWORD, owner: str = "me", **changes: Any) -> Any:
        settings = ExchangeSettings.model_validate(
            {
                "base_url": service.base,
                "lab_codes_url": CODES,
                "laboratory": LABORATORY_GUID,
                "timeout": 5,
                "read_timeout": 2,
                "connect_timeout": 2,
                "oauth": {"auth_url": service.config.auth_url, **oauth},
                **changes,
            }
        )
        http = HttpClient(http_options(settings))
        opened.append(http)
        return ExchangeClient(settings, http, Authenticator(settings.oauth, http, store or MemoryStore(), Clock(), owner))

    yield make
    for http in opened:
        await http.aclose()


class Clock:
    def now(self) -> datetime:
        return datetime.now(UTC)


async def test_client_reads_everything_of_an_order(start: Any, connect: Any) -> None:
    """The side of the laboratory: the client finds an order, its lines and all resources."""
    service = await start()
    client = connect(service)
    await client.check()
    assert await client.requested_order_tasks() == ()
    order = await service.order(3)
    (order_task,) = await client.requested_order_tasks()
    lines = await client.line_tasks(ResourceId(order_task["id"]))
    assert {line["id"] for line in lines} == {task["id"] for task in order["Task"]} - {order_task["id"]}
    patient = order["ProcedureRequest"][0]["subject"]["reference"].removeprefix("patient/")
    read = [(kind, each["id"]) for kind in ("ProcedureRequest", "Specimen") for each in order[kind]]
    for kind, found in [*read, ("Patient", patient)]:
        assert (await client.read(kind, ResourceId(found))).version == "1"
    (answers,) = await client.questionnaire_responses([ResourceId(each["id"]) for each in order["ProcedureRequest"]])
    assert answers["item"][0]["answer"] == [{"valueInteger": 12}]
    assert len(await client.contract_ids("C-100")) == 1
    assert await client.contract_ids("C-999") == ()


async def test_task_replaced_by_version_keeps_access_rights(start: Any, connect: Any) -> None:
    service = await start()
    await service.order()
    for how in ("as_read", "short"):
        client = connect(service, put_security=how)
        (found,) = await client.requested_order_tasks()
        task = await client.read("Task", ResourceId(found["id"]))
        changed = await client.update("Task", task.id, {**task.body, "priority": "urgent"}, version=task.version)
        assert int(changed.version) == int(task.version) + 1
        assert changed.body["meta"]["security"] == task.body["meta"]["security"]
        with pytest.raises(errors.StaleVersion):
            await client.update("Task", task.id, task.body, version=task.version)
        assert (await client.read("Task", task.id)).version == changed.version


@pytest.mark.parametrize("stale", [409, 412])
async def test_stale_version_detected_by_either_status_code(start: Any, connect: Any, stale: int) -> None:
    service = await start(rules=RuleSettings(stale_code=stale))
    await service.order()
    client = connect(service)
    (task,) = await client.requested_order_tasks()
    await client.update("Task", ResourceId(task["id"]), task, version="1")
    for version in ("1", "99"):
        with pytest.raises(errors.StaleVersion):
            await client.update("Task", ResourceId(task["id"]), task, version=version)


async def test_upload_is_idempotent_and_found_by_identifier(start: Any, connect: Any) -> None:
    client = connect(await start())
    body, identifier = observation("odd | value, 1+1=2 & é")
    first = await client.create("Observation", body, if_none_exist=identifier)
    again = await client.create("Observation", body, if_none_exist=identifier)
    assert (first.created, again.created, again.id) == (True, False, first.id)
    assert [each.id for each in await client.find("Observation", identifier)] == [first.id]
    assert await client.find("Observation", Identifier(system="urn:lab:observations", value="other")) == ()
    await client.create("Observation", body)
    with pytest.raises(errors.MultipleMatches):
        await client.create("Observation", body, if_none_exist=identifier)


async def test_document_can_be_uploaded(start: Any, connect: Any) -> None:
    client = connect(await start())
    saved = await client.upload_document(b"%PDF-1.4\n%%EOF\n", "application/pdf", readers=(CLINIC_GUID,))
    assert saved.id
    assert saved.created


async def test_lost_response_resolved_by_verification(start: Any, connect: Any) -> None:
    service = await start()
    client = connect(service)
    body, identifier = observation("lost")
    await client.check()
    service.faults(FaultRule(kind="lost_reply", route="POST /fhir/Observation", count=1))
    with pytest.raises(errors.OutcomeUnknown):
        await client.create("Observation", body, if_none_exist=identifier)
    (found,) = await client.find("Observation", identifier)
    assert (await client.create("Observation", body, if_none_exist=identifier)).id == found.id


@pytest.mark.parametrize("kind", ["reset", "truncate", "html", "status", "small_pages", "repeated_rows"])
async def test_poll_survives_network_faults(start: Any, connect: Any, kind: Any) -> None:
    service = await start()
    for _ in range(3):
        await service.order(1)
    client = connect(service)
    await client.check()
    service.faults(FaultRule(kind=kind, route="GET /fhir/Task", count=None if kind in {"small_pages", "repeated_rows"} else 1))
    assert len({task["id"] for task in await client.requested_order_tasks()}) == 3
    assert service.app.state.service.faults.fired


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"kind": "reset"}, errors.OutcomeUnknown),
        ({"kind": "truncate"}, errors.OutcomeUnknown),
        ({"kind": "html"}, errors.InvalidResponse),
        ({"kind": "status", "status": 500}, errors.OutcomeUnknown),
        ({"kind": "status", "status": 503, "retry_after": 30}, errors.ServiceUnavailable),
        ({"kind": "status", "status": 429, "retry_after": 30, "retry_after_form": "date"}, errors.ServiceUnavailable),
    ],
)
async def test_failed_write_states_possible_outcome(start: Any, connect: Any, rule: dict[str, Any], expected: type) -> None:
    service = await start()
    client = connect(service)
    await client.check()
    service.faults(FaultRule(route="POST /fhir/Observation", **rule))
    body, identifier = observation("x")
    with pytest.raises(errors.Failure) as caught:
        await client.create("Observation", body, if_none_exist=identifier)
    assert type(caught.value) is expected
    assert len(service.app.state.service.faults.fired) == 1
    if "retry_after" in rule:
        assert 25 < caught.value.retry_after <= 31  # a date has whole seconds


async def test_foreign_next_link_rejected(start: Any, connect: Any) -> None:
    service = await start()
    await service.order(1)
    service.faults(FaultRule(kind="foreign_next", route="GET /fhir/Task"))
    client = connect(service)
    assert len(await client.requested_order_tasks()) == 1
    assert isinstance(client.order_tasks_cut_off(), errors.ForeignLink)


async def test_unsupported_response_search_returns_none(start: Any, connect: Any) -> None:
    service = await start(rules=RuleSettings(questionnaire_search=False))
    assert await connect(service).questionnaire_responses([ResourceId("x")]) is None


async def test_unreadable_resource_raises_not_readable(start: Any, connect: Any) -> None:
    with pytest.raises(errors.ResourceNotReadable):
        await connect(await start()).read("Patient", ResourceId("nobody"))


async def test_expired_and_revoked_tokens_renewed(start: Any, connect: Any) -> None:
    service = await start()
    client = connect(service)
    await client.check()
    for kind in ("expire_token", "revoke_token"):
        service.faults(FaultRule(kind=kind, count=1))
        await client.check()
        assert service.app.state.service.faults.fired


@pytest.mark.parametrize(
    "oauth",
    [
        {"grant": "basic", "username": "laboratory", "password": "demo-laboratory-password"},
        {"grant": "client_credentials", **LAB},
    ],
)
async def test_noninteractive_grants_work(start: Any, connect: Any, oauth: dict[str, Any]) -> None:
    await connect(await start(tokens=TokenSettings(allow_basic=True)), oauth=oauth).check()


@pytest.mark.parametrize("oauth", [{**PASSWORD, "password": "wrong"}, {**PASSWORD, "client_secret": "wrong"}, CODE])
async def test_wrong_credentials_rejected(start: Any, connect: Any, oauth: dict[str, Any]) -> None:
    with pytest.raises(errors.AuthenticationRequired):
        await connect(await start(), oauth=oauth).check()


async def test_wrong_basic_password_requires_authentication(start: Any, connect: Any) -> None:
    with pytest.raises(errors.AuthenticationRequired):
        await connect(await start(), oauth={"grant": "basic", "username": "laboratory", "password": "wrong"}).check()


async def a_person_signs_in(settings: Any, tokens: Authenticator) -> None:
    sign_in = browser_login.start_login(settings)
    query = dict(parse_qsl(urlsplit(sign_in.authorization_url).query))
    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as browser:
        assert (await browser.get(sign_in.authorization_url)).status_code == 200
        fields = {**query, "login": "laboratory", "password": "demo-laboratory-password"}
        back = await browser.post(sign_in.authorization_url.partition("?")[0], data=fields)
    assert back.status_code == 302
    await browser_login.finish_login(back.headers["location"], sign_in, tokens)


PROCESS = """
import asyncio, json, sys
from datetime import UTC, datetime
from lab_agent.crypto import Cipher
from lab_agent.exchange.authenticator import Authenticator, Credential
from lab_agent.http_client import HttpClient, HttpOptions
from lab_agent.settings.exchange import OAuthSettings
from lab_agent.store.unit_of_work import SqlStore

class Clock:
    def now(self):
        return datetime.now(UTC)

async def main(given):
    store = SqlStore(given["url"], Cipher(given["key"]))
    async with HttpClient(HttpOptions(timeout=10)) as http:
        tokens = Authenticator(OAuthSettings.model_validate(given["oauth"]), http, store, Clock(), given["owner"])
        rejected = await tokens.credential()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print((await tokens.renew_credential(rejected)).generation, flush=True)
    await store.close()

asyncio.run(main(json.loads(sys.argv[1])))
"""


async def test_only_one_of_two_processes_refreshes(start: Any, connect: Any, tmp_path: Path) -> None:
    """The service rotates refresh tokens, and ends the sign-in where an old one is shown again."""
    service = await start(tokens=TokenSettings(require_pkce=True, rotate_refresh=True, reuse_revokes=True, send_expires_in=False))
    url, key = f"sqlite:///{tmp_path / 'lab.db'}", new_key()
    upgrade(url)
    store = SqlStore(url, Cipher(key))
    client = connect(service, store, oauth=CODE, owner="command")
    with pytest.raises(errors.AuthenticationRequired):
        await client.check()
    await a_person_signs_in(client._settings.oauth, client._requests._authenticator)
    service.faults(FaultRule(kind="latency", route="POST /connect/token", seconds=0.5))
    oauth = {"auth_url": service.config.auth_url, **CODE}
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROCESS,
            json.dumps({"url": url, "key": key, "oauth": oauth, "owner": f"worker-{number}"}),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for number in range(2)
    ]
    async with asyncio.timeout(DEADLINE):
        assert [(await each.stdout.readuntil(b"ready\n"))[-6:] for each in processes] == [b"ready\n"] * 2  # type: ignore[union-attr]
        outputs = await asyncio.gather(*(each.communicate(b"go\n") for each in processes))
    assert [output.split()[-1] for output, _ in outputs] == [b"2", b"2"]
    assert len(service.app.state.service.faults.fired) == 1
    await client.check()
    await store.close()

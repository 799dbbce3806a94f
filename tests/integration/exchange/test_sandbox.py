"""The client against the exchange service in a box, over real sockets: an independent reading of the interface."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
import uvicorn

from lab_agent import errors, exact_json
from lab_agent.bootstrap import SystemClock
from lab_agent.domain.ids import ResourceId
from lab_agent.domain.values import Identifier
from lab_agent.exchange import browser_login
from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient, http_options
from lab_agent.http_client import HttpClient
from lab_agent.settings.exchange import ExchangeSettings
from lab_sandbox.app import create_app
from lab_sandbox.config import CLINIC_GUID, LABORATORY_GUID, RuleSettings, SandboxConfig, TokenSettings
from lab_sandbox.faults.plan import FaultPlan, FaultRule
from tests.harness.clock import DEADLINE
from tests.harness.orders import BASE, templates
from tests.integration.exchange.conftest import FakeTokenStore

ORDERED_AT = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
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

    async def order(self) -> dict[str, list[dict[str, Any]]]:
        """Place an order with answers; its resources by type."""
        order = next(each for each in templates(ORDERED_AT) if "QuestionnaireResponse" in str(each.bundle))
        token = self.app.state.service.tokens.issue_tokens(CLINIC_GUID, "clinic-app", "", refresh=False)["access_token"]
        bearer = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=self.base, headers=bearer, trust_env=False, timeout=DEADLINE) as clinic:
            patient = (await clinic.post("fhir/Patient", json=order.patient)).raise_for_status().json()["id"]
            bundle = exact_json.dumps(order.bundle).decode().replace("patient/PATIENT", f"patient/{patient}")
            made = await clinic.post("fhir/$CreateDiagnosticRequest", json=json.loads(bundle.replace(BASE, self.base)))
        kept: dict[str, list[dict[str, Any]]] = {}
        for entry in made.raise_for_status().json()["entry"]:
            kept.setdefault(entry["resource"]["resourceType"], []).append(entry["resource"])
        return kept


def observation(value: str) -> tuple[dict[str, Any], Identifier]:
    identifier = Identifier(system="urn:lab:observations", value=value)
    body = {
        "resourceType": "Observation",
        "meta": {"security": [{"system": "read", "code": CLINIC_GUID}]},
        "status": "final",
        "identifier": [{"system": identifier.system, "value": identifier.value}],
        "code": {"coding": [{"system": "http://loinc.org", "code": "718-7"}]},
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

    def make(service: Service, oauth: dict[str, Any] = PASSWORD, **changes: Any) -> Any:
        given = {"base_url": service.base, "lab_codes_url": CODES, "laboratory": LABORATORY_GUID}
        given |= {"timeout": 5, "read_timeout": 2, "connect_timeout": 2, "oauth": {"auth_url": service.config.auth_url, **oauth}}
        settings = ExchangeSettings.model_validate({**given, **changes})
        opened.append(HttpClient(http_options(settings)))
        tokens = Authenticator(settings.oauth, opened[-1], FakeTokenStore(), SystemClock(), "me")
        return ExchangeClient(settings, opened[-1], tokens)

    yield make
    for http in opened:
        await http.aclose()


async def test_client_reads_everything_of_an_order(start: Any, connect: Any) -> None:
    """The side of the laboratory: the client finds an order, its lines and all resources."""
    service = await start()
    client = connect(service)
    await client.check()
    assert await client.requested_order_tasks() == ()
    order = await service.order()
    (order_task,) = await client.requested_order_tasks()
    lines = await client.line_tasks(ResourceId(order_task["id"]))
    assert {line["id"] for line in lines} == {task["id"] for task in order["Task"]} - {order_task["id"]}
    patient = order["ProcedureRequest"][0]["subject"]["reference"].removeprefix("patient/")
    read = [(kind, each["id"]) for kind in ("ProcedureRequest", "Specimen") for each in order[kind]]
    for kind, found in [*read, ("Patient", patient)]:
        assert (await client.read(kind, ResourceId(found))).version == "1"
    (answers,) = await client.questionnaire_responses([ResourceId(each["id"]) for each in order["ProcedureRequest"]])
    assert [answers] == order["QuestionnaireResponse"]
    assert len(await client.contract_ids("C-100")) == 1
    assert await client.contract_ids("C-999") == ()


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


@pytest.mark.parametrize("kind", ["reset", "truncate", "html", "status", "small_pages", "repeated_rows"])
async def test_poll_survives_network_faults(start: Any, connect: Any, kind: Any) -> None:
    service = await start()
    for _ in range(3):
        await service.order()
    client = connect(service)
    await client.check()
    service.faults(FaultRule(kind=kind, route="GET /fhir/Task", count=None if kind in {"small_pages", "repeated_rows"} else 1))
    assert len({task["id"] for task in await client.requested_order_tasks()}) == 3
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


async def test_person_signs_in_and_token_is_refreshed(start: Any, connect: Any) -> None:
    """The service rotates refresh tokens, and ends the sign-in where an old one is shown again."""
    service = await start(tokens=TokenSettings(require_pkce=True, rotate_refresh=True, reuse_revokes=True, send_expires_in=False))
    client = connect(service, oauth=CODE)
    sign_in = browser_login.start_login(client._settings.oauth)
    query = dict(parse_qsl(urlsplit(sign_in.authorization_url).query))
    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as browser:
        assert (await browser.get(sign_in.authorization_url)).status_code == 200
        fields = {**query, "login": "laboratory", "password": "demo-laboratory-password"}
        back = await browser.post(sign_in.authorization_url.partition("?")[0], data=fields)
    assert back.status_code == 302
    await browser_login.finish_login(back.headers["location"], sign_in, client._requests._authenticator)
    await client.check()
    with_password = connect(service)
    await with_password.check()
    for one, kind in ((client, "expire_token"), (with_password, "expire_token"), (with_password, "revoke_token")):
        service.faults(FaultRule(kind=kind, count=1))
        await one.check()
        assert service.app.state.service.faults.fired

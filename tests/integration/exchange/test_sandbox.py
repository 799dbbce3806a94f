"""The client against the exchange service in a box, over real sockets: an independent reading of the interface."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
import uvicorn

from lab_agent.bootstrap import SystemClock
from lab_agent.exchange import browser_login
from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient, http_options
from lab_agent.settings.exchange import ExchangeSettings
from lab_agent.shared import errors
from lab_agent.shared.http_client import HttpClient
from lab_agent.shared.ids import ResourceId
from lab_agent.shared.values import Identifier
from tests.harness.clock import DEADLINE
from tests.integration.exchange.conftest import FakeTokenStore
from tests.integration.lab_sandbox.world import BASE, LABORATORY, SandboxWorld, close, make_world, observation
from tests.integration.lab_sandbox.world import LAB as LAB_CODES

LAB = {"client_id": "lab-agent", "client_secret": "secret-lab"}
PASSWORD = {"grant": "password", "username": "laboratory", "password": "pw-lab", **LAB}
CODE = {"grant": "authorization_code", "redirect_uri": "http://127.0.0.1:9/lab-callback", **LAB}


def address(service: SandboxWorld) -> str:
    return str(service.app.state.service.config.base_url)


async def place_order(service: SandboxWorld) -> dict[str, list[dict[str, Any]]]:
    """Its resources by type, with answers."""

    def respelled(bundle: dict[str, Any]) -> None:
        bundle |= json.loads(json.dumps(bundle).replace(BASE, address(service)))

    return await service.created_order(change=respelled)


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Any]]:
    running: list[tuple[SandboxWorld, uvicorn.Server, asyncio.Task[None]]] = []

    async def serve(**changes: Any) -> SandboxWorld:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        world = make_world(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/", **changes)
        server = uvicorn.Server(uvicorn.Config(world.app, log_level="error", access_log=False, http="h11"))
        running.append((world, server, asyncio.create_task(server.serve(sockets=[listener]))))
        async with asyncio.timeout(DEADLINE):
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
        return world

    yield serve
    for world, server, task in running:
        server.should_exit = True
        await task
        await close(world)


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., ExchangeClient]]:
    opened: list[HttpClient] = []

    def make(service: SandboxWorld, oauth: dict[str, Any] = PASSWORD) -> Any:
        base = address(service)
        given = {"base_url": base, "lab_codes_url": LAB_CODES, "laboratory": LABORATORY, "oauth": {"auth_url": base, **oauth}}
        settings = ExchangeSettings.model_validate({**given, "timeout": 5, "read_timeout": 2, "connect_timeout": 2})
        opened.append(HttpClient(http_options(settings)))
        tokens = Authenticator(settings.oauth, opened[-1], FakeTokenStore(), SystemClock(), "me")
        return ExchangeClient(settings, opened[-1], tokens)

    yield make
    for http in opened:
        await http.aclose()


async def test_client_reads_everything_of_an_order(start: Any, connect: Any) -> None:
    service = await start()
    client = connect(service)
    await client.check()
    assert await client.requested_order_tasks() == ()
    order = await place_order(service)
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
    service = await start(rules={"stale_code": stale})
    await place_order(service)
    client = connect(service)
    (task,) = await client.requested_order_tasks()
    await client.update("Task", ResourceId(task["id"]), task, version="1")
    for version in ("1", "99"):
        with pytest.raises(errors.StaleVersion):
            await client.update("Task", ResourceId(task["id"]), task, version=version)


async def test_upload_is_idempotent_and_found_by_identifier(start: Any, connect: Any) -> None:
    client = connect(await start())
    identifier = Identifier(system="urn:lab:observations", value="odd | value, 1+1=2 & é")
    body = observation(identifier=[{"system": identifier.system, "value": identifier.value}])
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
        await place_order(service)
    client = connect(service)
    await client.check()
    count = None if kind in {"small_pages", "repeated_rows"} else 1
    service.activate({"kind": kind, "route": "GET /fhir/Task", "count": count})
    assert len({task["id"] for task in await client.requested_order_tasks()}) == 3
    assert service.app.state.service.faults.fired


@pytest.mark.parametrize(
    "oauth",
    [
        {"grant": "basic", "username": "laboratory", "password": "pw-lab"},
        {"grant": "client_credentials", **LAB},
    ],
)
async def test_noninteractive_grants_work(start: Any, connect: Any, oauth: dict[str, Any]) -> None:
    await connect(await start(tokens={"allow_basic": True}), oauth=oauth).check()


async def test_person_signs_in_and_token_is_refreshed(start: Any, connect: Any) -> None:
    """The service rotates refresh tokens, and ends the sign-in where an old one is shown again."""
    rules = {"require_pkce": True, "rotate_refresh": True, "reuse_revokes": True, "send_expires_in": False}
    service = await start(tokens=rules)
    client = connect(service, oauth=CODE)
    sign_in = browser_login.start_login(client._settings.oauth)
    query = dict(parse_qsl(urlsplit(sign_in.authorization_url).query))
    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as browser:
        assert (await browser.get(sign_in.authorization_url)).status_code == 200
        fields = {**query, "login": "laboratory", "password": "pw-lab"}
        back = await browser.post(sign_in.authorization_url.partition("?")[0], data=fields)
    assert back.status_code == 302
    await browser_login.finish_login(back.headers["location"], sign_in, client._requests._authenticator)
    await client.check()
    with_password = connect(service)
    await with_password.check()
    for one, kind in ((client, "expire_token"), (with_password, "expire_token"), (with_password, "revoke_token")):
        service.activate({"kind": kind, "count": 1})
        await one.check()
        assert service.app.state.service.faults.fired

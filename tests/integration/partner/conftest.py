"""The sandbox as an in-process ASGI application, with a laboratory that answers from the sample catalogue."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lab_agent import exact_json
from lab_agent.catalogue import basket, preanalytics, questionnaire
from lab_agent.catalogue.nomenclature import nomenclature, turnarounds
from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_sandbox.app import create_app
from lab_sandbox.config import CLINIC_GUID, LABORATORY_GUID, SandboxConfig
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.client import PartnerClient, open_partner_client
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.order_bundle import LabelSequence
from tests.harness.paths import CATALOGUE

BASE = "http://service.test:8480/"


def now() -> datetime:
    return datetime.now(UTC)


def laboratory_app() -> Starlette:
    catalogue = load_catalogue(CATALOGUE)

    def json(value: object) -> Response:
        return Response(exact_json.dumps(value), media_type="application/json")

    async def names(request: Request) -> Response:
        return json(nomenclature(catalogue.contract(request.query_params["contract"])))

    async def eta(request: Request) -> Response:
        return json(turnarounds(catalogue.contract(request.query_params["contract"]), catalogue.notices, now()))

    async def questions(request: Request) -> Response:
        requested = basket.read_basket(exact_json.loads(await request.body()), catalogue.contracts, 100)
        return json(questionnaire.build_questionnaire(catalogue, [line.item for line in requested.lines]).as_json())

    async def tubes(request: Request) -> Response:
        requested = basket.read_basket(exact_json.loads(await request.body()), catalogue.contracts, 100)
        answer = preanalytics.calculate(catalogue, requested.lines)
        return json(answer.as_json([None] * len(answer.tubes)))

    return Starlette(
        routes=[
            Route("/nomenclature", names),
            Route("/eta", eta),
            Route("/questionnaire", questions, methods=["POST"]),
            Route("/preanalytics", tubes, methods=["POST"]),
        ]
    )


@pytest.fixture
def service_config() -> SandboxConfig:
    return SandboxConfig(base_url=BASE)


@pytest.fixture
def laboratory() -> Callable[[], httpx.AsyncBaseTransport]:
    return lambda: httpx.ASGITransport(laboratory_app())


@pytest.fixture
def transport(service_config: SandboxConfig, laboratory: Callable[[], httpx.AsyncBaseTransport]) -> httpx.ASGITransport:
    return httpx.ASGITransport(create_app(service_config, transport=laboratory()))


@pytest.fixture
def account() -> PartnerAccount:
    return PartnerAccount(
        base_url=BASE,
        auth_url=BASE.rstrip("/"),
        login="clinic",
        password="demo-clinic-password",
        client_id="clinic-app",
        client_secret="demo-clinic-secret",
        redirect_uri="http://127.0.0.1:8484/callback",
        guid=CLINIC_GUID,
        laboratory=LABORATORY_GUID,
        contract="C-100",
        lab_codes_url="http://codes.lab.example",
        second_labels_system="http://codes.lab.example/second-labels",
    )


@pytest.fixture
async def client(account: PartnerAccount, transport: httpx.ASGITransport) -> AsyncIterator[PartnerClient]:
    async with open_partner_client(account, transport=transport) as signed_in:
        yield signed_in


@pytest.fixture
def clinic(client: PartnerClient) -> Clinic:
    return Clinic(client, LabelSequence(), now, uuid.uuid4().hex[:8])

"""The sandbox as an in-process ASGI application, with a laboratory that answers from the sample catalogue."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx
import pytest

from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_agent.settings.api import ApiSettings
from lab_agent.store.crypto import hash_token
from lab_api.app import create_app as create_api
from lab_api.response_cache import CurrentCatalogue
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


@pytest.fixture
def laboratory() -> httpx.ASGITransport:
    token = {"name": "exchange", "sha256": hash_token("demo-lab-api-token")}
    settings = ApiSettings.model_validate({"tokens": [token], "rate": 10_000, "burst": 10_000})
    return httpx.ASGITransport(create_api(settings, CurrentCatalogue(load_catalogue(CATALOGUE), now)))


@pytest.fixture
def transport(laboratory: httpx.ASGITransport) -> httpx.ASGITransport:
    return httpx.ASGITransport(create_app(SandboxConfig(base_url=BASE), transport=laboratory))


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

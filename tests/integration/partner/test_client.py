"""Account, sign-in and retries: where a token must not be sent, which requests are retried, and which never."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lab_sandbox.app import create_app
from lab_sandbox.config import SandboxConfig, TokenSettings
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.account_file import read_account, sandbox_account
from lab_sandbox.partner.client import can_retry, open_partner_client
from lab_sandbox.partner.errors import PartnerError, ServiceRefusedError, ServiceUnreachableError

PATIENT = {
    "resourceType": "Patient",
    "name": [{"family": "0123456789", "given": ["-", "-"]}],
    "gender": "female",
    "birthDate": "1980-01-02",
}


@pytest.mark.parametrize("grant", ["password", "code"])
async def test_grant_gives_working_client_or_tells_wrong_password(account: PartnerAccount, transport: httpx.ASGITransport, grant):
    async with open_partner_client(account, grant=grant, transport=transport) as client:
        assert (await client.create_patient(PATIENT))["id"]
    with pytest.raises(ServiceRefusedError) as rejected:
        async with open_partner_client(replace(account, password="wrong"), grant=grant, transport=transport):
            pytest.fail("signed in with a wrong password")
    assert rejected.value.status in {400, 401}


async def test_concurrent_requests_with_expired_token_refresh_once(account: PartnerAccount):
    times = [datetime(2026, 3, 4, 12, 0, tzinfo=UTC)]
    rules = TokenSettings(lifetime_seconds=60, rotate_refresh=True, reuse_revokes=True, send_expires_in=False)
    transport = httpx.ASGITransport(create_app(SandboxConfig(base_url=account.base_url, tokens=rules), clock=lambda: times[-1]))
    async with open_partner_client(account, transport=transport) as client:
        times.append(times[-1] + timedelta(seconds=120))
        created = await asyncio.gather(*(client.create_patient(PATIENT) for _ in range(20)))
    assert len({one["id"] for one in created}) == 20


async def test_token_sent_to_service_origin_only(account: PartnerAccount):
    received: dict[str, str | None] = {}

    async def token(_request: Request) -> Response:
        return Response(b'{"access_token":"secret"}', media_type="application/json")

    async def document(request: Request) -> Response:
        received[request.url.netloc] = request.headers.get("authorization")
        return Response(b"%PDF-1.4", media_type="application/pdf")

    app = Starlette(routes=[Route("/connect/token", token, methods=["POST"]), Route("/{rest:path}", document)])
    async with open_partner_client(account, transport=httpx.ASGITransport(app)) as client:
        await client.download_document("fhir/Binary/1")
        await client.download_document("/fhir/Binary/1")
        await client.download_document("http://laboratory.test/documents/unguessable")
    assert received == {"service.test:8480": "Bearer secret", "laboratory.test": None}


@pytest.mark.parametrize(
    ("method", "outcome", "retry"),
    [
        *(("GET", 429, True), ("POST", 429, True), ("POST", 503, True), ("GET", 500, True), ("POST", 500, False)),
        *(("POST", 504, False), ("GET", 404, False), ("PUT", 412, False), ("GET", 200, False)),
        *(("GET", httpx.ReadTimeout("lost"), True), ("POST", httpx.ReadTimeout("lost"), False)),
    ],
)
def test_only_harmless_requests_are_retried(method: str, outcome: int | httpx.ReadTimeout, retry: bool):
    assert can_retry(method, httpx.Response(outcome) if isinstance(outcome, int) else outcome) is retry


async def test_order_with_lost_response_not_sent_twice(account: PartnerAccount):
    orders = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/connect/token"):
            return httpx.Response(200, json={"access_token": "t"})
        orders.append(request)
        raise httpx.ReadError("reset")

    async with open_partner_client(account, transport=httpx.MockTransport(answer)) as client:
        with pytest.raises(ServiceUnreachableError, match="CreateDiagnosticRequest: ReadError"):
            await client.create_order({"resourceType": "Bundle"})
    assert len(orders) == 1


def write(folder: Path, account: PartnerAccount, base_url: str, **more: str) -> Path:
    given = {**asdict(account), "base_url": base_url, "auth_url": "https://login.stage.example/", **more}
    file = folder / "clinic.toml"
    file.write_text("\n".join(f"{name} = {value!r}" for name, value in given.items() if name != "own_systems"))
    return file


def test_account_is_read_of_a_test_environment_only(tmp_path: Path, account: PartnerAccount) -> None:
    file = write(tmp_path, account, "https://stage.example/api")
    file.write_text(f"{file.read_text()}\ntest_environment = true\n")
    read = read_account(file)
    assert (read.base_url, read.auth_url) == ("https://stage.example/api/", "https://login.stage.example")
    with pytest.raises(PartnerError, match="set test_environment = true"):
        read_account(write(tmp_path, account, "https://production.example/"))
    assert read_account(write(tmp_path, account, "http://127.0.0.1:8480")).base_url == "http://127.0.0.1:8480/"
    with pytest.raises(PartnerError, match=r"clinic\.toml: pasword: extra"):
        read_account(write(tmp_path, account, "http://127.0.0.1/", pasword="x"))


def test_account_of_the_sandbox_is_that_of_its_contract() -> None:
    assert sandbox_account(SandboxConfig(), "C-200").contract == "C-200"
    with pytest.raises(PartnerError, match="no contract C-300, only C-100, C-200"):
        sandbox_account(SandboxConfig(), "C-300")

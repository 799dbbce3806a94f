"""Sign-in: both grants, the refresh, and where a token must not be sent."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lab_sandbox.app import create_app
from lab_sandbox.config import SandboxConfig, TokenSettings
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.client import open_partner_client
from lab_sandbox.partner.errors import ServiceRefusedError, ServiceUnreachableError
from lab_sandbox.partner.login import LoginError, _parse_callback, parse_form

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


async def test_unreachable_service_reported(account: PartnerAccount):
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route", request=request)

    with pytest.raises(ServiceUnreachableError, match="ConnectError"):
        async with open_partner_client(account, transport=httpx.MockTransport(refuse)):
            pytest.fail("signed in without a service")


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


def test_login_form_filled_by_field_type():
    page = """<p><form action="../in?x=1" method="POST"><input type=hidden name=csrf value="a&amp;b"><input name=who>
    <input type="password" name="secret"><input type=email name=mail><button name="go" value="yes">Sign in</button>
    <button name="go" value="no">Cancel</button></form><form><input name=other></form>"""
    form = parse_form(page, "http://service.test/connect/authorize")
    assert form is not None
    assert form.action == "http://service.test/in?x=1"
    assert form.method == "post"
    filled = form.fill("clinic", "word")
    assert filled == {"csrf": "a&b", "who": "clinic", "secret": "word", "mail": "clinic", "go": "yes"}
    assert parse_form("<p>Down for maintenance</p>", "http://service.test/") is None


@pytest.mark.parametrize(
    ("callback", "text"),
    [
        ("http://clinic/cb?code=1&state=other", "another state"),
        ("http://clinic/cb?code=1", "another state"),
        ("http://clinic/cb?error=access_denied&state=mine", "access_denied"),
    ],
)
def test_foreign_callback_url_rejected(callback: str, text: str):
    with pytest.raises(LoginError, match=text):
        _parse_callback(callback, "mine")

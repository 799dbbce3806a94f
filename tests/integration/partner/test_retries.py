"""Retries: which requests are retried, how soon, and which never."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.client import can_retry, open_partner_client, retry_delay
from lab_sandbox.partner.errors import ServiceRefusedError, ServiceUnreachableError

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


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


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("Wed, 04 Mar 2026 12:00:05 GMT", 5.0), ("Wed, 04 Mar 2026 11:00:00 GMT", 0.0), ("soon", 0.5), ("-1", 0.5)],
)
def test_retry_waits_as_service_asks(header: str, seconds: float):
    assert retry_delay(0.5, httpx.Response(503, headers={"Retry-After": header}), NOW) == seconds


class ScriptedService:
    """A service that gives these responses after the sign-in."""

    def __init__(self, *script: httpx.Response | Exception) -> None:
        self.calls = 0
        self._script: Iterator[httpx.Response | Exception] = iter(script)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/connect/token"):
            return httpx.Response(200, json={"access_token": "t"})
        self.calls += 1
        answer = next(self._script)
        if isinstance(answer, Exception):
            raise answer
        return answer


BUSY = httpx.Response(503, headers={"Retry-After": "0"})


LONG = httpx.Response(429, headers={"Retry-After": "3600"})


@pytest.mark.parametrize(
    ("script", "error", "calls"),
    [
        ((BUSY, httpx.ConnectError("unreachable"), httpx.Response(200, json=[])), None, 3),
        ((BUSY, BUSY, BUSY, BUSY), "503", 4),
        ((LONG,), "429", 1),
    ],
    ids=["retried", "given up", "not waited for"],
)
async def test_busy_service_is_asked_again_within_bounds(account: PartnerAccount, script: Any, error: str | None, calls: int):
    service = ScriptedService(*script)
    async with open_partner_client(account, transport=httpx.MockTransport(service)) as client:
        if error is None:
            assert await client.eta() == []
        else:
            with pytest.raises(ServiceRefusedError, match=error):
                await client.eta()
    assert service.calls == calls


async def test_order_with_lost_response_not_sent_twice(account: PartnerAccount):
    service = ScriptedService(httpx.ReadError("reset"))
    async with open_partner_client(account, transport=httpx.MockTransport(service)) as client:
        with pytest.raises(ServiceUnreachableError, match="CreateDiagnosticRequest: ReadError"):
            await client.create_order({"resourceType": "Bundle"})
    assert service.calls == 1

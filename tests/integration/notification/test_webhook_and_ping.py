"""Webhooks and the dead man's ping, as a real receiver on this machine gets them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog

from lab_agent.operations.notification.channel import NotificationNotSent
from lab_agent.operations.notification.dead_man import DeadManPing
from lab_agent.operations.notification.webhook import WebhookChannel
from lab_agent.settings.notify import PingSettings, WebhookSettings
from tests.harness.clock import VirtualClock
from tests.harness.notifications import NOW, make_item, make_message

SECRET = b"a secret of at least 24 bytes"


@dataclass
class Receiver:
    """Keeps requests; answers each with the next of `answers`, the last one again and again."""

    answers: list[str] = field(default_factory=lambda: ["200 OK"])
    port: int = 0
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/our-secret-path"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:]) if name}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append((head[0], headers, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def receiving(*answers: str) -> AsyncIterator[Receiver]:
    receiver = Receiver(list(answers) or ["200 OK"])
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    yield receiver
    server.close()


def make_channel(url: str, **fields: Any) -> WebhookChannel:
    settings = WebhookSettings.model_validate({"url": url, "timeout": 5, **fields})
    return WebhookChannel("webhook.chat", settings, VirtualClock(NOW))


async def test_signature_is_that_of_standard_webhooks() -> None:
    async with receiving() as receiver:
        secret = f"whsec_{base64.b64encode(SECRET).decode()}"
        assert await make_channel(receiver.url, secret=secret).send(make_message(make_item())) == ""
    ((line, headers, body),) = receiver.requests
    assert line == "POST /hooks/our-secret-path HTTP/1.1"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert int(headers["webhook-timestamp"]) == int(NOW.timestamp())
    assert json.loads(body)["conditions"][0]["condition"] == "exchange.unavailable"
    assert not headers.keys() & {"authorization", "cookie"}


async def test_redirect_is_not_followed() -> None:
    async with receiving() as other, receiving(f"302 Found\r\nLocation: {other.url}") as receiver:
        with pytest.raises(NotificationNotSent, match="302"):
            await make_channel(receiver.url).send(make_message(make_item()))
    assert other.requests == []


@pytest.mark.parametrize(
    ("answer", "reason", "wait"),
    [
        ("404 Not Found", "does not know the address", None),
        ("429 Too Many\r\nRetry-After: 120", "send less often", 120.0),
        ("500 Oops", "does not take the notification", None),
    ],
)
async def test_refusal_names_the_origin_and_not_the_path(answer: str, reason: str, wait: float | None) -> None:
    async with receiving(answer) as receiver:
        with pytest.raises(NotificationNotSent, match=reason) as caught:
            await make_channel(receiver.url).send(make_message(make_item()))
        with pytest.raises(NotificationNotSent) as unreachable:
            await make_channel("http://127.0.0.1:1/hooks/our-secret-path").send(make_message(make_item()))
    assert caught.value.retry_after == wait
    assert "127.0.0.1:1" in str(unreachable.value)
    assert "our-secret-path" not in f"{caught.value} {unreachable.value}"


async def test_ping_calls_while_all_is_well_and_says_once_that_it_cannot() -> None:
    health = [True]
    async with receiving("200 OK", "503 Oops", "503 Oops", "200 OK") as receiver:
        settings = PingSettings.model_validate({"url": receiver.url, "fail_url": f"{receiver.url}/fail"})
        ping = DeadManPing(settings, lambda: health[0])
        with structlog.testing.capture_logs() as logged:
            for healthy in (True, True, True, False):
                health[0] = healthy
                await ping.run()
        await DeadManPing(PingSettings.model_validate({"url": receiver.url}), lambda: False).run()
        await DeadManPing(PingSettings(), lambda: True).run()
    called = [line.split()[1].removeprefix("/hooks/our-secret-path") for line, _, _ in receiver.requests]
    assert called == ["", "", "", "/fail"]
    assert [each["action"] for each in logged] == ["ping_failed"]
    assert "our-secret-path" not in str(logged)

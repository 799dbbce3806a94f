"""A proxy before the exchange service that keeps the body of every request, and may pretend another time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx

from tests.harness.canned_server import serving_app
from tests.harness.clock import DEADLINE

_HOP_BY_HOP = {b"host", b"connection", b"content-length", b"transfer-encoding", b"keep-alive"}


@dataclass
class RecordingProxy:
    """Passes everything on to `target` (ends in a slash); `url` is its own address, with a slash, too."""

    target: str
    url: str
    sent: list[tuple[str, str, bytes]] = field(default_factory=list)
    """Method, path and body of each request with a body."""
    clock_ahead: timedelta = timedelta()
    """What is added to the `Date` of every answer."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        path = scope["raw_path"].decode()
        if body:
            self.sent.append((scope["method"], path, body))
        answer = await self._forward(scope, path, body)
        headers = [(name, value) for name, value in answer.headers.raw if name.lower() not in _HOP_BY_HOP | {b"date"}]
        headers.append((b"date", format_datetime(datetime.now(UTC) + self.clock_ahead, usegmt=True).encode()))
        await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": answer.content})

    async def _forward(self, scope: Any, path: str, body: bytes) -> httpx.Response:
        address = self.target.rstrip("/") + path + ("?" + scope["query_string"].decode() if scope["query_string"] else "")
        headers = [(name, value) for name, value in scope["headers"] if name not in _HOP_BY_HOP | {b"accept-encoding"}]
        async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as http:
            request = http.build_request(
                scope["method"], address, headers=[*headers, (b"accept-encoding", b"identity")], content=body
            )
            return await http.send(request)


@asynccontextmanager
async def recording_proxy(target: str) -> AsyncIterator[RecordingProxy]:
    proxy = RecordingProxy(target, "")
    async with serving_app(proxy, date_header=False) as port:
        proxy.url = f"http://127.0.0.1:{port}/"
        yield proxy

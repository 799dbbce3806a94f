"""The agent's HTTP client over a transport of httpx: a service in the same process, or answers by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from typing_extensions import override
from yarl import URL

from lab_agent.http_client import HttpResponse, NotAnswered, NotSent, Transport

_NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


@dataclass(frozen=True, slots=True)
class HttpxTransport(Transport):
    """Sends by `inner`; what it raises of httpx's errors says whether anything was sent."""

    inner: httpx.AsyncBaseTransport

    @override
    async def send(self, method: str, url: URL, headers: Mapping[str, str], content: bytes) -> HttpResponse:
        request = httpx.Request(method, str(url), headers=dict(headers), content=content or None)
        try:
            response = await self.inner.handle_async_request(request)
            body = await response.aread()
        except _NOTHING_SENT as exc:
            raise NotSent(str(exc)) from exc
        except httpx.HTTPError as exc:
            raise NotAnswered from exc
        return HttpResponse(status=response.status_code, headers=response.headers, body=body, url=str(url))

    @override
    async def aclose(self) -> None:
        await self.inner.aclose()

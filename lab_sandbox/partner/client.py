"""The partner's HTTP client: the calls of the endpoint table that a partner makes, with a bearer token and retries.

The token is sent to the service's own origin only; a document on the laboratory's address is downloaded without it. A request is
retried if the service is busy, or if it is a GET: never if it might be processed twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
from httpx_aiohttp import HttpxAiohttpClient

from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.errors import (
    InvalidJsonError,
    Json,
    PartnerError,
    ServiceUnreachableError,
    decode,
    encode,
    require_success,
)
from lab_sandbox.partner.login import LoginClient, TokenPair

TIMEOUT = httpx.Timeout(30.0)
_MAX_PAGES = 1000
RETRY_DELAYS = (0.1, 0.4, 1.6)
"""Seconds before the second, third and fourth attempt."""
MAX_RETRY_DELAY = 10.0
"""The longest Retry-After, in seconds, that is honoured; beyond it the error is raised."""
_BUSY_STATUSES = frozenset({429, 503})
_SERVER_ERROR_STATUSES = frozenset({500, 502, 504})


def can_retry(method: str, outcome: httpx.Response | httpx.TransportError) -> bool:
    """Whether a retry is safe and may help: a busy service has done nothing, and a GET can always be repeated."""
    if isinstance(outcome, httpx.TransportError):
        return method == "GET"
    return outcome.status_code in _BUSY_STATUSES or (method == "GET" and outcome.status_code in _SERVER_ERROR_STATUSES)


def retry_delay(default: float, outcome: httpx.Response | httpx.TransportError, now: datetime) -> float:
    """Seconds to wait: Retry-After in either form, else `default`."""
    retry_after = outcome.headers.get("retry-after", "") if isinstance(outcome, httpx.Response) else ""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - now).total_seconds())
    except (ValueError, TypeError):
        return default


@dataclass(frozen=True, slots=True)
class DownloadedDocument:
    """A downloaded result document."""

    content: bytes
    content_type: str


class PartnerClient:
    """The calls of one partner. Each may raise `ServiceRefusedError` or `ServiceUnreachableError`."""

    def __init__(self, account: PartnerAccount, http: httpx.AsyncClient, tokens: TokenPair) -> None:
        self.account = account
        self._http = http
        self._tokens = tokens
        self._refresh_lock = asyncio.Lock()

    async def nomenclature(self) -> list[Json]:
        """The contract's nomenclature array."""
        return _require_array(await self._get("nomenclature", {"contract": self.account.contract}))

    async def eta(self) -> list[Json]:
        """The contract's turnaround array."""
        return _require_array(await self._get("eta", {"contract": self.account.contract}))

    async def questionnaire(self, basket: Json) -> Json:
        """The questionnaire for the whole basket."""
        return _require_object(await self._post("questionnaire", basket))

    async def preanalytics(self, basket: Json) -> Json:
        """Pre-analytics for the whole basket."""
        return _require_object(await self._post("preanalytics", basket))

    async def create_patient(self, patient: Json) -> Json:
        """POST fhir/Patient: the created Patient."""
        return _require_object(await self._post("fhir/Patient", patient))

    async def create_order(self, bundle: Json) -> Json:
        """POST fhir/$CreateDiagnosticRequest: the Bundle with the server's ids."""
        return _require_object(await self._post("fhir/$CreateDiagnosticRequest", bundle))

    async def contract_id(self) -> str:
        """The id of the contract, found by its code (interface: Search of a contract)."""
        identifier = f"{self.account.lab_system('contract')}|{self.account.contract}"
        found = await self.search("Contract", {"identifier": identifier})
        if len(found) != 1:
            raise PartnerError(f"contract {self.account.contract}: expected one, found {len(found)}")
        return str(found[0]["id"])

    async def read(self, reference: str) -> Json:
        """A resource by its reference, `task/<id>` or in any other spelling."""
        return _require_object(await self._get(f"fhir/{reference.removeprefix(self.account.base_url).removeprefix('fhir/')}"))

    async def search(self, kind: str, criteria: Mapping[str, str]) -> list[Json]:
        """Every matching resource from all pages, each once."""
        page = _require_object(await self._get(f"fhir/{kind}", criteria))
        found: dict[str, Json] = {}
        for _ in range(_MAX_PAGES):
            found.update({entry["resource"]["id"]: entry["resource"] for entry in page.get("entry", ())})
            next_url = next((link["url"] for link in page.get("link", ()) if link.get("relation") == "next"), None)
            if next_url is None:
                return list(found.values())
            page = _require_object(await self._get(next_url))
        raise PartnerError(f"{kind}: more than {_MAX_PAGES} pages")

    async def notifications(self, since: int = 0) -> list[Json]:
        """Task status changes with a number above `since` (the channel is the sandbox's own)."""
        return list(_require_object(await self._get("notifications", {"since": str(since)}))["notifications"])

    async def update(self, resource: Json, etag: str) -> Json:
        """PUT the whole resource with If-Match (interface: Update)."""
        response = await self._send(
            "PUT",
            f"fhir/{resource['resourceType']}/{resource['id']}",
            content=encode(resource),
            headers={"If-Match": etag, "Content-Type": "application/json"},
        )
        return _require_object(_decode_response(response))

    async def download_document(self, url: str, accept: str = "application/pdf") -> DownloadedDocument:
        """A result document by its `presentedForm[].url`; a relative URL is appended to the service's base address."""
        response = await self._send("GET", url, headers={"Accept": accept})
        return DownloadedDocument(response.content, response.headers.get("content-type", ""))

    async def _get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        return _decode_response(await self._send("GET", path, params=params))

    async def _post(self, path: str, body: Json) -> Any:
        return _decode_response(
            await self._send("POST", path, content=encode(body), headers={"Content-Type": "application/json"})
        )

    async def _send(self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> httpx.Response:
        address = path if "://" in path else self.account.base_url + path.lstrip("/")
        outcome = await self._send_once(method, address, headers or {}, more)
        for default in RETRY_DELAYS:
            if not can_retry(method, outcome) or (delay := retry_delay(default, outcome, datetime.now(UTC))) > MAX_RETRY_DELAY:
                break
            await asyncio.sleep(delay)
            outcome = await self._send_once(method, address, headers or {}, more)
        if isinstance(outcome, httpx.TransportError):
            raise ServiceUnreachableError(f"{method} {urlsplit(address).path}: {type(outcome).__name__}") from outcome
        return require_success(outcome)

    async def _send_once(
        self, method: str, address: str, headers: Mapping[str, str], more: Mapping[str, Any]
    ) -> httpx.Response | httpx.TransportError:
        """One try; after a 401 once more with a new token, since nothing was done."""
        used = self._tokens
        try:
            response = await self._http.request(method, address, headers=self._with_authorization(address, headers), **more)
            if response.status_code == 401 and self._is_service_url(address):
                await self._refresh_tokens(used)
                response = await self._http.request(method, address, headers=self._with_authorization(address, headers), **more)
        except httpx.TransportError as exc:
            return exc
        return response

    async def _refresh_tokens(self, used: TokenPair) -> None:
        """New tokens in place of `used`; one refresh at a time, since a refresh token is valid once."""
        async with self._refresh_lock:
            if self._tokens is used:
                self._tokens = await LoginClient(self.account, self._http).refresh(used)

    def _with_authorization(self, address: str, headers: Mapping[str, str]) -> dict[str, str]:
        token = {"Authorization": f"Bearer {self._tokens.access}"} if self._is_service_url(address) else {}
        return {**headers, **token}

    def _is_service_url(self, address: str) -> bool:
        here, there = urlsplit(self.account.base_url), urlsplit(address)
        return (here.scheme, here.netloc) == (there.scheme, there.netloc)


@asynccontextmanager
async def open_partner_client(
    account: PartnerAccount, *, grant: Literal["password", "code"] = "password", transport: httpx.AsyncBaseTransport | None = None
) -> AsyncIterator[PartnerClient]:
    """A signed-in client, closed at the end. `transport` replaces the network, for example with an ASGI application."""
    async with HttpxAiohttpClient(transport=transport, timeout=TIMEOUT, trust_env=False) as http:
        login = LoginClient(account, http)
        try:
            tokens = await (login.login_with_code() if grant == "code" else login.login_with_password())
        except httpx.TransportError as exc:
            raise ServiceUnreachableError(f"sign-in at {account.auth_url}: {type(exc).__name__}") from exc
        yield PartnerClient(account, http, tokens)


def _decode_response(response: httpx.Response) -> Any:
    try:
        return decode(response.content)
    except InvalidJsonError as exc:
        raise PartnerError(f"{response.request.method} {response.request.url.path}: the response is not JSON") from exc


def _require_array(body: Any) -> list[Json]:
    if not isinstance(body, list):
        raise PartnerError("the response is not a JSON array")
    return body


def _require_object(body: Any) -> Json:
    if not isinstance(body, dict):
        raise PartnerError("the response is not a JSON object")
    return body

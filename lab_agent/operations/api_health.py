"""Asks lab-api from outside whether it answers, as anybody on the network could: without a token."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus

from lab_agent.settings.api import ApiSettings
from lab_agent.settings.groups import MonitoringSettings
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError, Failure, ServiceUnavailable
from lab_agent.shared.http_client import HttpClient, HttpOptions, HttpResponse
from lab_agent.shared.url_origin import LOOPBACK_OF_ANY
from lab_agent.store.api_refusals import PROBE_USER_AGENT

_OWN_OPTIONS = HttpOptions(timeout=10.0, max_response=1_000_000)
_PROXY_STATUSES = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})

_READINESS = frozenset({(HTTPStatus.OK, "ready"), (HTTPStatus.SERVICE_UNAVAILABLE, "not ready")})


def own_address(api: ApiSettings, monitoring: MonitoringSettings) -> str | None:
    """The address at which lab-api answers the agent; None where this laboratory runs none, or its port is not known.

    It runs one where the settings say who may call it, or where the exchange service reaches it.
    """
    if not (api.public_url or api.tokens or api.basic):
        return None
    if monitoring.api_address is not None:
        return _as_base(monitoring.api_address)
    host = LOOPBACK_OF_ANY.get(api.host, api.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{api.port}/" if api.port else None


def build_api_health(api: ApiSettings, monitoring: MonitoringSettings, *, proxy: str | None) -> ApiHealth | None:
    """Build it; None where this laboratory runs no lab-api. `proxy` leads out, to the public address."""
    own = own_address(api, monitoring)
    if own is None:
        return None
    public = _as_base(api.public_url) if api.public_url and monitoring.public_api else None
    options = HttpOptions(timeout=10.0, max_response=1_000_000, ca_file=monitoring.api_ca_file, proxy=proxy)
    return ApiHealth(own=own, public=public, public_options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAnswer:
    """What lab-api says of itself, or the `problem` that it does not: exactly one of `served` and `problem` is set."""

    served: str | None = None
    """The version of the catalogue that it serves."""
    problem: str | None = None
    """What is wrong, in plain words."""
    unready: str | None = None
    """Why it cannot work although it answers, in its own words; None if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiHealth:
    """Where lab-api is: its `own` address, and its `public` one, None where that is not to be looked at."""

    own: str
    public: str | None
    public_options: HttpOptions = _OWN_OPTIONS

    async def ask_own(self) -> ApiAnswer:
        """Ask at its own address. Never raises `Failure`."""
        try:
            answer = await _get(self.own, "readyz", _OWN_OPTIONS)
        except Failure as failure:
            return ApiAnswer(problem=str(failure))
        said = _read(answer)
        served, status = said.get("catalogue"), said.get("status")
        if not isinstance(served, str) or (answer.status, status) not in _READINESS:
            return ApiAnswer(problem=_describe(answer, self.own))
        return ApiAnswer(served=served, unready=None if status == "ready" else str(said.get("title", status)))

    async def find_public_problem(self) -> str | None:
        """Ask at the public address: what is wrong there, None if nothing is. Never raises `Failure`.

        A proxy may pass on the four endpoints alone: lab-api is known by how it asks for a token.
        """
        if self.public is None:
            return None
        try:
            answer = await _get(self.public, "healthz", self.public_options)
            if not _is_alive(answer) and answer.status not in _PROXY_STATUSES:
                answer = await _get(self.public, "nomenclature", self.public_options)
        except Failure as failure:
            return str(failure)
        return None if _is_alive(answer) or _asks_for_token(answer) else _describe(answer, self.public)


def _as_base(address: str) -> str:
    return f"{address.rstrip('/')}/"


async def _get(base: str, path: str, options: HttpOptions) -> HttpResponse:
    """Ask once. The client is made in a thread, since certificates are read; it is not kept, so nobody has to close it."""
    try:
        client = await asyncio.to_thread(HttpClient, options)
    except OSError as exc:  # ssl.SSLError is one, too
        raise ServiceUnavailable("the certificates of `monitoring.api_ca_file` cannot be read") from exc
    async with client as http:
        return await http.send("GET", path, base=base, headers={"User-Agent": PROBE_USER_AGENT})


def _describe(answer: HttpResponse, base: str) -> str:
    if answer.status in _PROXY_STATUSES:
        return f"{base} answers {answer.status}: the proxy there does not reach lab-api"
    if answer.status == HTTPStatus.OK:
        return f"something else than lab-api answers at {base}"
    return f"{base} answers {answer.status}, and not as lab-api does"


def _is_alive(answer: HttpResponse) -> bool:
    return answer.status == HTTPStatus.OK and _read(answer).get("service") == "lab-api"


def _asks_for_token(answer: HttpResponse) -> bool:
    return answer.status == HTTPStatus.UNAUTHORIZED and _read(answer).get("resourceType") == "OperationOutcome"


def _read(answer: HttpResponse) -> dict[str, object]:
    """The object of a response; empty if it is none."""
    try:
        body = exact_json.loads(answer.body)
    except DataInvalidError:
        return {}
    return body if isinstance(body, dict) else {}

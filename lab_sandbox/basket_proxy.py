"""Forwards basket requests to the address in the laboratory's counterparty card, with the authorization given there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
from httpx_aiohttp import AiohttpTransport

from lab_sandbox.config import Contract, Counterparty, SandboxConfig
from lab_sandbox.errors import HttpError, Issue, operation_outcome
from lab_sandbox.exact_json import Json, decode, encode

_FORWARDED_HEADERS = ("if-none-match", "accept-language")
_RETURNED_HEADERS = ("etag", "cache-control", "last-modified", "retry-after")


_ANSWERS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "nomenclature": (lambda answer: isinstance(answer, list), "an array"),
    "eta": (lambda answer: isinstance(answer, list), "an array"),
    "questionnaire": (
        lambda answer: (
            isinstance(answer, dict) and (answer.get("resourceType"), answer.get("status")) == ("Questionnaire", "active")
        ),
        "a Questionnaire with the status active",
    ),
    "preanalytics": (
        lambda answer: isinstance(answer, dict) and isinstance(answer.get("specimens"), list),
        "an object with the array specimens",
    ),
}


@dataclass(frozen=True)
class ProxiedResponse:
    """The laboratory's response, as it is passed on."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class BasketProxy:
    """Sends the four basket requests to the laboratory of a contract."""

    def __init__(self, config: SandboxConfig, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._config = config
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    async def get(self, name: str, contract: str, caller: Counterparty, headers: Mapping[str, str]) -> ProxiedResponse:
        """`GET /nomenclature` or `/eta` with the contract code in the query."""
        return await self._send("GET", name, self._find_contract(contract, caller), headers, params={"contract": contract})

    async def post(self, name: str, basket: Json, caller: Counterparty, headers: Mapping[str, str]) -> ProxiedResponse:
        """`POST /questionnaire` or `/preanalytics` with the whole basket, digits as they came."""
        contract = self._find_contract(basket.get("contract"), caller)
        if not isinstance(basket.get("analyticsrequests"), list):
            raise HttpError.of(400, "required", "analyticsrequests: required, an array with the whole basket")
        json_headers = {**headers, "content-type": "application/json"}
        return await self._send("POST", name, contract, json_headers, content=encode(basket))

    async def close(self) -> None:
        """Closes the connections to laboratories."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _find_contract(self, code: object, caller: Counterparty) -> Contract:
        if not isinstance(code, str) or not code:
            raise HttpError.of(400, "required", "contract: required, the code of a contract")
        contract = self._config.contract(code)
        if contract is None:
            raise HttpError.of(404, "not-found", f"contract: unknown contract {code}")
        if caller.guid not in {contract.partner, contract.laboratory}:
            raise HttpError.of(403, "forbidden", f"contract: {code} is a contract of other parties")
        return contract

    async def _send(
        self,
        method: str,
        name: str,
        contract: Contract,
        headers: Mapping[str, str],
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> ProxiedResponse:
        laboratory = self._config.counterparty(contract.laboratory)
        if laboratory is None or not laboratory.address:
            raise HttpError.of(502, "transient", f"contract: the counterparty card of {contract.laboratory} has no address")
        url = f"{laboratory.address.rstrip('/')}/{name}"
        sent = {key: value for key, value in headers.items() if key in {*_FORWARDED_HEADERS, "content-type"}} | {
            "accept": "application/json"
        }
        if laboratory.authorization:
            sent["authorization"] = laboratory.authorization
        try:
            response = await self._get_client().request(method, url, headers=sent, params=params, content=content)
        except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout) as exc:
            raise HttpError.of(504, "timeout", f"laboratory: no answer to {name} in time") from exc
        except httpx.HTTPError as exc:
            raise HttpError.of(502, "transient", f"laboratory: unreachable for {name} ({type(exc).__name__})") from exc
        return _to_proxied_response(name, response)

    def _get_client(self) -> httpx.AsyncClient:
        if self._client is None:
            transport = self._transport or AiohttpTransport()
            self._client = httpx.AsyncClient(
                transport=transport, timeout=self._config.rules.forward_timeout_seconds, trust_env=False
            )
        return self._client


def _to_proxied_response(name: str, response: httpx.Response) -> ProxiedResponse:
    """The laboratory's response as it came; an error without an OperationOutcome gets one."""
    headers = {key: value for key, value in response.headers.items() if key in _RETURNED_HEADERS}
    if response.status_code >= 400 and b'"OperationOutcome"' not in response.content[:2000]:
        issue = Issue("processing", f"laboratory: answered {name} with status {response.status_code}")
        status = 502 if response.status_code in {401, 403} or response.status_code >= 500 else response.status_code
        return ProxiedResponse(status, encode(operation_outcome([issue])), headers)
    if response.status_code in {401, 403}:
        issue = Issue("processing", f"laboratory: rejected the service's own authorization for {name}")
        return ProxiedResponse(502, encode(operation_outcome([issue])), headers)
    if response.status_code != 304:
        try:
            answer = decode(response.content)
        except HttpError as exc:
            raise HttpError.of(502, "processing", f"laboratory: the answer to {name} is not JSON") from exc
        is_valid, form = _ANSWERS[name]
        if response.status_code == 200 and not is_valid(answer):
            raise HttpError.of(502, "processing", f"laboratory: the answer to {name} must be {form}")
    return ProxiedResponse(response.status_code, response.content, headers)

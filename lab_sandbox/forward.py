"""Basket requests go on to the laboratory's address in the counterparty card, with the laboratory's own authorization."""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from httpx_aiohttp import AiohttpTransport

from lab_sandbox.config import Contract, Counterparty, SandboxConfig
from lab_sandbox.outcome import Issue, Refusal, operation_outcome
from lab_sandbox.wire import Json, decode, encode

_PASSED_ON = ("if-none-match", "accept-language")
_PASSED_BACK = ("etag", "cache-control", "last-modified", "retry-after")


@dataclass(frozen=True)
class Answer:
    """What the laboratory said, to be passed on."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class Forwarder:
    """Sends the four basket requests to the laboratory of a contract."""

    def __init__(self, config: SandboxConfig, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._config = config
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    async def get(self, name: str, contract: str, caller: Counterparty, headers: Mapping[str, str]) -> Answer:
        """`GET /nomenclature` or `/eta` with the contract code in the query."""
        return await self._send("GET", name, self._contract(contract, caller), headers, params={"contract": contract})

    async def post(self, name: str, basket: Json, caller: Counterparty, headers: Mapping[str, str]) -> Answer:
        """`POST /questionnaire` or `/preanalytics` with the whole basket, digits as they came."""
        contract = self._contract(basket.get("contract"), caller)
        if not isinstance(basket.get("analyticsrequests"), list):
            raise Refusal.of(400, "required", "analyticsrequests: an array with the whole basket is required")
        more = {**headers, "content-type": "application/json"}
        return await self._send("POST", name, contract, more, content=encode(basket))

    async def close(self) -> None:
        """Closes the connections to laboratories."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _contract(self, code: object, caller: Counterparty) -> Contract:
        if not isinstance(code, str) or not code:
            raise Refusal.of(400, "required", "contract: the contract code is required")
        contract = self._config.contract(code)
        if contract is None:
            raise Refusal.of(404, "not-found", f"contract: there is no contract {code}")
        if caller.guid not in {contract.partner, contract.laboratory}:
            raise Refusal.of(403, "forbidden", f"contract: {code} is not yours")
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
    ) -> Answer:
        laboratory = self._config.counterparty(contract.laboratory)
        if laboratory is None or not laboratory.address:
            raise Refusal.of(502, "transient", f"contract: the counterparty card of {contract.laboratory} has no address")
        url = f"{laboratory.address.rstrip('/')}/{name}"
        sent = {key: value for key, value in headers.items() if key in {*_PASSED_ON, "content-type"}} | {
            "accept": "application/json"
        }
        if laboratory.authorization:
            sent["authorization"] = laboratory.authorization
        try:
            answer = await self._connected().request(method, url, headers=sent, params=params, content=content)
        except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout) as exc:
            raise Refusal.of(504, "timeout", f"laboratory: {name} was not answered in time") from exc
        except httpx.HTTPError as exc:
            raise Refusal.of(502, "transient", f"laboratory: {name} cannot be reached ({type(exc).__name__})") from exc
        return _passed_on(name, answer)

    def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            transport = self._transport or AiohttpTransport()
            self._client = httpx.AsyncClient(
                transport=transport, timeout=self._config.rules.forward_timeout_seconds, trust_env=False
            )
        return self._client


def _passed_on(name: str, answer: httpx.Response) -> Answer:
    """The laboratory's answer as it came; a failure without an OperationOutcome gets one."""
    headers = {key: value for key, value in answer.headers.items() if key in _PASSED_BACK}
    if answer.status_code >= 400 and b'"OperationOutcome"' not in answer.content[:2000]:
        issue = Issue("processing", f"laboratory: {name} was refused with status {answer.status_code}")
        status = 502 if answer.status_code in {401, 403} or answer.status_code >= 500 else answer.status_code
        return Answer(status, encode(operation_outcome([issue])), headers)
    if answer.status_code in {401, 403}:
        issue = Issue("processing", f"laboratory: {name} refused the service's own authorization")
        return Answer(502, encode(operation_outcome([issue])), headers)
    if answer.status_code != 304:
        try:
            decode(answer.content)
        except Refusal as exc:
            raise Refusal.of(502, "processing", f"laboratory: the answer of {name} is not JSON") from exc
    return Answer(answer.status_code, answer.content, headers)

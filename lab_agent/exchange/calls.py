"""One call to the service: signed, bounded in number, judged; a GET is tried a few times, a write once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import tenacity

from lab_agent import exact_json
from lab_agent.domain.retry import Backoff, jittered
from lab_agent.errors import ServiceUnavailable
from lab_agent.exchange.outcomes import Asked, content, failure
from lab_agent.exchange.tokens import Authenticator
from lab_agent.http import Answer, HttpClient
from lab_agent.metrics import Heard, timed
from lab_agent.ports.exchange import Json

_TRIES = 3
_BACKOFF = Backoff(first=0.3, longest=3.0)
_LONGEST_WAIT = 5.0
_JSON = {"Accept": "application/json"}


class Calls:
    """Signed calls to one base address."""

    def __init__(self, base: str, http: HttpClient, tokens: Authenticator, *, max_concurrency: int, heard: Heard) -> None:
        self._base = base
        self._http = http
        self._tokens = tokens
        self._heard = heard
        self._gate = asyncio.Semaphore(max_concurrency)

    async def get(self, asked: Asked, address: str) -> tuple[Json, Answer]:
        """GET an object, again after a short wait where the service was away for a moment. Raises as the port says."""
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_worth_another_try),
            stop=tenacity.stop_any(tenacity.stop_after_attempt(_TRIES), tenacity.stop_after_delay(self._http.longest_call / 2)),
            wait=_wait,
            reraise=True,
        )
        return await retrying(self._object, asked, address)

    async def write(self, asked: Asked, method: str, address: str, headers: Mapping[str, str], body: Json) -> Answer:
        """POST or PUT, once. Raises as the port says."""
        sent = exact_json.dumps(body)
        return await self._signed(asked, method, address, {"Content-Type": "application/json", **headers}, sent)

    async def _object(self, asked: Asked, address: str) -> tuple[Json, Answer]:
        answer = await self._signed(asked, "GET", address, {}, b"")
        return content(asked, answer.body), answer

    async def _signed(self, asked: Asked, method: str, address: str, headers: Mapping[str, str], sent: bytes) -> Answer:
        with timed(asked.what, self._heard):
            answer = await self._authorized(method, address, headers, sent)
            if (wrong := failure(asked, answer.status, answer.headers, answer.body, now=self._tokens.clock.now())) is not None:
                raise wrong
            return answer

    async def _authorized(self, method: str, address: str, headers: Mapping[str, str], sent: bytes) -> Answer:
        """A 401 says that nothing was done, so that one more try with a newer token is right for a write as well."""
        credential = await self._tokens.credential()
        answer = await self._send(method, address, {**headers, "Authorization": credential.header}, sent)
        if answer.status == 401 and credential.generation:
            credential = await self._tokens.renewed(credential)
            answer = await self._send(method, address, {**headers, "Authorization": credential.header}, sent)
        return answer

    async def _send(self, method: str, address: str, headers: Mapping[str, str], sent: bytes) -> Answer:
        async with self._gate:
            return await self._http.send(method, address, base=self._base, headers={**_JSON, **headers}, content=sent)


def _worth_another_try(exc: BaseException) -> bool:
    """A long wait that the service asks for is left to the outbox and to the next poll."""
    return isinstance(exc, ServiceUnavailable) and (exc.retry_after or 0.0) <= _LONGEST_WAIT


def _wait(state: tenacity.RetryCallState) -> float:
    exc = state.outcome.exception() if state.outcome else None
    asked = exc.retry_after if isinstance(exc, ServiceUnavailable) and exc.retry_after else 0.0
    return max(asked, jittered(state.attempt_number, _BACKOFF, random.random()))  # noqa: S311 - jitter, no secret

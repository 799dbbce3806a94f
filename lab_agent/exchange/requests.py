"""Authorized calls to the service, bounded in number and held back as it asks; a GET is retried, a write is sent once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from typing import TypeVar, get_args

from lab_agent.exchange.authenticator import Authenticator, Credential
from lab_agent.exchange.clock_comparison import ClockComparison
from lab_agent.exchange.request_gate import RequestGate
from lab_agent.exchange.responses import RequestContext, response_error
from lab_agent.exchange.service import Json
from lab_agent.queue.retry import Backoff, backoff_delay
from lab_agent.settings.exchange import FhirMediaType
from lab_agent.shared import exact_json
from lab_agent.shared.call_trace import note_call
from lab_agent.shared.errors import AnswerTooLarge, AuthenticationRequired, Failure, ServiceUnavailable
from lab_agent.shared.http_client import HttpClient, HttpResponse
from lab_agent.shared.metrics import CallObserver, measure_call

_MAX_ATTEMPTS = 3
_BACKOFF = Backoff(first=0.3, longest=3.0)
_MAX_RETRY_WAIT = 5.0
T = TypeVar("T")
_FRESH = {"Cache-Control": "no-cache"}
"""Servers and proxies may answer a GET from a cache; a search that is a minute old misses lines, and shows what has ended."""


class AuthorizedRequests:
    """Authorized calls to one base address."""

    def __init__(
        self,
        base: str,
        http: HttpClient,
        authenticator: Authenticator,
        *,
        max_concurrency: int,
        on_call: CallObserver,
        content_type: FhirMediaType = "application/fhir+json",
    ) -> None:
        self._base = base
        self._http = http
        self._authenticator = authenticator
        self._on_call = on_call
        self._content_type = content_type
        others = [each for each in get_args(FhirMediaType) if each != content_type]
        self._accept = ", ".join([content_type, *(f"{each};q=0.9" for each in others)])
        self._semaphore = asyncio.Semaphore(max_concurrency)
        self._large_bodies = asyncio.Semaphore(1)
        self.gate = RequestGate(authenticator.clock)
        self.clocks = ClockComparison(authenticator.clock)

    async def get(
        self, context: RequestContext, address: str, parse: Callable[[RequestContext, bytes], T]
    ) -> tuple[T, HttpResponse]:
        """GET what `parse` reads, retrying after a short wait while the service is unavailable. Raises what the port says."""
        give_up_at = time.monotonic() + self._http.max_call_seconds / 2
        for attempt in range(1, _MAX_ATTEMPTS):
            try:
                return await self._get_parsed(context, address, parse)
            except ServiceUnavailable as exc:
                asked = exc.retry_after or 0.0
                # Longer waits that the service asks for are left to the job queue and the next poll.
                if (
                    isinstance(exc, AnswerTooLarge)
                    or asked > _MAX_RETRY_WAIT
                    or time.monotonic() >= give_up_at
                    or self.gate.is_held
                ):
                    raise
            await asyncio.sleep(max(asked, backoff_delay(attempt, _BACKOFF, random.random())))  # noqa: S311 - jitter, no secret
        return await self._get_parsed(context, address, parse)

    async def get_once(self, context: RequestContext, address: str, parse: Callable[[RequestContext, bytes], object]) -> None:
        """GET what `parse` reads, once, even while the gate is held. Raises what the port says."""
        answer = await self._send_checked(context, "GET", address, _FRESH, b"", asks=True)
        await self.parse(answer.body, lambda body: parse(context, body))

    async def download(self, context: RequestContext, address: str, *, accept: str) -> bytes:
        """GET a document, once, in the format that `accept` asks for. Raises what the port says."""
        return (await self._send_checked(context, "GET", address, {"Accept": accept}, b"")).body

    async def write(
        self, context: RequestContext, method: str, address: str, headers: Mapping[str, str], body: Json
    ) -> HttpResponse:
        """POST or PUT, once. Raises what the port says."""
        sent = exact_json.dumps(body)
        return await self._send_checked(context, method, address, {"Content-Type": self._content_type, **headers}, sent)

    async def _get_parsed(
        self, context: RequestContext, address: str, parse: Callable[[RequestContext, bytes], T]
    ) -> tuple[T, HttpResponse]:
        answer = await self._send_checked(context, "GET", address, _FRESH, b"")
        return await self.parse(answer.body, lambda body: parse(context, body)), answer

    async def parse(self, body: bytes, parse: Callable[[bytes], T]) -> T:
        """Read a body; a large one in a thread, so that other work goes on, and one after the other, which bounds the memory."""
        if len(body) < exact_json.LARGE:
            return parse(body)
        async with self._large_bodies:
            return await asyncio.to_thread(parse, body)

    async def _send_checked(
        self,
        context: RequestContext,
        method: str,
        address: str,
        headers: Mapping[str, str],
        payload: bytes,
        *,
        asks: bool = False,
    ) -> HttpResponse:
        what = f"{method} {context.resource_type}"
        with measure_call(context.description, self._on_call):
            try:
                answer, credential = await self._send_authorized(method, address, headers, payload, asks)
            except Failure:
                note_call(what, is_failed=True)
                raise
            error = response_error(context, answer.status, answer.headers, answer.body, now=self._authenticator.clock.now())
            note_call(what, status=answer.status, is_failed=error is not None)
            if isinstance(error, AuthenticationRequired):
                error.generation = credential.generation
            if error is not None:
                self.gate.on_failure(error)
                raise error
            return answer

    async def _send_authorized(
        self, method: str, address: str, headers: Mapping[str, str], payload: bytes, asks: bool
    ) -> tuple[HttpResponse, Credential]:
        """Send a request; the answer, and what it was sent with.

        A 401 means that nothing was done, so a write too may be repeated with a newer token.
        """
        self.gate.check(asks=asks)  # before we sign in, too
        credential = await self._authenticator.credential()
        answer = await self._send(method, address, {**headers, "Authorization": credential.header}, payload, asks)
        if answer.status == 401 and credential.generation:
            credential = await self._authenticator.renew_credential(credential)
            answer = await self._send(method, address, {**headers, "Authorization": credential.header}, payload, asks)
        return answer, credential

    async def _send(self, method: str, address: str, headers: Mapping[str, str], payload: bytes, asks: bool) -> HttpResponse:
        async with self._semaphore:
            self.gate.check(asks=asks)  # here, so that it holds for what has queued, too
            sent = self.clocks.start()
            answer = await self._http.send(
                method, address, base=self._base, headers={"Accept": self._accept, **headers}, content=payload
            )
            self.clocks.record(sent, answer.headers)
            return answer

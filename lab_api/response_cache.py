"""Responses prepared once for each catalogue version and contract, conditional and compressed.

They are made in a thread, by one of those who ask at the same time; the others wait for it. They live as long as the catalogue
version is served, the turnaround list until a notice begins or ends. What of them is in memory is bounded (`MAX_PREPARED_BYTES`
for each of the two): those that were not asked for longest are dropped first, and made again when somebody asks.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lab_agent.catalogue.model import Catalogue, Contract
from lab_agent.catalogue.nomenclature import nomenclature, turnarounds
from lab_agent.catalogue.turnaround import Notice, next_change
from lab_agent.shared import exact_json

MAX_PREPARED_BYTES = 64_000_000
_JSON = (b"content-type", b"application/json")
_GZIP = (b"content-encoding", b"gzip")


@dataclass(frozen=True, slots=True)
class PreparedBody:
    """A response body, plain and compressed, with its entity tag."""

    plain: bytes
    compressed: bytes
    etag: str

    @classmethod
    def of(cls, value: object) -> PreparedBody:
        """Prepare the body of a JSON value."""
        plain = exact_json.dumps(value)
        return cls(plain, gzip.compress(plain, 6, mtime=0), f'W/"{hashlib.sha256(plain).hexdigest()[:24]}"')

    @property
    def size(self) -> int:
        """The bytes that it holds."""
        return len(self.plain) + len(self.compressed)


class PreparedBodies:
    """The bodies of one list by contract, most recently used last; at least one is kept, whatever its size."""

    def __init__(self, make: Callable[[Contract], object], max_bytes: int = MAX_PREPARED_BYTES) -> None:
        self._make = make
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._bodies: OrderedDict[str, PreparedBody] = OrderedDict()
        self._being_made: dict[str, asyncio.Task[PreparedBody]] = {}

    def prepare(self, contracts: Iterable[Contract]) -> None:
        """Make the bodies of these contracts, as many as may be held; before anybody asks, and outside the event loop."""
        size = 0
        for contract in contracts:
            if self._held_bytes + size > self._max_bytes:  # one more of the last one's size would displace one
                return
            body = PreparedBody.of(self._make(contract))
            self._keep(contract.code, body)
            size = body.size

    async def get(self, contract: Contract) -> PreparedBody:
        """The body of a contract."""
        code = contract.code
        if (body := self._bodies.get(code)) is not None:
            self._bodies.move_to_end(code)
            return body
        if (task := self._being_made.get(code)) is None:
            task = self._being_made[code] = asyncio.create_task(self._make_aside(contract))
        return await asyncio.shield(task)  # one caller that goes away takes it from nobody else

    async def _make_aside(self, contract: Contract) -> PreparedBody:
        try:
            body = await asyncio.to_thread(lambda: PreparedBody.of(self._make(contract)))
            self._keep(contract.code, body)
            return body
        finally:
            del self._being_made[contract.code]

    def _keep(self, code: str, body: PreparedBody) -> None:
        self._bodies[code] = body
        self._held_bytes += body.size
        while self._held_bytes > self._max_bytes and len(self._bodies) > 1:
            _, dropped = self._bodies.popitem(last=False)
            self._held_bytes -= dropped.size


class PreparedResponses:
    """One catalogue version, ready to be served, with the notices of staff. Equal bodies are taken over from `previous`."""

    def __init__(
        self, catalogue: Catalogue, now: datetime, notices: tuple[Notice, ...] = (), previous: PreparedResponses | None = None
    ) -> None:
        self.catalogue = catalogue
        self._notices = (*catalogue.notices, *notices)
        unchanged = previous is not None and previous.catalogue.version == catalogue.version
        self._nomenclature: PreparedBodies = (
            previous._nomenclature  # noqa: SLF001 - of our own class
            if previous is not None and unchanged
            else PreparedBodies(nomenclature)
        )
        if not unchanged:
            self._nomenclature.prepare(catalogue.contracts.values())
        self._begin_eta(now)
        self._eta.prepare(catalogue.contracts.values())

    async def nomenclature(self, contract: Contract) -> PreparedBody:
        """The nomenclature of a contract."""
        return await self._nomenclature.get(contract)

    async def eta(self, contract: Contract, now: datetime) -> PreparedBody:
        """The turnaround list of a contract at `now`."""
        if now < self._eta_valid_from or (self._eta_valid_until is not None and now >= self._eta_valid_until):
            self._begin_eta(now)
        return await self._eta.get(contract)

    def _begin_eta(self, now: datetime) -> None:
        self._eta = PreparedBodies(lambda contract: turnarounds(contract, self._notices, now))
        self._eta_valid_from, self._eta_valid_until = now, next_change(self._notices, now)


class CurrentCatalogue:
    """Holds what is served now. A new catalogue replaces it as a whole, or not at all."""

    def __init__(self, catalogue: Catalogue, now: Callable[[], datetime]) -> None:
        self.now = now
        self.since = now()
        """When this version was served first."""
        self.responses = PreparedResponses(catalogue, self.since)

    def replace(self, catalogue: Catalogue, notices: tuple[Notice, ...] = ()) -> None:
        """Serve this one from now on. It is prepared first; requests that are being answered keep the old one."""
        if catalogue.version != self.responses.catalogue.version:
            self.since = self.now()
        self.responses = PreparedResponses(catalogue, self.now(), notices, self.responses)


class PreparedResponse:
    """Sends bytes that exist already, with few headers and no copy."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None:
        self.status = status
        self.headers = headers
        self.body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of ASGI
        """Send the response."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


_MIN_GZIP_BYTES = 1024


def conditional_response(request: Request, body: PreparedBody, cache_control: str) -> PreparedResponse:
    """Answer with a prepared body, or with 304 if the client holds it; compressed if the client accepts that."""
    headers = [
        (b"etag", body.etag.encode()),
        (b"cache-control", cache_control.encode()),
        (b"vary", b"Authorization, Accept-Encoding"),
    ]
    if holds_version(request, body.etag):
        return PreparedResponse(304, headers)
    packed = _accepts_gzip(request)
    content = body.compressed if packed else body.plain
    headers += [(b"content-length", str(len(content)).encode()), _JSON]
    return PreparedResponse(200, [*headers, _GZIP] if packed else headers, content)


def json_response(request: Request, value: object) -> Response:
    """Answer a basket; compressed if the client accepts that and it is worth it."""
    plain, headers = exact_json.dumps(value), {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if len(plain) >= _MIN_GZIP_BYTES and _accepts_gzip(request):
        return Response(gzip.compress(plain, 5), 200, {**headers, "Content-Encoding": "gzip"}, "application/json")
    return Response(plain, 200, headers, "application/json")


def holds_version(request: Request, etag: str) -> bool:
    """Whether the client holds this version already (If-None-Match, RFC 9110, section 13.1.2)."""
    fields = request.headers.getlist("if-none-match")
    tags = {tag.strip().removeprefix("W/") for field in fields for tag in field.split(",")}
    return bool(tags & {"*", etag.removeprefix("W/")})


def accepted_values(fields: list[str]) -> dict[str, bool]:
    """The values of an Accept or Accept-Encoding header, and whether each is accepted: with `q=0` it is not."""
    accepted = {}
    for part in ",".join(fields).lower().split(","):
        name, *options = (option.strip() for option in part.split(";"))
        weights = [option.removeprefix("q=") for option in options if option.startswith("q=")]
        if name:
            accepted[name] = not weights or weights[0].strip("0.") != ""
    return accepted


def _accepts_gzip(request: Request) -> bool:
    return accepted_values(request.headers.getlist("accept-encoding")).get("gzip", False)

"""Responses prepared once for each catalogue version, conditional and compressed; and request bodies of bounded size and time.

The turnaround list is prepared again when a notice begins or ends.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from lab_agent import exact_json
from lab_agent.catalogue.basket import decode_basket
from lab_agent.catalogue.model import Catalogue, Contract
from lab_agent.catalogue.nomenclature import nomenclature, turnarounds
from lab_agent.catalogue.turnaround import Notice, next_change
from lab_api.errors import ApiError


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


class PreparedResponses:
    """One catalogue version, ready to be served, with the notices of staff. Equal bodies are taken over from `previous`."""

    def __init__(
        self, catalogue: Catalogue, now: datetime, notices: tuple[Notice, ...] = (), previous: PreparedResponses | None = None
    ) -> None:
        self.catalogue = catalogue
        self._notices = (*catalogue.notices, *notices)
        self._nomenclature: Mapping[str, PreparedBody] = (
            previous._nomenclature  # noqa: SLF001 - of our own class
            if previous is not None and previous.catalogue.version == catalogue.version
            else {code: PreparedBody.of(nomenclature(each)) for code, each in catalogue.contracts.items()}
        )
        self._eta: dict[str, PreparedBody] = {}
        self._eta_valid_from = now
        self._eta_valid_until: datetime | None = None
        self._prepare_eta(now)

    def nomenclature(self, contract: Contract) -> PreparedBody:
        """The nomenclature of a contract."""
        return self._nomenclature[contract.code]

    def eta(self, contract: Contract, now: datetime) -> PreparedBody:
        """The turnaround list of a contract at `now`."""
        if now < self._eta_valid_from or (self._eta_valid_until is not None and now >= self._eta_valid_until):
            self._prepare_eta(now)
        return self._eta[contract.code]

    def _prepare_eta(self, now: datetime) -> None:
        self._eta = {
            code: PreparedBody.of(turnarounds(each, self._notices, now)) for code, each in self.catalogue.contracts.items()
        }
        self._eta_valid_from, self._eta_valid_until = now, next_change(self._notices, now)


class CurrentCatalogue:
    """Holds what is served now. A new catalogue replaces it as a whole, or not at all."""

    def __init__(self, catalogue: Catalogue, now: Callable[[], datetime]) -> None:
        self.now = now
        self.responses = PreparedResponses(catalogue, now())

    def replace(self, catalogue: Catalogue, notices: tuple[Notice, ...] = ()) -> None:
        """Serve this one from now on. It is prepared first; requests that are being answered keep the old one."""
        self.responses = PreparedResponses(catalogue, self.now(), notices, self.responses)


_BODY_TIMEOUT = 30.0
_MIN_GZIP_BYTES = 1024
_MIN_THREADED_BYTES = 20_000


async def read_json(request: Request, limit: int) -> Any:
    """Read a JSON body of at most `limit` bytes. Raises `ApiError` (408, 413, 415) and `DataInvalidError`."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "not-supported", "Content-Encoding: is not supported — send the body uncompressed")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limit:
        raise _too_large(limit)
    body = await read_body(request, limit)
    return await asyncio.to_thread(decode_basket, body) if len(body) > _MIN_THREADED_BYTES else decode_basket(body)


async def read_body(request: Request, limit: int) -> bytes:
    """Read a body of at most `limit` bytes. Raises `ApiError` (400, 408, 413)."""
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit)
    except TimeoutError as exc:
        raise ApiError(408, "timeout", "body: did not arrive in time — send it again") from exc
    except ClientDisconnect as exc:
        raise ApiError(400, "incomplete", "body: is incomplete — send it again") from exc
    return bytes(body)


def _too_large(limit: int) -> ApiError:
    return ApiError(413, "too-costly", f"body: is larger than {limit} bytes — send a smaller one")


def conditional_response(request: Request, body: PreparedBody, cache_control: str) -> Response:
    """Answer with a prepared body, or with 304 if the client holds it; compressed if the client accepts that."""
    headers = {"ETag": body.etag, "Cache-Control": cache_control, "Vary": "Authorization, Accept-Encoding"}
    if holds_version(request, body.etag):
        return Response(status_code=304, headers=headers)
    if _accepts_gzip(request):
        return Response(body.compressed, 200, {**headers, "Content-Encoding": "gzip"}, "application/json")
    return Response(body.plain, 200, headers, "application/json")


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

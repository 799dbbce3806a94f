"""Helpers of the routes: the caller, the body within its limit, our address as the client sees it, JSON responses."""

from typing import Any

from fastapi import Request, Response

from lab_sandbox.config import Counterparty
from lab_sandbox.errors import HttpError
from lab_sandbox.exact_json import encode
from lab_sandbox.path_aliases import RESOURCE_TYPES
from lab_sandbox.resource_store import StoredResource
from lab_sandbox.service import Service

JSON_TYPES = frozenset({"", "application/json", "application/fhir+json", "application/json+fhir", "text/json"})


FHIR_MEDIA_TYPE = "application/fhir+json;charset=utf-8"
"""Of a strict service's responses."""
FHIR_TYPES = frozenset({"application/fhir+json", "application/json+fhir"})


def resource_types(service: Service) -> frozenset[str]:
    """Media types with which a Binary is sent as a resource; any other is that of the document itself."""
    return FHIR_TYPES if service.config.is_json_binary_document else JSON_TYPES


def known_type(name: str) -> str:
    """The resource type of a path, which has its case by now; `HttpError` (404) for an unknown one."""
    if name not in RESOURCE_TYPES:
        raise HttpError.of(404, "not-supported", f"{name}: unknown resource type; known are {', '.join(RESOURCE_TYPES)}")
    return name


def authenticate_caller(request: Request, service: Service) -> Counterparty:
    """The counterparty of the Authorization header, or `HttpError` (401)."""
    return service.accounts.authenticate_header(request.headers.get("authorization"))


async def read_body(request: Request, service: Service) -> bytes:
    """The body; `HttpError` (413) as soon as it exceeds the limit."""
    limit = service.config.rules.max_body_bytes
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise HttpError.of(413, "too-long", f"body: more than {limit} bytes")
        parts.append(part)
    return b"".join(parts)


async def read_json_body(request: Request, service: Service, types: frozenset[str] = JSON_TYPES) -> bytes:
    """The body of a request with a JSON content type; `HttpError` (415) for others."""
    kind = content_type(request)
    if kind not in types:
        raise HttpError.of(415, "not-supported", f"Content-Type: must be application/json, not {kind or 'missing'}")
    return await read_body(request, service)


def content_type(request: Request) -> str:
    """The media type of the body, without parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def base_address(request: Request, service: Service) -> str:
    """The address that the client used, ending in a slash; links in responses start with it."""
    prefix = next((path for path in _prefixes(service) if _original_path(request).startswith(path)), "/")
    return f"{request.url.scheme}://{request.url.netloc}{prefix}"


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response with exact decimals."""
    return Response(encode(value), status, headers, "application/json")


def resource_response(stored: StoredResource, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """The stored resource with its ETag ("Update": the ETag is returned on GET and on POST)."""
    return Response(stored.body, status, {"ETag": stored.etag(), **(headers or {})}, "application/json")


def _original_path(request: Request) -> str:
    raw = request.scope.get("raw_path") or b"/"
    return raw.decode("latin-1").partition("?")[0]


def _prefixes(service: Service) -> list[str]:
    path = "/" + service.config.base_url.partition("://")[2].partition("/")[2]
    return [path] if path != "/" else []

"""Responses to reads and writes of one resource: its ETag and address, and as much of it as the client asks for."""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from fastapi import Request, Response

from lab_sandbox.config import Counterparty
from lab_sandbox.documents import decode_content, negotiate_media_type
from lab_sandbox.errors import HttpError, Issue, operation_outcome
from lab_sandbox.exact_json import decode_stored
from lab_sandbox.http_helpers import FHIR_MEDIA_TYPE, base_address, json_response, resource_response
from lab_sandbox.resource_store import StoredResource
from lab_sandbox.service import Service

_PREFER: Final = re.compile(r"\breturn\s*=\s*\"?(minimal|representation|OperationOutcome)\b")


def written_response(stored: StoredResource, status: int, request: Request, service: Service) -> Response:
    """The response to a create or update: the resource, nothing, or an OperationOutcome, as Prefer says or as configured.

    Without Prefer a Patient is always given back ("Create patient": 200 with the created Patient).
    """
    headers = {"ETag": stored.etag(), "Location": _location(stored, request, service)}
    preferred = _PREFER.search(request.headers.get("prefer", ""))
    configured = "representation" if stored.ref.type == "Patient" else service.config.rules.write_response
    kind = preferred[1] if preferred else configured
    if kind == "minimal":
        return Response(b"", status, headers)
    if kind == "OperationOutcome":
        return _outcome_response(stored, "stored", status, headers)
    return resource_response(stored, status, headers)


def created_response(stored: StoredResource, request: Request, service: Service) -> Response:
    """200 for patients ("Errors": success of patient creation), 201 for other resources."""
    return written_response(stored, 200 if stored.ref.type == "Patient" else 201, request, service)


def existing_response(stored: StoredResource, caller: Counterparty, request: Request, service: Service) -> Response:
    """200 with the resource that If-None-Exist has found, or without it for a creator who may not read it."""
    if service.resources.allows(stored.access, "read", caller):
        return written_response(stored, 200, request, service)
    headers = {"ETag": stored.etag(), "Location": _location(stored, request, service)}
    return _outcome_response(stored, "exists already", 200, headers)


def document_response(resource: StoredResource, accept: str | None) -> Response:
    """A document in the format that Accept selects, or the Binary for who asks for FHIR; 406 if it has no such format."""
    binary = decode_stored(resource.body)
    own_type = str(binary.get("contentType"))
    chosen = negotiate_media_type(accept, own_type)
    if chosen is None:
        raise HttpError.of(406, "not-supported", f"Accept: the document is available as {own_type}, not as {accept}")
    content, kind = (decode_content(binary), own_type) if chosen == own_type else (resource.body, FHIR_MEDIA_TYPE)
    return Response(content, 200, {"ETag": resource.etag()}, kind)


def _outcome_response(stored: StoredResource, text: str, status: int, headers: Mapping[str, str]) -> Response:
    issue = Issue("informational", f"{stored.ref.type}/{stored.ref.id}: {text}", "information")
    return json_response(operation_outcome([issue]), status, dict(headers))


def _location(stored: StoredResource, request: Request, service: Service) -> str:
    """The resource's address; that of its version from a strict service."""
    version = f"/_history/{stored.version}" if service.config.strict else ""
    return f"{base_address(request, service)}fhir/{stored.ref.type}/{quote(stored.ref.id, safe='')}{version}"

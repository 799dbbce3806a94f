"""What the answer to a write says of the resource: as it is now, or, where the answer says little, whether it was written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from lab_agent.exchange import fhir_http
from lab_agent.exchange.responses import RequestContext, invalid_response, is_page, parse_object
from lab_agent.exchange.service import Json, SavedResource
from lab_agent.shared.errors import (
    InvalidResponse,
    MultipleMatches,
    OutcomeUnknown,
    ServiceRejected,
    StaleVersion,
    TemporaryFailure,
)
from lab_agent.shared.http_client import HttpResponse

T = TypeVar("T")
Find = Callable[[], Awaitable[tuple[SavedResource, ...]]]


def parse_saved(
    context: RequestContext, answer: HttpResponse, resource_type: str, sent: Json, *, created: bool = False
) -> SavedResource:
    """Read the response to a write: its body with the id and version of the headers.

    Where the body is missing or something else (an OperationOutcome, a page), what was sent stands for it, if the headers name
    the resource and its new version: a 2xx with both says that it was done.
    """
    location = fhir_http.parse_location(answer.headers.get("location"), resource_type)
    body = _parse_body(context, answer, resource_type)
    resource_id = fhir_http.body_id(sent if body is None else body) or (location[0] if location else None)
    version = fhir_http.resource_version(answer.headers, body, resource_type)
    if resource_id is None or version is None:
        raise invalid_response(
            context, "an HTML page" if is_page(answer.body) else f"something that is not a {resource_type} with id and version"
        )
    found = sent if body is None else body
    return SavedResource(
        resource_type=resource_type, id=resource_id, version=version, body=found, created=created, echoed=body is None
    )


async def find_created(rejection: ServiceRejected, find: Find | None) -> SavedResource:
    """What a doubtful rejection has created all the same. Raises `rejection` where there is none, or nobody can look."""
    if find is None or not rejection.is_doubtful or isinstance(rejection, MultipleMatches):
        raise rejection
    found = await _look(rejection, find)
    if len(found) != 1:
        raise rejection
    return found[0]


async def raise_if_updated(rejection: ServiceRejected, version: str, read: Callable[[], Awaitable[SavedResource]]) -> None:
    """Read what a doubtful rejection is about. Raises `StaleVersion` where it has another version than the one that was to be
    updated: whoever writes it then reads it again, and finds that it is already so.
    """
    if not rejection.is_doubtful or isinstance(rejection, StaleVersion):
        return
    if (await _look(rejection, read)).version != version:
        text = f"{rejection}, and it has another version all the same"
        raise StaleVersion(text, status=rejection.status, issues=rejection.issues) from rejection


async def _look(rejection: ServiceRejected, look: Callable[[], Awaitable[T]]) -> T:
    """Look whether a rejection holds. Raises it where we may not look, and `OutcomeUnknown` where nobody can tell just now."""
    try:
        return await look()
    except (TemporaryFailure, InvalidResponse) as failure:
        text = f"{rejection}, and nobody can tell whether that holds: {failure}"
        raise OutcomeUnknown(text, issues=rejection.issues) from failure
    except ServiceRejected as failure:
        raise rejection from failure


def _parse_body(context: RequestContext, answer: HttpResponse, resource_type: str) -> Json | None:
    try:
        body = parse_object(context, answer.body)
    except InvalidResponse:
        return None
    return body if fhir_http.is_resource_type(body, resource_type) else None

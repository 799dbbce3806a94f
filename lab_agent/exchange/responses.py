"""Turns status codes and OperationOutcomes into our errors (interface: Errors). Pure.

A status code means something only together with its request: 412 to If-Match is a stale version, 412 to If-None-Exist several
matches; a 500 to a GET may be retried, a 500 to a write may have taken effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Any

from lab_agent import exact_json
from lab_agent.errors import (
    AuthenticationRequired,
    DataInvalidError,
    Failure,
    InvalidResponse,
    MultipleMatches,
    OutcomeIssue,
    OutcomeUnknown,
    ResourceNotReadable,
    SearchNotSupported,
    ServiceRejected,
    ServiceUnavailable,
    StaleVersion,
)
from lab_agent.http_client import parse_retry_after

_MAX_TEXT = 500


class RequestKind(Enum):
    """The kind of a request."""

    READ = auto()
    SEARCH = auto()
    WRITE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """What the meaning of a response depends on; `description` names the request for people (method and type, no ids)."""

    kind: RequestKind
    description: str
    if_match: bool = False
    if_none_exist: bool = False


def response_error(
    context: RequestContext, status: int, headers: Mapping[str, str], body: bytes, *, now: datetime
) -> Failure | None:
    """Return the error that a response stands for; None for a success (2xx)."""
    if 200 <= status < 300:
        return None
    description = _describe(context, status, issues := parse_issues(body))
    wait = parse_retry_after(headers.get("retry-after"), now)
    if status in {425, 429} or (status == 503 and wait is not None):
        return ServiceUnavailable(description, retry_after=wait)
    if status == 401:
        return AuthenticationRequired(f"{description}; run `lab-agent login`, or correct [exchange.oauth]")
    if status == 408 or (status >= 500 and status not in {501, 505}):
        return (
            OutcomeUnknown(description)
            if context.kind is RequestKind.WRITE
            else ServiceUnavailable(description, retry_after=wait)
        )
    return _rejection_type(context, status)(description, status=status, issues=issues)


def parse_object(context: RequestContext, body: bytes) -> Mapping[str, Any]:
    """Read the JSON object of a success. Raises `InvalidResponse` for a write, `ServiceUnavailable` otherwise."""
    try:
        found = exact_json.loads(exact_json.strip_byte_order_mark(body))
    except DataInvalidError as exc:
        raise invalid_response(context, "something that is not JSON") from exc
    if not isinstance(found, dict):
        raise invalid_response(context, "JSON that is not an object")
    return found


def invalid_response(context: RequestContext, found: str) -> Failure:
    """The failure for a success whose body is not what the interface promises."""
    message = f"{context.description} was answered with {found}"
    return InvalidResponse(message) if context.kind is RequestKind.WRITE else ServiceUnavailable(message)


def parse_issues(body: bytes) -> tuple[OutcomeIssue, ...]:
    """Read the issues of an OperationOutcome; none if the body is something else."""
    try:
        found = exact_json.loads(body)
    except DataInvalidError:
        return ()
    if not isinstance(found, dict) or found.get("resourceType") != "OperationOutcome":
        return ()
    listed = found.get("issue")
    return tuple(_parse_issue(entry) for entry in listed if isinstance(entry, dict)) if isinstance(listed, list) else ()


def _rejection_type(context: RequestContext, status: int) -> type[ServiceRejected]:
    if context.kind is RequestKind.READ:
        return ResourceNotReadable if status in {403, 404, 410} else ServiceRejected
    if context.kind is RequestKind.SEARCH:
        return SearchNotSupported if status in {400, 404, 405, 501} else ServiceRejected
    if context.if_match and status in {409, 412}:
        return StaleVersion
    if context.if_none_exist and status == 412:
        return MultipleMatches
    return ServiceRejected


def _parse_issue(entry: Mapping[str, Any]) -> OutcomeIssue:
    severity, code, diagnostics = (entry.get(name) for name in ("severity", "code", "diagnostics"))
    return OutcomeIssue(str(severity or "error"), str(code or ""), str(diagnostics or ""))


def _describe(context: RequestContext, status: int, issues: tuple[OutcomeIssue, ...]) -> str:
    """Describe the error without the diagnostics, which may repeat what was sent; they stay in `ServiceRejected.issues`."""
    codes = ", ".join(dict.fromkeys(issue.code for issue in issues if issue.code))
    return f"{context.description} was answered with {status}" + (f" ({codes[:_MAX_TEXT]})" if codes else "")

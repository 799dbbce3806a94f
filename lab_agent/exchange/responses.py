"""Status codes and OperationOutcomes into our errors (interface: Errors). Pure.

A status code is judged with the request that caused it: 412 to If-Match is a stale version, 412 to If-None-Exist several
matches; a 500 to a GET may be tried again, a 500 to a write may have happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
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
    ServiceRefusal,
    ServiceUnavailable,
    StaleVersion,
)

_MAX_TEXT = 500
_MAX_RETRY_AFTER = 3600.0


class RequestKind(Enum):
    """What sort of request it was."""

    READ = auto()
    SEARCH = auto()
    WRITE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """A request, as far as its answer is judged by it; `what` names it for people (a method and a resource type, no ids)."""

    kind: RequestKind
    description: str
    if_match: bool = False
    if_none_exist: bool = False


def response_error(
    context: RequestContext, status: int, headers: Mapping[str, str], body: bytes, *, now: datetime
) -> Failure | None:
    """Give what is wrong with an answer; None for a success (2xx)."""
    if 200 <= status < 300:
        return None
    told = _describe(context, status, issues := parse_issues(body))
    wait = parse_retry_after(headers.get("retry-after"), now)
    if status in {425, 429} or (status == 503 and wait is not None):
        return ServiceUnavailable(told, retry_after=wait)
    if status == 401:
        return AuthenticationRequired(f"{told}; run `lab-agent login`, or mend [exchange.oauth]")
    if status == 408 or (status >= 500 and status not in {501, 505}):
        return OutcomeUnknown(told) if context.kind is RequestKind.WRITE else ServiceUnavailable(told, retry_after=wait)
    return _refusal_type(context, status)(told, status=status, issues=issues)


def parse_object(context: RequestContext, body: bytes) -> Mapping[str, Any]:
    """Read the JSON object of a success. Raises `AnswerUnreadable` for a write, `ServiceUnavailable` otherwise."""
    try:
        found = exact_json.loads(body.removeprefix(b"\xef\xbb\xbf"))
    except DataInvalidError as exc:
        raise invalid_response(context, "something that is not JSON") from exc
    if not isinstance(found, dict):
        raise invalid_response(context, "JSON that is no object")
    return found


def invalid_response(context: RequestContext, found: str) -> Failure:
    """Make the failure for a success whose body is not what the interface promises."""
    told = f"{context.description} was answered by {found}"
    return InvalidResponse(told) if context.kind is RequestKind.WRITE else ServiceUnavailable(told)


def parse_issues(body: bytes) -> tuple[OutcomeIssue, ...]:
    """Read the issues of an OperationOutcome; none where the body is something else."""
    try:
        found = exact_json.loads(body)
    except DataInvalidError:
        return ()
    if not isinstance(found, dict) or found.get("resourceType") != "OperationOutcome":
        return ()
    listed = found.get("issue")
    return tuple(_parse_issue(entry) for entry in listed if isinstance(entry, dict)) if isinstance(listed, list) else ()


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds to wait, from either form of Retry-After (seconds, or an HTTP-date); None where there is none to understand.

    Never more than an hour: a longer wait is more often a mistake of a clock than a wish.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _MAX_RETRY_AFTER)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return min(max(0.0, (until - now).total_seconds()), _MAX_RETRY_AFTER)


def _refusal_type(context: RequestContext, status: int) -> type[ServiceRefusal]:
    if context.kind is RequestKind.READ:
        return ResourceNotReadable if status in {403, 404, 410} else ServiceRefusal
    if context.kind is RequestKind.SEARCH:
        return SearchNotSupported if status in {400, 404, 405, 501} else ServiceRefusal
    if context.if_match and status in {409, 412}:
        return StaleVersion
    if context.if_none_exist and status == 412:
        return MultipleMatches
    return ServiceRefusal


def _parse_issue(entry: Mapping[str, Any]) -> OutcomeIssue:
    severity, code, diagnostics = (entry.get(name) for name in ("severity", "code", "diagnostics"))
    return OutcomeIssue(str(severity or "error"), str(code or ""), str(diagnostics or ""))


def _describe(context: RequestContext, status: int, issues: tuple[OutcomeIssue, ...]) -> str:
    """Say it without the diagnostics: those may repeat what was sent. They stay in `ServiceRefusal.issues`."""
    codes = ", ".join(dict.fromkeys(issue.code for issue in issues if issue.code))
    return f"{context.description} was answered with {status}" + (f" ({codes[:_MAX_TEXT]})" if codes else "")

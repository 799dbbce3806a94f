"""Turns status codes and OperationOutcomes into our errors (interface: Errors). Pure.

A status code means something only together with its request: 412 to If-Match is a stale version, 412 to If-None-Exist several
matches; a 500 to a GET may be retried, a 500 to a write may have taken effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

from lab_agent.fhir.elements import code_of, object_of, objects_of
from lab_agent.shared import exact_json
from lab_agent.shared.errors import (
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
from lab_agent.shared.http_dates import retry_after_of

_MAX_TEXT = 500
_MAX_QUOTE = 2048
_MAX_OUTCOME_BYTES, _MAX_OUTCOME_VALUES = 1024 * 1024, 20_000
"""What an OperationOutcome may have: it is read without a thread, and this many values in some 20 ms."""
_ABOUT_RESOURCE = frozenset({401, 403, 404, 410})
"""What these statuses say to a read is about that resource, and our rights to it."""
_ISSUE_WORDS = {
    "invalid": "invalid content",
    "structure": "invalid structure",
    "required": "a required element is missing",
    "value": "invalid value",
    "invariant": "a rule of the resource is broken",
    "security": "security",
    "login": "sign-in needed",
    "unknown": "unknown user",
    "expired": "session expired",
    "forbidden": "forbidden",
    "suppressed": "something is not shown to us",
    "processing": "processing error",
    "not-supported": "not supported",
    "duplicate": "a duplicate",
    "not-found": "not found",
    "too-long": "too long",
    "code-invalid": "invalid code",
    "extension": "unknown extension",
    "too-costly": "too costly",
    "business-rule": "against a business rule",
    "conflict": "a conflict of versions",
    "incomplete": "incomplete",
    "transient": "a passing trouble, as the service says",
    "lock-error": "locked",
    "no-store": "its database is unavailable",
    "exception": "an internal error of the service",
    "timeout": "a time-out of the service",
    "throttled": "too many requests",
    "informational": "information",
}
"""Words for the types of issues of an OperationOutcome (FHIR STU3, IssueType). Any other may be a name: see `_parse_issue`."""
_SEVERITIES = frozenset({"fatal", "error", "warning", "information"})
_NO_SUCH_SEARCH = frozenset({400, 404, 405, 422, 501})
_LOCKED = 423
"""One resource is locked for a while: its Retry-After, if there is one, is not for all requests."""
_PAGE_BEGINNINGS = (b"<!doctype html", b"<html", b"<head", b"<body", b"<!--", b"<title", b"<meta")
_NOT_PERFORMED = frozenset({300, 301, 304, 305, 307, 308})
"""Redirects that say: ask there instead. After 302 and 303 a write may have been done, and the address be that of its answer."""


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

    @property
    def resource_type(self) -> str:
        """The type of what is asked for, which is the last word of `description`."""
        return self.description.rpartition(" ")[2]


def response_error(
    context: RequestContext, status: int, headers: Mapping[str, str], body: bytes, *, now: datetime
) -> Failure | None:
    """Return the error that a response stands for; None for a success (2xx)."""
    if 200 <= status < 300:
        return None
    description = _describe(context, status, issues := parse_issues(body))
    if not issues and body.lstrip()[:1] == b"<":
        description += f", and {describe_text(body)}"
    issues = issues or _quote(body)
    wait = None if status == _LOCKED else retry_after_of(headers, now)
    if status in {_LOCKED, 425, 429} or (status == 503 and wait is not None):
        return ServiceUnavailable(_with_wait(description, wait, now), retry_after=wait, issues=issues)
    if status == 401:
        hint = "correct [exchange.oauth]; `lab-agent check` says how to sign in"
        return AuthenticationRequired(f"{description}; {hint}", issues=issues)
    if _is_unavailable(status):
        if context.kind is RequestKind.WRITE and status not in _NOT_PERFORMED:
            return OutcomeUnknown(description, issues=issues)
        return ServiceUnavailable(description, retry_after=wait, issues=issues)
    return _rejection_type(context, status)(description, status=status, issues=issues, may_pass=_may_pass(context, status))


def _is_unavailable(status: int) -> bool:
    """Whether a status says that the service itself, or what stands before it, cannot answer now; a redirect is one, too."""
    return status < 400 or status == 408 or (status >= 500 and status not in {501, 505})


def _may_pass(context: RequestContext, status: int) -> bool:
    return context.kind is RequestKind.SEARCH or (context.kind is RequestKind.READ and status not in _ABOUT_RESOURCE)


def _with_wait(description: str, wait: float | None, now: datetime) -> str:
    """Add until when the service asked us to wait, by our clock."""
    if not wait:
        return description
    return f"{description}; it asks to wait until {now + timedelta(seconds=wait):%Y-%m-%d %H:%M:%S} UTC"


def parse_object(context: RequestContext, body: bytes) -> Mapping[str, Any]:
    """Read the JSON object of a success. Raises `InvalidResponse`, or `ServiceUnavailable` for what is no answer to a GET."""
    text = exact_json.strip_byte_order_mark(body)
    try:
        found = exact_json.loads(text) if len(text) < exact_json.LARGE else exact_json.loads_large(text)
    except exact_json.TooManyValues as exc:
        raise invalid_response(context, f"more than {exact_json.MAX_VALUES} JSON values") from exc
    except DataInvalidError as exc:
        if context.kind is RequestKind.READ and not text.lstrip().startswith(b"{"):  # a page of a proxy, not the resource
            raise ServiceUnavailable(f"{context.description} was answered with {describe_text(text)}") from exc
        raise invalid_response(context, describe_text(text)) from exc
    if not isinstance(found, dict):
        raise invalid_response(context, "JSON that is not an object")
    return found


def describe_text(body: bytes) -> str:
    """Say what a body is that is no JSON: above all a page for people, of a proxy or a sign-in, in its place."""
    begin = exact_json.strip_byte_order_mark(body)[:_MAX_QUOTE].lstrip()
    if is_page(body):
        return "an HTML page"
    return "XML" if begin.startswith(b"<") else "nothing" if not begin else "something that is not valid JSON"


def is_page(body: bytes) -> bool:
    """Whether a body is an HTML page."""
    begin = exact_json.strip_byte_order_mark(body)[:_MAX_QUOTE].lstrip().lower()
    return begin.startswith(_PAGE_BEGINNINGS) or (begin.startswith(b"<?xml") and b"<html" in begin)


def invalid_response(context: RequestContext, found: str) -> Failure:
    """The failure for a success whose body is not what the interface promises: a search says nothing about one resource."""
    message = f"{context.description} was answered with {found}"
    return ServiceUnavailable(message) if context.kind is RequestKind.SEARCH else InvalidResponse(message)


def outcome_error(context: RequestContext, issues: tuple[OutcomeIssue, ...]) -> ServiceUnavailable:
    """The failure for a search that is answered with a success and an OperationOutcome in place of a Bundle."""
    return ServiceUnavailable(_describe(context, "an OperationOutcome instead of a Bundle", issues), issues=issues)


def parse_issues(body: bytes) -> tuple[OutcomeIssue, ...]:
    """Read the issues of an OperationOutcome; none if the body is something else, or too large to be one."""
    if len(body) >= _MAX_OUTCOME_BYTES:
        return ()
    try:
        found = exact_json.loads_large(body, _MAX_OUTCOME_VALUES)
    except DataInvalidError:
        return ()
    if not isinstance(found, dict) or code_of(found.get("resourceType")) != "operationoutcome":
        return ()
    return tuple(_parse_issue(entry) for entry in objects_of(found.get("issue")))


def _quote(body: bytes) -> tuple[OutcomeIssue, ...]:
    """The beginning of a body that is no OperationOutcome, such as the page of a proxy, marked as that."""
    text = body[:_MAX_QUOTE].decode("utf-8", "replace").strip()
    return (OutcomeIssue("answer", "that is no OperationOutcome", text),) if text else ()


def _rejection_type(context: RequestContext, status: int) -> type[ServiceRejected]:
    if context.kind is RequestKind.READ:
        return ResourceNotReadable
    if context.kind is RequestKind.SEARCH:
        return SearchNotSupported if status in _NO_SUCH_SEARCH else ServiceRejected
    if context.if_match and status in {409, 412}:
        return StaleVersion
    if context.if_none_exist and status == 412:
        return MultipleMatches
    return ServiceRejected


def _parse_issue(entry: Mapping[str, Any]) -> OutcomeIssue:
    """Read an issue. Codes of FHIR's own lists are codes; any other is the service's words, sealed with its text (law 7)."""
    severity, code = (code_of(entry.get(key)) or "" for key in ("severity", "code"))
    details = object_of(entry.get("details")) or {}
    of_lists = (("severity", severity, _SEVERITIES), ("code", code, _ISSUE_WORDS))
    words = [str(entry[key]) for key, read, known in of_lists if entry.get(key) and read not in known]
    words += [str(each[key]) for each in objects_of(details.get("coding")) for key in ("code", "display") if each.get(key)]
    text = str(entry.get("diagnostics") or details.get("text") or "")
    return OutcomeIssue(
        severity if severity in _SEVERITIES else "error",
        code if code in _ISSUE_WORDS else "",
        f"{text} ({', '.join(words)})".strip() if words else text,
    )


def _describe(context: RequestContext, status: int | str, issues: tuple[OutcomeIssue, ...]) -> str:
    """Describe the error without the diagnostics, which may repeat what was sent; they stay in `Failure.issues`."""
    codes = ", ".join(dict.fromkeys(_ISSUE_WORDS.get(issue.code, issue.code) for issue in issues if issue.code))
    return f"{context.description} was answered with {status}" + (f" ({codes[:_MAX_TEXT]})" if codes else "")

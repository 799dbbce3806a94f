"""What can go wrong on the partner's side, with the service's own words kept.

JSON of the partner's side, with every digit kept: a clinic must be able to see that `1.20` arrived as `1.20`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import httpx
import msgspec

Json = dict[str, Any]
"""A JSON object: a resource, a basket, an answer."""

_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")


class InvalidJsonError(ValueError):
    """What came is not JSON."""


def decode(data: bytes) -> Any:
    """Read JSON, fractional numbers as `Decimal`. Raises `NotJsonError`."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as exc:
        raise InvalidJsonError(str(exc)) from exc


def encode(value: Any) -> bytes:
    """Write JSON; a `Decimal` becomes a number with its own digits."""
    return _encoder.encode(value)


class PartnerError(Exception):
    """The partner's flow cannot go on."""


class ServiceRefusedError(PartnerError):
    """The service answered with a status of 400 or above (interface: Errors); `issues` are its diagnostics."""

    def __init__(self, request: str, status: int, issues: tuple[str, ...]) -> None:
        super().__init__(f"{request}: {status}: {'; '.join(issues) or 'no reason given'}")
        self.status = status
        self.issues = issues


class ServiceUnreachableError(PartnerError):
    """The request got no answer; it may or may not have been carried out."""


def require_success(response: httpx.Response) -> httpx.Response:
    """The response itself, unless it is a refusal: then `ServiceRefusedError` with its OperationOutcome."""
    if response.status_code < 400:
        return response
    request = f"{response.request.method} {response.request.url.path}"
    raise ServiceRefusedError(request, response.status_code, parse_diagnostics(response.content))


def parse_diagnostics(body: bytes) -> tuple[str, ...]:
    """`issue[].diagnostics` of an OperationOutcome; the OAuth error of a token answer; else nothing."""
    try:
        outcome = decode(body)
    except InvalidJsonError:
        return ()
    if not isinstance(outcome, dict):
        return ()
    if "error" in outcome:
        return tuple(str(outcome[key]) for key in ("error", "error_description") if key in outcome)
    return tuple(_issue_text(issue) for issue in outcome.get("issue", []) if isinstance(issue, dict))


def _issue_text(issue: dict[str, Any]) -> str:
    return str(issue.get("diagnostics") or issue.get("code") or "")

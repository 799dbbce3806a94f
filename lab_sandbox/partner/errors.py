"""The partner's errors, with the service's diagnostics, and its JSON with exact decimals.

Digits must survive: a clinic has to see that `1.20` arrived as `1.20`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import httpx
import msgspec

Json = dict[str, Any]
"""A JSON object."""

_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")


class InvalidJsonError(ValueError):
    """The data is not valid JSON."""


def decode(data: bytes) -> Any:
    """Parses JSON, fractions as `Decimal`; `InvalidJsonError` if it is invalid."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as exc:
        raise InvalidJsonError(str(exc)) from exc


def encode(value: Any) -> bytes:
    """Serialises JSON; a `Decimal` keeps its digits."""
    return _encoder.encode(value)


class PartnerError(Exception):
    """The partner cannot continue."""


class ServiceRefusedError(PartnerError):
    """The service answered with a status of 400 or above (interface: Errors); `issues` are its diagnostics."""

    def __init__(self, request: str, status: int, issues: tuple[str, ...]) -> None:
        super().__init__(f"{request}: {status}: {'; '.join(issues) or 'no reason given'}")
        self.status = status
        self.issues = issues


class ServiceUnreachableError(PartnerError):
    """No response; the request may or may not have been processed."""


def require_success(response: httpx.Response) -> httpx.Response:
    """The response; `ServiceRefusedError` with its diagnostics if the status is 400 or above."""
    if response.status_code < 400:
        return response
    request = f"{response.request.method} {response.request.url.path}"
    raise ServiceRefusedError(request, response.status_code, parse_diagnostics(response.content))


def parse_diagnostics(body: bytes) -> tuple[str, ...]:
    """`issue[].diagnostics` of an OperationOutcome, the OAuth error of a token response, or nothing."""
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

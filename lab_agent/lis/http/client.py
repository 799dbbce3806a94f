"""Calls to the LIS: signs and sends them, and turns the response into a result or a failure. Retries are the job queue's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from lab_agent.lis.http.settings import HttpSettings
from lab_agent.lis.http.signatures import signature_headers
from lab_agent.lis.laboratory_system import SubmitResult
from lab_agent.shared import exact_json
from lab_agent.shared.errors import (
    AmbiguousFailure,
    DataInvalidError,
    Failure,
    LisOutcomeUnknown,
    LisRejected,
    LisUnavailable,
    PermanentFailure,
    TemporaryFailure,
)
from lab_agent.shared.http_client import HttpClient, HttpResponse
from lab_agent.shared.http_dates import retry_after_of
from lab_agent.shared.ids import LineKey

log = structlog.get_logger(__name__)
_CONFIGURATION_ERRORS = {
    401: "it rejects our signature",
    403: "it denies access",
    404: "unknown path",
    405: "wrong path",
}
_RETRY_STATUSES = frozenset({408, 425, 429, 503})
_CODE_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,60}", re.ASCII)


@dataclass(frozen=True, slots=True)
class LisHttpClient:
    """Signed calls to the LIS. Raises the `Lis…` failures only."""

    settings: HttpSettings
    client: HttpClient

    async def post(self, path: str, idempotency_key: str, body: bytes) -> HttpResponse:
        """Post a message. Success is 2xx, or 409 if the LIS already has it."""
        answer = await self._send("POST", path, idempotency_key, body)
        if answer.status // 100 == 2 or answer.status == 409:
            return answer
        raise _to_failure(answer)

    async def has_resource(self, path: str, idempotency_key: str) -> bool:
        """Whether the LIS has what `path` names: 2xx or 404."""
        answer = await self._send("GET", path, idempotency_key, b"")
        if answer.status // 100 == 2 or answer.status == 404:
            return answer.status != 404
        raise LisUnavailable(f"the LIS answered {answer.status}", retry_after=_retry_after(answer))

    async def _send(self, method: str, path: str, idempotency_key: str, body: bytes) -> HttpResponse:
        headers = signature_headers(self.settings.secret.get_secret_value().encode(), idempotency_key, body, datetime.now(UTC))
        if body:
            headers["Content-Type"] = "application/json"
        try:
            return await self.client.send(method, path, base=self.settings.url, headers=headers, content=body)
        except TemporaryFailure as exc:
            raise LisUnavailable(f"the LIS cannot be reached: {exc}", retry_after=exc.retry_after) from exc
        except AmbiguousFailure as exc:
            raise LisOutcomeUnknown(f"the LIS did not answer: {exc}") from exc
        except PermanentFailure as exc:
            raise LisRejected(str(exc)) from exc


def parse_submit_result(response: HttpResponse) -> SubmitResult:
    """Read the LIS's numbers: `{"accession": …, "lines": {key: …}, "tubes": {barcode: …}}`; all are optional."""
    try:
        tree = exact_json.loads_strictly(response.body) if response.body.strip() else {}
    except DataInvalidError:
        tree = None
    if not isinstance(tree, dict):
        log.warning("accession numbers in the response unreadable", action="submit_result_unreadable", status=response.status)
        return SubmitResult()
    lines = {LineKey(key): number for key, number in _accessions(tree.get("lines")).items()}
    accession = tree.get("accession")
    return SubmitResult(
        accession=accession if _is_accession(accession) else None,
        line_accessions=lines,
        tube_accessions=_accessions(tree.get("tubes")),
    )


def _accessions(given: Any) -> dict[str, str]:
    return {key: value for key, value in given.items() if _is_accession(value)} if isinstance(given, dict) else {}


def _is_accession(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.strip()) <= 200 and value.isprintable()


def _to_failure(response: HttpResponse) -> Failure:
    """Turn an unsuccessful response into a failure. Only its error code is repeated: its text may name the patient."""
    status, code = response.status, _error_code(response)
    if status in _RETRY_STATUSES:
        return LisUnavailable(f"the LIS asks to try again later ({status})", retry_after=_retry_after(response))
    if status in _CONFIGURATION_ERRORS:
        reason = _CONFIGURATION_ERRORS[status]
        return LisUnavailable(f"the LIS answered {status} ({reason}): check [lis] and the LIS's own settings")
    if status >= 500:
        return LisOutcomeUnknown(f"the LIS answered {status}{code}")
    return LisRejected(f"the LIS answered {status}{code}")


def _error_code(response: HttpResponse) -> str:
    try:
        tree = exact_json.loads(response.body)
    except DataInvalidError:
        return ""
    code = tree.get("code") if isinstance(tree, dict) else None
    return f" ({code})" if isinstance(code, str) and _CODE_PATTERN.fullmatch(code) else ""


def _retry_after(response: HttpResponse) -> float | None:
    return retry_after_of(response.headers, datetime.now(UTC))
